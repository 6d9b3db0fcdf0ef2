"""One run's point, from tables small enough to count in."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sim.slo.capacity import share_low, thrashing
from sim.slo.objectives import read_objectives
from sim.slo.steady import goodput_tokens_s, measure, num_with_warm_up

ROW = {"status": "finished", "num_recomputed_tokens": 0, "num_preemptions": 0}
OBJECTIVES = read_objectives("mean ttft < 1 s, mean tpot < 1 s, mean e2e < 9 s")


def requests(count: int = 10, **columns: Any) -> pd.DataFrame:
    """A request a second; the first token after 0.5 s, then 4 more in 2 s."""
    arrival = np.arange(count, dtype=float)
    table: dict[str, Any] = {
        "arrival_s": arrival,
        "prompt_tokens": 7,
        "output_tokens": 5,
        "first_token_s": arrival + 0.5,
        "finish_s": arrival + 2.5,
        "status": "finished",
    }
    return pd.DataFrame({**table, **columns})


def timeline(waiting: list[float]) -> pd.DataFrame:
    return pd.DataFrame(
        {"start_s": np.arange(len(waiting)), "width_s": 1.0, "num_waiting": waiting}
    )


def point(table: pd.DataFrame, waiting: list[float] | None = None, **row: Any) -> dict[str, Any]:
    return measure({**ROW, **row}, table, timeline(waiting or [0.0] * len(table)), OBJECTIVES)


def test_latencies_are_those_after_the_warm_up() -> None:
    table = requests()
    table.loc[:1, "first_token_s"] += 100  # the first fifth is forgotten
    got = point(table)
    assert got["num_measured"] == 8
    assert got["ttft_s_mean"] == 0.5
    assert got["tpot_s_mean"] == 0.5
    assert got["e2e_s_mean"] == 2.5
    assert got["meets"]


def test_who_never_finishes_has_waited_for_ever_and_who_is_too_long_is_left_out() -> None:
    table = requests()
    table.loc[9, ["first_token_s", "finish_s"]] = math.nan
    table.loc[9, "status"] = "rejected"
    got = point(table)
    assert (got["num_measured"], got["num_left_out"]) == (7, 1)
    assert got["meets"]
    table.loc[9, "status"] = "unfinished"
    got = point(table)
    assert got["num_left_out"] == 0
    assert got["e2e_s_mean"] == got["tpot_s_mean"] == math.inf
    assert not got["meets"]


def test_a_run_that_stalled_meets_nothing() -> None:
    assert not point(requests(), status="stalled")["meets"]


def test_an_output_of_one_token_has_no_tpot() -> None:
    table = requests(output_tokens=1)
    assert math.isnan(point(table)["tpot_s_mean"])
    assert point(table)["meets"]


def test_the_queues_growth_is_the_slope_times_the_time() -> None:
    table = requests(101)
    start = 21.0  # the first of 101 requests after the warm-up
    waiting = [0.3 * second for second in range(101)]
    got = point(table, waiting)
    assert got["waiting_growth"] == pytest.approx(0.3 * (100 - start))
    assert got["num_waiting_mean"] == pytest.approx(0.3 * (start + 99) / 2)
    assert got["diverges"]  # 23.7 > 2 x sqrt(80) = 17.9
    assert not point(table, [0.2 * second for second in range(101)])["diverges"]
    assert not point(table, [500.0] * 101)["diverges"]


def test_goodput_is_counted_between_finishes() -> None:
    """Of ten finishes a second apart, those after the third and up to the ninth."""
    assert goodput_tokens_s(requests()) == 5.0
    late = requests()
    late["arrival_s"] = 0.0  # all at once: only finishes count
    assert goodput_tokens_s(late) == 5.0
    assert math.isnan(goodput_tokens_s(requests(finish_s=math.nan)))
    assert math.isnan(goodput_tokens_s(requests(finish_s=3.0)))


def test_tokens_computed_again_are_a_share_of_all_that_were() -> None:
    got = point(requests(), num_recomputed_tokens=30, num_preemptions=5)
    assert got["recomputed_tokens_frac"] == 30 / (120 + 30)
    assert got["preemptions_per_request"] == 0.5


@pytest.mark.parametrize("measured", [1, 199, 200, 2000, 12_345])
def test_enough_requests_are_left_after_the_warm_up(measured: int) -> None:
    total = num_with_warm_up(measured)
    assert total - math.ceil(total / 5) == measured


def test_the_share_of_seeds_is_clopper_and_pearsons() -> None:
    """All of n: the bound is 0.05^(1/n), by hand; else the 5 % quantile of beta(k, n - k + 1)."""
    assert share_low(5, 5) == pytest.approx(0.05 ** (1 / 5))
    assert share_low(4, 5) == pytest.approx(0.3426, abs=1e-4)
    assert share_low(8, 10) == pytest.approx(0.4931, abs=1e-4)
    assert share_low(0, 5) == 0.0


def test_goodput_that_falls_in_enough_seeds_is_thrashing() -> None:
    rising = {0: [1.0, 1.0], 1: [2.0, 2.0], 2: [1.98, 1.95]}
    assert thrashing(rising, 2) == (1, None, pytest.approx(1 - 1.965 / 2))
    assert thrashing({**rising, 3: [1.9, 1.7], 4: [1.0, 1.0]}, 2) == (1, 3, 0.5)
    assert thrashing({**rising, 3: [2.0, 1.0]}, 2)[1] is None  # in one seed of two
    assert thrashing({**rising, 3: [2.0, 1.0]}, 1)[1] == 3
    assert thrashing({0: [1.0]}, 1) == (0, None, 0.0)
