"""What `record: blocks` observes of a run, and the tables it becomes.

tables.py says what the four tables are. recording.py looks at every iteration: pool.py at the pool
and the block tables, phases.py at the requests; changes.py finds what has changed, history.py keeps
it, in bounded memory.
"""
