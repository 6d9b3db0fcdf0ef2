"""Fitting cost profiles to points, and scoring them on rows kept out: python -m sim.costs.fit.

Needs no GPU. Fitting needs scipy (pip install kvsim[fit]); scoring and figures do not.
"""
