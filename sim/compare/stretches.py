"""One run on each side: the same requests of both, in pairs, averaged over stretches of the run.

Two requests of one run are not independent: they wait in the same queue for the same memory, so a
test over single requests would find differences that are chance. The requests that finished in
both runs are cut, in their order in the trace, into ten stretches of as many, as batch means are
(Law and Kelton), and the ten mean differences are tested like those of ten seeds. Stretches that
are long next to how long the queue remembers are nearly independent. Where they are not, which the
correlation of each with the next one shows, no significance is claimed. What is found so holds for
more of this trace, and not for another one: seeds say more where the workload has any.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sim.results import files as results
from sim.stored import Stored

NUM_STRETCHES = 10
MIN_REQUESTS = 10 * NUM_STRETCHES
MAX_CORRELATION = 0.5  # of neighbours: 1.6 standard errors of ten independent values

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Stretches:
    """Means over the requests that finished in both runs.

    differences are those of the second run less those of the first, one a stretch. depend says that
    the stretches are not independent.
    """

    mean_first: float
    mean_second: float
    differences: Floats

    @property
    def depend(self) -> bool:
        """Whether a stretch tells much about the next one."""
        values = self.differences - self.differences.mean()
        total = float((values**2).sum())
        return total > 0 and float((values[1:] * values[:-1]).sum()) / total > MAX_CORRELATION


def requests_of(stored: Stored, run: str) -> tuple[pd.DataFrame, str]:
    """The requests of a run, and the digest of its trace. Raises ResultsError.

    The tables must be those that the summary was written from.
    """
    manifest = stored.manifests.get(run) or {}
    table = stored.table(run, "requests")
    if table is None:
        raise results.ResultsError(
            f"{stored.folder}: the tables of {run} are not there, or not of this summary"
        )
    trace = manifest.get("trace")
    digest = trace.get("digest") if isinstance(trace, dict) else None
    if digest is None:
        raise results.ResultsError(f"{stored.folder}: {run} says nothing of its trace")
    return table.set_index("request").sort_index(), str(digest)


def stretched(first: pd.DataFrame, second: pd.DataFrame) -> dict[str, Stretches]:
    """By metric, what the requests that finished in both runs differ in.

    Raises ResultsError if there are too few of them.
    """
    both = first.index.intersection(second.index)
    done = (first.loc[both, "status"] == "finished") & (second.loc[both, "status"] == "finished")
    served = both[done.to_numpy(bool)]
    if len(served) < MIN_REQUESTS:
        raise results.ResultsError(
            f"{len(served):,} requests finished in both runs, and {MIN_REQUESTS} are needed"
        )
    mine, its = latencies(first.loc[served]), latencies(second.loc[served])
    return {name: _stretches(mine[name], its[name]) for name in mine}


def latencies(served: pd.DataFrame) -> dict[str, Floats]:
    """Seconds of each request, by the summary's name of their mean; TPOT of one token is NaN."""
    arrival, first, finish = (
        served[name].to_numpy(float) for name in ("arrival_s", "first_token_s", "finish_s")
    )
    gaps = served["output_tokens"].to_numpy(float) - 1
    tpot = np.full(len(served), np.nan)
    np.divide(finish - first, gaps, out=tpot, where=gaps > 0)
    return {"ttft_s_mean": first - arrival, "tpot_s_mean": tpot, "e2e_s_mean": finish - arrival}


def _stretches(first: Floats, second: Floats) -> Stretches:
    known = np.isfinite(first) & np.isfinite(second)
    first, second = first[known], second[known]
    if len(first) < MIN_REQUESTS:
        return Stretches(float("nan"), float("nan"), np.full(1, np.nan))
    parts = np.array_split(second - first, NUM_STRETCHES)
    means = np.array([part.mean() for part in parts])
    return Stretches(float(first.mean()), float(second.mean()), means)
