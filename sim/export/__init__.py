"""What other programs read of an experiment's results: traces for Perfetto, and tables.

Everything is made from files; nothing is simulated again.
"""
