"""How long an experiment will take: a guess, which says what it is made from.

An earlier run of the same name tells its wall time. For others there is one rate for all; the
truth may be ten times as fast, or as slow, since a request takes as long as there are iterations in
which it neither sleeps nor waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sim.config.replays import ReplaySpec
from sim.config.runspec import RunSpec
from sim.stored.runs import read_manifest

# CPU time on one core of a server: ShareGPT-like requests in 15,090 slots that are nearly full
REQUESTS_PER_S = 25_000
RUN_S = 0.03  # of a run besides simulating: the trace, the tables and their hashes


def time_line(specs: Sequence[RunSpec | ReplaySpec], folder: Path, jobs: int) -> str:
    """A line that says about how long the runs take on so many cores, if none is done yet.

    folder is that of the experiment's results, where earlier runs may be.
    """
    seconds, num_earlier, num_unknown = 0.0, 0, 0
    for spec in specs:
        if spec.skip:
            continue
        earlier = (read_manifest(folder / "runs" / spec.run_id) or {}).get("wall_s")
        seconds += RUN_S
        if isinstance(earlier, float):
            seconds += earlier
            num_earlier += 1
        elif isinstance(spec, RunSpec):
            seconds += spec.num_requests / REQUESTS_PER_S
        else:
            num_unknown += 1
    if num_unknown and not num_earlier:
        return "time          unknown: no earlier replays tell it"
    cores = "one core" if jobs == 1 else f"{jobs} cores"
    basis = _basis(sum(not spec.skip for spec in specs), num_earlier, num_unknown)
    return f"time          about {_text(seconds / jobs)} on {cores}: an estimate {basis}"


def _basis(num_runs: int, num_earlier: int, num_unknown: int) -> str:
    """What the estimate is made from."""
    earlier = f"from the wall times of {num_earlier:,} earlier runs"
    if num_earlier == num_runs:
        return earlier
    if num_unknown:
        return f"{earlier}; of {num_unknown:,} replays nothing is known"
    assumed = f"at {REQUESTS_PER_S:,} requests/s, which is assumed"
    return f"{earlier} and, for the others, {assumed}" if num_earlier else assumed


def _text(seconds: float) -> str:
    if seconds < 100:
        return f"{max(seconds, 1):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
