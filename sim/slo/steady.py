"""From the files of one run to one point of a search.

The first fifth of the requests is the warm-up: memory fills, and latencies are those of an empty
machine. Latencies are of the requests that arrive after it; one that has not finished when the run
ends has waited for ever. Rejected requests and those that failed with the turn before them are
left out, and counted: they are too long at any rate.

waiting_growth   what the queue gains from the end of the warm-up to the last arrival, in requests:
                 the least-squares slope of num_waiting times that stretch. The queue diverges if
                 that is more than twice the square root of the arrivals meanwhile, which is twice
                 the standard deviation of a Poisson count: chance alone rarely does it, and a rate
                 above throughput by more than 2 / sqrt(arrivals) always does.
goodput_tokens_s output tokens of requests that finish between the moments when a fifth and when
                 four fifths have finished, by that time: useful work, since a token that is
                 computed again after a preemption counts once. Counting by finishes keeps filling
                 and draining out, also where all requests arrive before the first finishes. NaN
                 where that is less than a hundredth of the run: requests that finish together, as
                 few of equal length do, say nothing of a rate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from sim.slo.objectives import Floats, Objective

WARM_UP_PARTS = 5  # the first of so many parts is the warm-up
MIN_STRETCH_PARTS = 100  # goodput is of at least such a part of the run
LEFT_OUT = ("rejected", "failed")

Point = dict[str, Any]


def num_with_warm_up(num_measured: int) -> int:
    """How many requests a run needs so that so many are left after the warm-up."""
    return -(-num_measured * WARM_UP_PARTS // (WARM_UP_PARTS - 1))


def measure(
    row: Mapping[str, Any],
    requests: pd.DataFrame,
    timeline: pd.DataFrame,
    objectives: Sequence[Objective],
) -> Point:
    """One point from a run's summary row and its two tables.

    Each objective's statistic is under its name, in seconds.
    """
    first = -(-len(requests) // WARM_UP_PARTS)
    arrivals = np.sort(requests["arrival_s"].to_numpy(float))
    start_s, end_s = float(arrivals[first]), float(arrivals[-1])
    measured = requests[requests["arrival_s"] >= start_s]
    served = measured[~measured["status"].isin(LEFT_OUT)]
    values = latencies(served)
    waiting, growth = _queue(timeline, start_s, end_s)
    computed = int((requests["prompt_tokens"] + requests["output_tokens"]).sum())
    again = int(row["num_recomputed_tokens"] or 0)
    point: Point = {o.name: o.value(values[o.metric]) for o in objectives}
    return point | {
        "status": row["status"],
        "num_measured": len(served),
        "num_left_out": len(measured) - len(served),
        "num_waiting_mean": waiting,
        "waiting_growth": growth,
        "diverges": growth > 2 * math.sqrt(len(measured)),
        "preemptions_per_request": row["num_preemptions"] / len(requests),
        "recomputed_tokens_frac": again / (computed + again) if again else 0.0,
        "goodput_tokens_s": goodput_tokens_s(requests),
        "meets": row["status"] == "finished"
        and len(served) > 0
        and all(objective.holds(point[objective.name]) for objective in objectives),
    }


def latencies(served: pd.DataFrame) -> dict[str, Floats]:
    """TTFT, end-to-end latency and TPOT in seconds; infinite if they never came.

    A finished output of one token has no TPOT and is not among those.
    """
    arrival = served["arrival_s"].to_numpy(float)
    finish = served["finish_s"].fillna(np.inf).to_numpy(float)
    first = served["first_token_s"].fillna(np.inf).to_numpy(float)
    gaps = served["output_tokens"].to_numpy(float) - 1
    is_open = np.isinf(finish)
    tpot = np.full(len(served), np.inf)
    has_tpot = (gaps > 0) & ~is_open
    tpot[has_tpot] = (finish[has_tpot] - first[has_tpot]) / gaps[has_tpot]
    return {
        "ttft_s": first - arrival,
        "e2e_s": finish - arrival,
        "tpot_s": tpot[has_tpot | is_open],
    }


def _queue(timeline: pd.DataFrame, start_s: float, end_s: float) -> tuple[float, float]:
    """The mean of num_waiting between two times, and what it gains on a fitted line.

    A bucket counts with the part of it that lies between them.
    """
    begin = timeline["start_s"].to_numpy(float)
    low = np.maximum(begin, start_s)
    high = np.minimum(begin + timeline["width_s"].to_numpy(float), end_s)
    weight = np.maximum(high - low, 0)
    total = weight.sum()
    if not total:
        return float("nan"), 0.0
    waiting, middle = timeline["num_waiting"].to_numpy(float), (low + high) / 2
    mean, center = (waiting * weight).sum() / total, (middle * weight).sum() / total
    spread = (weight * (middle - center) ** 2).sum()
    slope = (weight * (middle - center) * (waiting - mean)).sum() / spread if spread else 0.0
    return float(mean), float(slope * (end_s - start_s))


def goodput_tokens_s(requests: pd.DataFrame) -> float:
    """Output tokens per second between a fifth and four fifths of all finishes; NaN without."""
    done = requests.dropna(subset=["finish_s"]).sort_values("finish_s", kind="stable")
    low, high = len(done) // 5, len(done) * 4 // 5
    if low == high:
        return float("nan")
    times = done["finish_s"].to_numpy(float)
    time_s = times[high] - times[low]
    run_s = times[-1] - float(requests["arrival_s"].min())
    tokens = int(done["output_tokens"].iloc[low + 1 : high + 1].sum())
    return tokens / time_s if time_s > run_s / MIN_STRETCH_PARTS else float("nan")
