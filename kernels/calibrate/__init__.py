"""Time the kernels on a GPU: `python -m kernels.calibrate --out DIR --budget 300`.

`--dry` rehearses it without one. See kernels/README.md for how to run it and what it writes.

points.py      one thing to time and its arithmetic; grid.py: the sections and their grids
pool.py        one pool of random keys and values, and block tables into it
works.py       a point turned into launches; layer.py: a whole layer; ceilings.py: the hardware
timing.py      CUDA-graph timing and its statistics; sanity.py: rows that cannot be true
run.py         the sections in order, inside the budget; output.py: the two files
precompile.py  all variants compiled in parallel; correctness.py, variants.py; provenance.py; dry.py
"""
