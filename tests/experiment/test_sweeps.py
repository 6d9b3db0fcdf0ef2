"""The forms of a sweep, and the combinations in it that cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiment_files import BOTH, HEAD, INLINE, PAGED, SHAREGPT, errors_of, ids, load
from sim.config.sampling import RangeKeys, SampleKeys, draw
from sim.runs.outcome import run_and_write
from sim.runs.runner import RunOptions

RATE, SIZE, CAP = "workload.arrivals.rate", "allocator.block_size", "scheduler.max_num_seqs"


def cells(folder: Path, sweep: str, allocators: str = PAGED, *keys: str) -> list[tuple[Any, ...]]:
    """The values of keys in every run of a sweep."""
    runs = load(folder, HEAD + SHAREGPT + allocators + f"sweep: {sweep}\n").runs()
    return [tuple(spec.cells[key] for key in keys) for spec in runs]


def test_zipped_keys_take_their_values_together(tmp_path: Path) -> None:
    sweep = f"{{{SIZE}: [8, 16], zip: {{{RATE}: [1, 2, 3], {CAP}: [4, 5, 6]}}}}"
    pairs = [(1, 4), (2, 5), (3, 6)]
    assert cells(tmp_path, sweep, PAGED, SIZE, RATE, CAP) == [
        (size, *pair) for size in (8, 16) for pair in pairs
    ]


def test_listed_points_are_run_as_they_are(tmp_path: Path) -> None:
    sweep = f"{{list: [{{{RATE}: 1, {CAP}: 4}}, {{{CAP}: 5, {RATE}: 1}}]}}"
    assert cells(tmp_path, sweep, PAGED, RATE, CAP) == [(1, 4), (1, 5)]


def test_an_allocator_without_a_key_of_a_form_has_each_of_the_other_values_once(
    tmp_path: Path,
) -> None:
    sweep = f"{{zip: {{{RATE}: [1, 1, 2], {SIZE}: [8, 16, 16]}}}}"
    assert cells(tmp_path, sweep, BOTH, "allocator", RATE, SIZE) == [
        ("contiguous", 1, None),
        ("contiguous", 2, None),
        ("paged", 1, 8),
        ("paged", 1, 16),
        ("paged", 2, 16),
    ]


def test_engines_may_be_zipped(tmp_path: Path) -> None:
    sweep = f"{{zip: {{engine: [vllm-0.2, orca-max], {CAP}: [4, 8]}}}}\n"
    experiment = load(tmp_path, HEAD + SHAREGPT + f"sweep: {sweep}")
    assert ids(experiment) == [
        "paged_cow-engine=vllm-0.2-max_num_seqs=4-seed=0",
        "contiguous-engine=orca-max-max_num_seqs=8-seed=0",
    ]


@pytest.mark.parametrize("form", ["random", "latin_hypercube"])
def test_drawn_points_are_the_same_for_a_seed_and_within_their_ranges(
    tmp_path: Path, form: str
) -> None:
    keys = f"{RATE}: {{min: 0.5, max: 8, scale: log}}, {CAP}: {{min: 1, max: 9, whole: true}}"

    def drawn(seed: int, more: str = "") -> list[tuple[Any, ...]]:
        sweep = f"{{{form}: {{num_points: 30, seed: {seed}, keys: {{{keys}{more}}}}}}}"
        return cells(tmp_path, sweep, PAGED, RATE, CAP)

    points = drawn(7)
    assert points == drawn(7) != drawn(8)
    assert points == drawn(7, f", {SIZE}: [8, 16]")  # another key changes nothing
    assert len(points) == 30
    assert all(0.5 <= rate <= 8 and 1 <= cap <= 9 for rate, cap in points)
    assert {type(cap) for _, cap in points} == {int}


def test_points_that_were_drawn_twice_are_run_once_and_it_is_said(tmp_path: Path) -> None:
    sweep = f"{{random: {{num_points: 9, keys: {{{SIZE}: [8, 16]}}}}}}\n"
    experiment = load(tmp_path, HEAD + SHAREGPT + PAGED + f"sweep: {sweep}")
    assert sorted(spec.cells[SIZE] for spec in experiment.runs()) == [8, 16]
    line = "sweep         random: 9 points drawn, 2 of them different"
    assert line in experiment.budget_lines()


@given(
    low=st.floats(1e-3, 1e3),
    factor=st.floats(1.01, 1e4),
    scale=st.sampled_from(["linear", "log"]),
    num_points=st.integers(1, 40),
    seed=st.integers(0, 9),
)
def test_a_latin_hypercube_has_one_value_in_each_part_of_a_range(
    low: float, factor: float, scale: str, num_points: int, seed: int
) -> None:
    high = low * factor
    sample = SampleKeys(num_points=num_points, seed=seed, keys={})
    spec = {"min": low, "max": high, "scale": scale}
    drawn = draw(("latin_hypercube", "k"), sample, spec, (), pytest.fail)
    assert drawn is not None
    values = pd.Series(sorted(drawn), dtype=float)
    assert values.between(low, high).all()
    edges = [i / num_points for i in range(num_points + 1)]
    ends = [low + (high - low) * e if scale == "linear" else low * factor**e for e in edges]
    slack = 1e-5 * high  # of six digits
    assert all(values.to_numpy() >= pd.Series(ends[:-1]).to_numpy() - slack)
    assert all(values.to_numpy() <= pd.Series(ends[1:]).to_numpy() + slack)


@pytest.mark.parametrize("form", ["random", "latin_hypercube"])
def test_whole_numbers_are_equally_likely_from_end_to_end(form: str) -> None:
    sample = SampleKeys(num_points=3000, seed=1, keys={})
    spec = RangeKeys(min=1, max=3, whole=True).model_dump()
    drawn = draw((form, "k"), sample, spec, (), pytest.fail)
    assert drawn is not None
    assert all(900 < drawn.count(value) < 1100 for value in (1, 2, 3))


ERRORS = {
    "zip: [1]": "x.yaml:7: sweep.zip: must be a mapping like ",
    f"zip: {{{RATE}: [1, 2], {CAP}: [1]}}": (
        f"x.yaml:7: sweep.zip: must have as many values of each key, got {RATE} 2, {CAP} 1"
    ),
    f"zip: {{{RATE}: 1}}": f"x.yaml:7: sweep.zip.{RATE}: must be a list of at least one value",
    f"{RATE}: [1, 1.0]": f"x.yaml:7: sweep.{RATE}: has a value twice",
    f"{RATE}: [1, 2]\n  workload.arrivals: [{{kind: poisson, rate: 3}}]": (
        f"x.yaml:7: sweep.{RATE}.0: is undone by workload.arrivals below it; write that one first"
    ),
    "list: [{workload.arrivals: {kind: poisson, rate: 1}}, "
    "{workload.arrivals: {rate: 1.0, kind: poisson}}]": (
        "x.yaml:7: sweep.list.1: is a point that was there before"
    ),
    f"zip: {{{RATE}: [2, 2]}}": f"x.yaml:7: sweep.zip.{RATE}.1: is a point that was there before",
    "zip: {seeds: [1]}": "x.yaml:7: sweep.zip.seeds: cannot be swept; accepted: engine, ",
    f"zip: {{{CAP}: [1, 0]}}": f"x.yaml:7: sweep.zip.{CAP}.1: 0: must be at least 1, got 0",
    f"zip: {{{RATE}: [1, 2]}}\n  {RATE}: [3]": f"x.yaml:8: sweep.{RATE}.0: is swept twice, also in",
    "zip: {allocator.block_sze: [1]}": (
        "x.yaml:7: sweep.zip.allocator.block_sze: no allocator here has it, did you mean block_size"
    ),
    f"list: {{{RATE}: 1}}": "x.yaml:7: sweep.list: must be a list of points like ",
    f"list: [{{{RATE}: 1}}, {{{CAP}: 1}}]": (
        f"x.yaml:7: sweep.list.1: must have the keys of the first: {RATE}"
    ),
    f"list:\n    - {{{RATE}: 1}}\n    - {{{RATE}: 1}}": (
        "x.yaml:9: sweep.list.1: is a point that was there before"
    ),
    f"list:\n    - {{{RATE}: 1}}\n    - {{{RATE}: -1}}": (
        f"x.yaml:9: sweep.list.1.{RATE}: -1: must be above 0"
    ),
    "random: 3": "x.yaml:7: sweep.random: must be a mapping like ",
    "random: {num_points: 3}": "x.yaml:7: sweep.random.keys: is required",
    f"random: {{keys: {{{RATE}: [1]}}}}": "x.yaml:7: sweep.random.num_points: is required",
    f"random: {{num_points: 0, keys: {{{RATE}: [1]}}}}": (
        "x.yaml:7: sweep.random.num_points: must be at least 1, got 0"
    ),
    f"random: {{num_points: 1, sed: 2, keys: {{{RATE}: [1]}}}}": (
        "x.yaml:7: sweep.random.sed: unknown key, did you mean seed; accepted: num_points, "
    ),
    f"random: {{num_points: 1, keys: {{{RATE}: 1}}}}": (
        f"x.yaml:7: sweep.random.keys.{RATE}: must be a list of values, or a range like "
    ),
    f"random: {{num_points: 1, keys: {{{RATE}: {{min: 2, max: 1}}}}}}": (
        f"x.yaml:7: sweep.random.keys.{RATE}.max: must be above min 2, got 1"
    ),
    f"random: {{num_points: 1, keys: {{{RATE}: {{min: 0, max: 1, scale: log}}}}}}": (
        f"x.yaml:7: sweep.random.keys.{RATE}.min: must be above 0 on a log scale, got 0"
    ),
    f"random: {{num_points: 1, keys: {{{CAP}: {{min: 0.5, max: 2, whole: true}}}}}}": (
        f"x.yaml:7: sweep.random.keys.{CAP}.whole: needs a min and a max that are whole"
    ),
    f"latin_hypercube:\n    num_points: 9\n    keys:\n      {CAP}: {{min: 1, max: 2}}": (
        f"x.yaml:10: sweep.latin_hypercube.keys.{CAP}: 1."
    ),
    f"latin_hypercube: {{num_points: 1, keys: {{{RATE}: {{min: 1, max: 2, scale: lg}}}}}}": (
        f"x.yaml:7: sweep.latin_hypercube.keys.{RATE}.scale: unknown value 'lg', did you mean log"
    ),
}


@pytest.mark.parametrize("sweep", ERRORS)
def test_an_error_of_a_form_names_key_line_and_value(tmp_path: Path, sweep: str) -> None:
    lines = errors_of(tmp_path, HEAD + SHAREGPT + PAGED + f"sweep:\n  {sweep}\n")
    assert len(lines) == 1
    assert lines[0].startswith(ERRORS[sweep]), lines


def test_a_block_larger_than_the_pool_is_a_row_with_its_reason(tmp_path: Path) -> None:
    text = HEAD + SHAREGPT + BOTH + f"sweep: {{{SIZE}: [8, 512]}}\nseeds: 2\nfigures: [waste]\n"
    experiment = load(tmp_path, text)
    reason = "allocator.block_size: a block of 512 slots is larger than the pool of 256"
    assert ids(experiment)[-1] == "paged-block_size=512-seed=0"
    assert [spec.skip for spec in experiment.runs()] == [""] * 4 + [reason]
    assert f"warning       skipped: {reason}" in experiment.budget_lines()
    outcome = run_and_write(experiment, tmp_path / "out", RunOptions())
    assert outcome.problems == []
    table = pd.read_csv(tmp_path / "out/summary.csv")
    assert table["status"].tolist() == ["finished"] * 4 + ["skipped"]
    assert (table["reason"].iloc[-1], table[SIZE].iloc[-1]) == (reason, 512)


@pytest.mark.parametrize(
    ("sweep", "reason"),
    [
        (
            "kv_cache.num_slots: [8, 64]",
            "allocator.block_size: a block of 16 slots is larger than the pool of 8",
        ),
        (
            "scheduler: [{kind: sglang}, {kind: fcfs}]",
            "scheduler: sglang admits by what a radix tree holds",
        ),
        (
            "workload.max_tokens: [column, 64]",
            "workload.max_tokens: sharegpt",
        ),
    ],
)
def test_what_does_not_go_together_is_skipped_and_the_sweep_goes_on(
    tmp_path: Path, sweep: str, reason: str
) -> None:
    first, second = load(tmp_path, HEAD + SHAREGPT + PAGED + f"sweep: {{{sweep}}}\n").runs()
    assert first.skip.startswith(reason), first.skip
    assert second.skip == ""


def test_a_model_that_does_not_fit_on_a_device_is_skipped(tmp_path: Path) -> None:
    text = "name: example\nmodel: llama-3-70b\n" + SHAREGPT + PAGED
    sweep = "sweep: {device: [a100-40gb, b200], tensor_parallel_size: [1, 4]}\n"
    runs = load(tmp_path, text + sweep).runs()
    assert [bool(spec.skip) for spec in runs] == [True, False, False, False]
    assert runs[0].run_id == "paged-device=a100-40gb-tensor_parallel_size=1-seed=0"
    assert "weights" in runs[0].skip


def test_a_wrong_value_of_a_sweep_stays_an_error(tmp_path: Path) -> None:
    lines = errors_of(tmp_path, HEAD + INLINE + PAGED + f"sweep: {{{SIZE}: [8, 512, 0]}}\n")
    assert [line.partition(": must")[0] for line in lines] == [f"x.yaml:10: sweep.{SIZE}.2: 0"]


def test_an_allocator_that_fits_nowhere_in_a_sweep_is_an_error(tmp_path: Path) -> None:
    allocators = "allocator: [{kind: paged, block_size: 512}, {kind: paged}]\n"
    lines = errors_of(tmp_path, HEAD + INLINE + allocators + f"sweep: {{{CAP}: [1, 2]}}\n")
    assert lines == [
        "x.yaml:9: allocator.0.block_size: a block of 512 slots is larger than the pool of 256"
    ]
