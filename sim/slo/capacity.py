"""The capacity of one line: the highest rate that enough seeds sustain, and what happens around it.

A seed sustains a rate if its run meets every objective and its queue does not diverge (sim.slo.
steady); a rate is sustained if at least `agree` of the seeds sustain it. Around it: the rates at
which the queue of as many seeds begins to diverge and their requests to be preempted, each seed's
own capacity, and the goodput from a quarter of the rate at which the queue diverges up to four
times that.

Each seed's own capacity is one draw of a random number, so the median of that number lies between
the lowest and the highest of n draws with probability 1 - 2^(1 - n), whatever its distribution.
The rate was chosen for the seeds it was found with, so as many fresh ones are run at it, and the
share of runs that sustain it is bounded by those alone.

Goodput falls (Denning's thrashing: "Thrashing: its causes and prevention", 1968) from the first
rate beyond its peak on at which it is 5 % lower than there, in at least `agree` of the seeds and on
average.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sim.slo.objectives import Objective
from sim.slo.rates import Rates
from sim.slo.search import Bracket, highest_rung
from sim.slo.steady import Point

Row = dict[str, Any]

CURVE = (-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0)  # doublings from where the queue diverges
LOST_FRAC = 0.05
CONFIDENCE = 0.95
QUEUE = "the queue grows"


@dataclass(frozen=True)
class Prices:
    """What a GPU costs by the hour, and how many serve the rate, those of all replicas together.

    No currency is assumed.
    """

    gpu_hour: float
    num_gpus: int

    def of_million(self, tokens_s: float) -> float:
        """The price of a million output tokens at so many a second."""
        return self.gpu_hour * self.num_gpus / 3600 / tokens_s * 1e6


def sustains(point: Point) -> bool:
    """Whether a run meets the objectives and keeps up."""
    return bool(point["meets"]) and not point["diverges"]


def capacity_row(rates: Rates, agree: int, prices: Prices | None) -> Row:
    """Search a line; the rates are in requests per second. Raises RunError."""
    ladder, seeds = rates.ladder, rates.sampling.seeds

    def search(holds: Callable[[Point], bool], highest: int) -> Bracket:
        return highest_rung(ladder, lambda rung: rates.count(rung, holds) >= agree, highest)

    found = search(sustains, ladder.highest)
    keeps_up = search(lambda point: not point["diverges"], ladder.highest)
    top = _end(keeps_up, ladder.highest)
    preempts = search(
        lambda point: point["preemptions_per_request"] == 0,
        min(ladder.highest, max(0, top + ladder.rungs_per_doubling)),
    )
    own = [_of_seed(rates, seed) for seed in seeds]
    for doublings in CURVE:
        rates.at(min(ladder.highest, top + round(doublings * ladder.rungs_per_doubling)))

    def rate(rung: int | None) -> float | None:
        return None if rung is None else ladder.rate(rung)

    row: Row = {
        "status": "found",
        "reason": "",
        "rate_req_s": rate(found.holds),
        "next_rate_req_s": rate(found.fails),
        "num_seeds": len(seeds),
        "num_sustaining": 0,
        "limited_by": "",
        "seeds_low_req_s": min(own),
        "seeds_high_req_s": max(own),
        "median_confidence": 1 - 2.0 ** (1 - len(seeds)),
        "preempts_from_req_s": rate(preempts.fails),
        "diverges_from_req_s": rate(keeps_up.fails),
    }
    row |= _limits(rates, found, agree)
    row |= _goodput(rates, agree)
    row |= _at_capacity(rates, found, prices)
    if found.holds is not None and not min(own) <= ladder.rate(found.holds) <= max(own):
        row["reason"] = "some seeds fail at lower rates than they sustain: more --requests"
    return row | {"num_requests": rates.sampling.num_requests, "num_runs": rates.num_runs}


def _of_seed(rates: Rates, seed: int) -> float:
    """The highest rate that one seed sustains, in requests per second; 0 if there is none."""
    ladder = rates.ladder
    found = highest_rung(ladder, lambda rung: sustains(rates.of_seed(rung, seed)), ladder.highest)
    return 0.0 if found.holds is None else ladder.rate(found.holds)


def _end(bracket: Bracket, highest: int) -> int:
    """The rung at which something no longer holds."""
    return highest if bracket.fails is None else bracket.fails


def _limits(rates: Rates, found: Bracket, agree: int) -> Row:
    """What keeps the rate from being higher, or that nothing was found."""
    row: Row = {}
    if found.fails is not None:
        row["limited_by"] = "; ".join(_failing(rates, found.fails, agree))
    if found.holds is None:
        lowest = rates.ladder.rate(-rates.ladder.highest)
        reason = f"not met at any rate down to {lowest:g} requests/s: {row['limited_by']}"
        return row | {"status": "never", "reason": reason}
    if found.fails is None:
        reason = f"met at every rate up to {rates.ladder.rate(found.holds):g} requests/s"
        row |= {"status": "always", "reason": reason}
    return row


def _failing(rates: Rates, rung: int, agree: int) -> list[str]:
    """Which conditions too few seeds meet; all that any fails where it takes several of them."""
    points = rates.at(rung)
    tests: dict[str, Callable[[Point], bool]] = {
        objective.text: _test(objective) for objective in rates.sampling.objectives
    }
    tests[QUEUE] = lambda point: not point["diverges"]
    counts = {text: sum(map(test, points)) for text, test in tests.items()}
    alone = [text for text, count in counts.items() if count < agree]
    return alone or [text for text, count in counts.items() if count < len(points)]


def _test(objective: Objective) -> Callable[[Point], bool]:
    return lambda point: objective.holds(point[objective.name])


def _at_capacity(rates: Rates, found: Bracket, prices: Prices | None) -> Row:
    """What is measured at the rate that was found: means over the seeds."""
    row: Row = {"goodput_tokens_s": None, "num_fresh": 0, "num_fresh_sustaining": 0}
    row["sustaining_share_low"] = None
    if prices is not None:
        row["price_per_million_output_tokens"] = None
    if found.holds is None:
        return row
    points, fresh = rates.at(found.holds), rates.fresh(found.holds)
    count = sum(map(sustains, fresh))
    row |= {"num_sustaining": sum(map(sustains, points)), "num_fresh": len(fresh)}
    if fresh:
        share = share_low(count, len(fresh))
        row |= {"num_fresh_sustaining": count, "sustaining_share_low": share}
    for name in ("goodput_tokens_s", "num_waiting_mean", "preemptions_per_request"):
        row[name] = _mean(points, name)
    for objective in rates.sampling.objectives:
        row[objective.name] = _mean(points, objective.name)
    if prices is not None and row["goodput_tokens_s"] is not None:
        row["price_per_million_output_tokens"] = prices.of_million(row["goodput_tokens_s"])
    return row


def share_low(count: int, total: int) -> float:
    """The least share of runs that meet something, with 95 % confidence, if count of total do.

    Clopper and Pearson's one-sided bound: the share at which so many would be seen 1 time in 20.
    """
    if count == 0:
        return 0.0
    low, high = 0.0, 1.0
    for _ in range(60):
        share = (low + high) / 2
        tail = sum(
            math.comb(total, k) * share**k * (1 - share) ** (total - k)
            for k in range(count, total + 1)
        )
        low, high = (share, high) if tail < 1 - CONFIDENCE else (low, share)
    return low


def _goodput(rates: Rates, agree: int) -> Row:
    """The peak of the goodput, and from where on it falls."""
    by_rung = {rung: [p["goodput_tokens_s"] for p in ps] for rung, ps in rates.complete().items()}
    known = {rung: values for rung, values in by_rung.items() if not np.isnan(values).any()}
    row: Row = {
        "peak_goodput_tokens_s": None,
        "peak_rate_req_s": None,
        "thrashes_from_req_s": None,
        "lost_goodput_frac": None,
    }
    if not known:
        return row
    peak, falls, lost = thrashing(known, agree)
    return row | {
        "peak_goodput_tokens_s": float(np.mean(known[peak])),
        "peak_rate_req_s": rates.ladder.rate(peak),
        "thrashes_from_req_s": None if falls is None else rates.ladder.rate(falls),
        "lost_goodput_frac": lost,
    }


def thrashing(goodput: Mapping[int, Sequence[float]], agree: int) -> tuple[int, int | None, float]:
    """Where goodput, by rung one value a seed, has its peak, and from where on it has fallen.

    The latter is None if it does not fall by 5 %. Last, the largest loss beyond the peak, as a
    share of it.
    """
    means = {rung: float(np.mean(values)) for rung, values in goodput.items()}
    peak = max(means, key=lambda rung: means[rung])
    beyond = [rung for rung in sorted(means) if rung > peak]
    keep = 1 - LOST_FRAC

    def has_fallen(rung: int) -> bool:
        pairs = zip(goodput[rung], goodput[peak], strict=True)
        lower = sum(there <= keep * best for there, best in pairs)
        return means[rung] <= keep * means[peak] and lower >= agree

    falls = next((rung for rung in beyond if has_fallen(rung)), None)
    lost = max((1 - means[rung] / means[peak] for rung in beyond), default=0.0)
    return peak, falls, lost


def _mean(points: Sequence[Point], name: str) -> float | None:
    """The mean over seeds; None if it is not a finite number."""
    value = float(np.mean([point[name] for point in points]))
    return value if math.isfinite(value) else None
