"""Workloads at another rate: the same requests, the same pattern, other times."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.stretch import Stretch
from workloads.trace import TraceError

GENERATED = {
    "kind": "synthetic",
    "num_requests": 60,
    "arrivals": {"kind": "gamma", "rate": 3.0, "cv": 2.0},
    "prompt_tokens": {"kind": "uniform", "low": 1, "high": 1000},
    "output_tokens": 5,
    "prefix": [7],
}
CHAT = {**GENERATED, "turns": {"kind": "chat", "count": 3, "think_s": 1.0}}


def file_of(folder: Path, *seconds: float) -> dict[str, object]:
    path = folder / "requests.csv"
    rows = [f"{second},{10 + row},5" for row, second in enumerate(seconds)]
    path.write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", *rows]) + "\n")
    return {"kind": "table", "path": str(path)}


def test_gaps_are_all_longer_or_shorter_by_one_factor(tmp_path: Path) -> None:
    """Five requests with gaps of 1, 1, 4 and 2 s have half a request a second; here two."""
    trace = Stretch(file_of(tmp_path, 3, 4, 5, 9, 11), rate=2.0).load(0)
    assert trace.arrival_ns.tolist() == [0, 250_000_000, 500_000_000, 1_500_000_000, 2_000_000_000]
    assert trace.prompt_tokens.tolist() == [10, 11, 12, 13, 14]


@given(st.integers(0, 5), st.floats(0.01, 1000), st.integers(2, 70))
def test_a_window_is_requests_in_a_row_at_the_rate_that_is_asked(
    seed: int, rate: float, count: int
) -> None:
    whole = Stretch(GENERATED, rate).load(seed)
    part = Stretch(GENERATED, rate, count).load(seed)
    kept = min(count, 60)
    assert len(part) == kept
    prompts = whole.prompt_tokens.tolist()
    mine = part.prompt_tokens.tolist()
    places = [i for i in range(61 - kept) if prompts[i : i + kept] == mine]
    assert places
    span_s = part.arrival_ns[-1] / 1e9
    assert part.arrival_ns[0] == 0
    assert (kept - 1) / span_s == pytest.approx(rate, rel=1e-6)
    assert np.all(np.diff(part.arrival_ns) >= 0)
    assert part.content is not None
    assert sum(part.notes.values()) >= 60 - kept  # what is cut is counted


def test_seeds_draw_other_windows_and_the_same_seed_the_same(tmp_path: Path) -> None:
    workload = file_of(tmp_path, *range(1000))
    loaded = [Stretch(workload, 1.0, 10).load(seed) for seed in (0, 1, 2, 2)]
    first = [trace.prompt_tokens[0] for trace in loaded]
    assert len(set(first[:3])) == 3
    assert loaded[2].digest() == loaded[3].digest()


def test_thinking_takes_as_long_as_before() -> None:
    trace = Stretch(CHAT, 100.0).load(0)
    plain = Stretch(CHAT, 1.0).load(0)
    assert trace.think_ns is not None
    assert plain.think_ns is not None
    assert trace.think_ns.tolist() == plain.think_ns.tolist()


def test_what_has_no_gaps_has_no_rate(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="all requests arrive at one time; a rate needs gaps"):
        Stretch(file_of(tmp_path, 2, 2, 2), 1.0).load(0)
    with pytest.raises(TraceError, match="a rate needs gaps"):
        Stretch(file_of(tmp_path, 1, 2, 3), 1.0, num_requests=1).load(0)
    with pytest.raises(TraceError, match="lasts more than 146 years"):
        Stretch(file_of(tmp_path, 1, 2, 3), 1e-10).load(0)


def test_wrong_parameters_are_named() -> None:
    with pytest.raises(ValueError, match="rate: must be above 0, got 0"):
        Stretch(GENERATED, 0)
    with pytest.raises(ValueError, match="num_requests: must be a whole number"):
        Stretch(GENERATED, 1, 0)
    with pytest.raises(ValueError, match=r"workload\.kind"):
        Stretch({"kind": "none"}, 1)
