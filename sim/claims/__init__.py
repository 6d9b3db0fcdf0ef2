"""Quantitative claims of papers and posts, measured, and judged one by one.

experiments/claims/*.yaml state them: what is claimed, where, with which tolerance, and what
measures it, an experiment or a probe. `statement` reads them, `measure` runs what measures them,
`judge` compares, `record` keeps the verdicts and `tables` shows them.
"""
