"""What a caller gets wrong is one sentence in a documented exception, and nothing has changed."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sim
from workloads.azure import Azure

NO_NUMBERS: list[Any] = [-3, 2**70, math.nan, 1.5, True, "3", np.float64(2.0), np.ones(2), [1], {}]
PAGED = {"kind": "paged", "block_size": 4}


def pool(kind: str = "paged_cow") -> sim.Pool:
    return sim.Pool({"kind": kind, "block_size": 4}, num_slots=128, max_model_len=64)


def state_of(used: sim.Pool) -> tuple[Any, ...]:
    used.check()
    return used.usage(), used.rows.tolist(), list(used.held), list(used.sequences._unused)


@pytest.fixture(scope="module")
def trace() -> sim.Trace:
    return sim.Trace(np.array([0, 5]), np.array([10, 11]), np.array([3, 4]))


ROW_METHODS = ("admit", "write", "fork", "leave", "num_tokens", "num_slots", "waste", "block_table")
Use = Callable[[sim.Pool, int], object]
WRONG_USES: dict[str, tuple[Use, str]] = {
    "admit twice": (lambda it, row: it.admit(row), "row 0 has been admitted already"),
    "leave twice at once": (lambda it, row: it.leave(row, row), "names a row twice"),
    "write a row twice": (lambda it, row: it.write_each([row, row]), "names a row twice"),
    "write what is waiting": (lambda it, row: it.write(1), "row 1 has not been admitted"),
    "fork what is waiting": (lambda it, row: it.fork(1), "row 1 has not been admitted"),
    "write past the end": (lambda it, row: it.write(row, 20), "has 19 tokens to write, not 20"),
    "end another": (lambda it, row: it.fork_each([row], [9]), "row 9 is not in the pool"),
    "end an unlike one": (lambda it, row: it.fork_each([row], [2]), "not of one request"),
    "write to none": (lambda it, row: it.write_each(row), "rows: 0 is no list"),  # type: ignore[arg-type]
    "too long a prompt": (lambda it, row: it.enter(64), "a whole number from 1 to 63, got 64"),
    "no output": (lambda it, row: it.enter(5, 0), "output: must be a whole number from 1"),
    "unknown request": (lambda it, row: it.enter_known(0), "no request is known"),
    "know too late": (lambda it, row: it.know([[(1, 0, 3)]], [1]), "the pool has been used"),
}


@pytest.mark.parametrize("use", WRONG_USES)
def test_a_wrong_use_of_a_pool_is_a_sentence_and_changes_nothing(use: str) -> None:
    used = pool()
    row = used.enter(10, 20)
    assert row == 0
    assert (used.open(5, 3), used.enter(7)) == (1, 2)
    before = state_of(used)
    act, sentence = WRONG_USES[use]
    with pytest.raises(ValueError, match=sentence):
        act(used, row)
    assert state_of(used) == before


@pytest.mark.parametrize("value", NO_NUMBERS, ids=repr)
def test_what_is_no_number_is_refused_by_every_method_of_a_pool(value: Any) -> None:
    used = pool()
    row = used.enter(10, 20)
    before = state_of(used)
    calls: list[Callable[[], object]] = [
        lambda m=name: getattr(used, m)(value) for name in ROW_METHODS
    ]
    calls += [lambda: used.write(row, value), lambda: used.fork(row, value)]
    calls += [lambda: used.enter(value), lambda: used.enter(5, value)]
    calls += [lambda: used.enter(5, 5, value), lambda: used.write_each([row, value])]
    for call in calls:
        with pytest.raises(ValueError, match=r"must be a whole number from|is not in the pool"):
            call()
    assert state_of(used) == before
    with pytest.raises(sim.ConfigError, match="num_slots: must be a whole number from 1"):
        sim.Pool(PAGED, value)
    with pytest.raises(sim.ConfigError, match="max_model_len: must be a whole number from 1"):
        sim.Pool(PAGED, 128, value)


def test_rows_end_once_and_what_did_not_fit_leaves_nothing() -> None:
    used = sim.Pool(PAGED, num_slots=16, max_model_len=64)
    empty = state_of(used)
    assert used.enter(30, 5) is None
    assert state_of(used)[0] == empty[0]
    row = used.enter(15, 9)
    assert row is not None
    assert used.write_each([row])
    cells = used.rows[row].tolist()
    assert not used.write(row, 3)
    assert not used.write_each([row])
    assert used.rows[row].tolist() == cells
    used.leave(row)
    for again in (used.leave, used.write, used.fork, used.block_table, used.admit):
        with pytest.raises(ValueError, match=r"row 0 is not in the pool; no row holds|fork"):
            again(row)
    opened = used.open(3, 3)
    used.leave(opened)
    assert (used.enter(3), used.enter(3)) == (0, 1), "a row was given back twice"


def test_requests_of_a_pool_share_nothing_unless_it_knows_what_they_are() -> None:
    """Two prompts were taken for one request's, and found each other's blocks."""
    used = sim.Pool({"kind": "prefix", "block_size": 4}, num_slots=128, max_model_len=64)
    assert (used.enter(9, 3), used.enter(9, 3)) == (0, 1)
    assert used.table()["ref_count"].tolist() == [1] * 6
    known = sim.Pool({"kind": "prefix", "block_size": 4}, num_slots=128, max_model_len=64)
    known.know([[(1, 0, 9)], [(1, 0, 9)]], [3, 3])
    known.enter_known(0)
    known.enter_known(1)
    assert known.table()["ref_count"].tolist() == [2, 2, 1, 2, 2, 1]
    with pytest.raises(ValueError, match="the pool knows all its requests; accepted: open_known"):
        known.enter(9)
    with pytest.raises(ValueError, match="request: must be a whole number from 0 to 1, got 2"):
        known.enter_known(2)


@pytest.mark.parametrize(
    ("prompts", "outputs", "sentence"),
    [
        ([], [], "outputs: must be as many as prompts, 0, and at least 1"),
        ([[(1, 0, 5)]], [1, 2], "outputs: must be as many as prompts, 1"),
        ([[(1, 0, 5)]], ["a"], "outputs: must be a whole number from 1"),
        ([[(1, 0, -5)]], [1], "prompts.0: must be a whole number from 1"),
        ([[(-1, 0, 5)]], [1], "prompts.0: must be a whole number from 0"),
        ([[(1, 0)]], [1], r"prompts.0: \(1, 0\) is no run; accepted: \(source, start, length\)"),
        ([[(1, 0, 500)]], [1], "prompts.0: must be a whole number from 1 to 63, got 500"),
        ([[]], [1], "prompts.0: must be a whole number from 1 to 63, got 0"),
        (None, [1], "prompts: null is no list"),
    ],
)
def test_wrong_content_is_named_and_not_known(prompts: Any, outputs: Any, sentence: str) -> None:
    used = pool("prefix")
    with pytest.raises(ValueError, match=sentence):
        used.know(prompts, outputs)
    used.know([[(1, 0, 5)]], [1])


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"source": None}, "a trace's source is None; accepted: text"),
        ({"notes": 5}, "memory: notes is a int; accepted: a Mapping"),
        ({"content": [1]}, "memory: content is a list; accepted: a Content"),
        ({"beam_parents": [1]}, "memory: beam_parents is a list; accepted: a Mapping"),
        ({"arrival_ns": None}, "memory: arrival_ns is missing; accepted: integers"),
        ({"prompt_tokens": None}, "memory: prompt_tokens is missing"),
        ({"output_tokens": [1.5]}, "memory: output_tokens holds float64; accepted: integers"),
    ],
)
def test_what_makes_no_trace_is_named(change: dict[str, Any], sentence: str) -> None:
    columns = {name: [1] for name in ("arrival_ns", "prompt_tokens", "output_tokens")}
    with pytest.raises(sim.TraceError, match=f"^{sentence}"):
        sim.Trace(**(columns | change))


def test_a_trace_is_written_whole_or_not_at_all(
    trace: sim.Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "t.parquet"
    sim.write_trace(trace, target)
    before = target.read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["t.parquet"]

    def interrupted(written: sim.Trace, path: Path) -> None:
        path.write_bytes(before[:100])
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("sim.library.tables.write_canonical", interrupted)
        with pytest.raises(KeyboardInterrupt):
            sim.write_trace(trace, target)
    assert target.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["t.parquet"]
    for path, sentence in (
        (tmp_path / "no" / "t.parquet", "no is no folder"),
        (tmp_path, "not a file; accepted"),
        (Path("/dev/null"), "not a file; accepted"),
    ):
        with pytest.raises(sim.TraceError, match=f"cannot be written: .*{sentence}"):
            sim.write_trace(trace, path)
    for wrong in (None, 3, b"x", "a\0b", []):
        with pytest.raises(sim.ConfigError, match=r"^path: .* is no path; accepted: the path of a"):
            sim.write_trace(trace, wrong)  # type: ignore[arg-type]
        with pytest.raises(sim.ConfigError, match=r"^path: .* is no path; accepted: the path of a"):
            sim.read_trace(wrong)  # type: ignore[arg-type]
    with pytest.raises(sim.ConfigError, match=r"^trace: {} is a dict; accepted: a Trace"):
        sim.write_trace({}, target)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"kind": 3}, "kind: must be the name of a format, got 3"),
        (
            {"kind": "sharegpt"},
            "kind: sharegpt is no format of trace files, but draws its requests",
        ),
        ({"kind": "table", "limit": {}}, "limit: must be a whole number, at least 1, got {}"),
        ({"limit": object()}, "limit: <object"),
    ],
)
def test_a_wrong_option_of_a_trace_file_is_named(
    options: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,7,2\n1,8,3\n")
    with pytest.raises(sim.ConfigError, match=f"^{sentence}"):
        sim.read_trace(tmp_path / "t.csv", **options)
    assert len(sim.read_trace(tmp_path / "t.csv", limit=np.int64(1))) == 1
    with pytest.raises(sim.TraceError, match="no column TIMESTAMP"):
        sim.read_trace(tmp_path / "t.csv", Azure)


@pytest.mark.parametrize("value", [*NO_NUMBERS, None], ids=repr)
def test_what_is_no_number_is_refused_by_the_capacity_table(value: Any) -> None:
    named = {"block_size", "activation_bytes", "non_torch_bytes", "dtype", "kv_cache_dtype"}
    cases = [{name: value} for name in named | {"gpu_memory_utilization", "max_model_len"}]
    if value is None:
        cases.remove({"max_model_len": None})  # the model's own
    cases += [{"tensor_parallel_sizes": [value]}, {"lengths": [value]}]
    for case in cases:
        with pytest.raises(sim.ConfigError, match=next(iter(case))):
            sim.capacity_table("llama-3-8b", "h100", **case)


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (None, "is no list; accepted: a name, a mapping, or a list of them"),
        ([], "a name is missing; accepted: at least one"),
        (["llama-3-8b", None], "a name is missing"),  # was left out without a word
        ([3], "unknown model 3"),
    ],
)
def test_names_that_are_none_are_no_models(names: Any, sentence: str) -> None:
    with pytest.raises(sim.ConfigError, match=sentence):
        sim.capacity_table(names, "h100")


@pytest.mark.parametrize("value", [3, None, [1], np.ones(2)], ids=repr)
def test_what_is_no_name_or_no_flag_is_refused(value: Any, trace: sim.Trace) -> None:
    if value is not None:
        with pytest.raises(sim.ConfigError, match="table: unknown table"):
            sim.available(value)
    with pytest.raises(sim.ConfigError, match="check: must be true or false, got"):
        sim.simulate(trace, PAGED, 128, check=value)
    with pytest.raises(sim.ResultsError, match="unknown figure"):
        sim.read(Path(__file__).parents[2] / "results" / "worked_example").figure(value)


@pytest.mark.parametrize("key", ["num_slots", "max_model_len", "max_tokens"])
def test_a_number_that_no_column_holds_is_refused(key: str, trace: sim.Trace) -> None:
    with pytest.raises(sim.ConfigError, match=f"{key}: must be a whole number from 1 to"):
        sim.simulate(trace, PAGED, **{"num_slots": 128, key: 2**70})


def test_a_prompt_that_is_refused_wants_no_output() -> None:
    """It wanted less than none: -2952 tokens."""
    long = sim.Trace(np.array([0]), np.array([5000]), np.array([3]))
    assert sim.simulate(long, PAGED, 128).requests["wanted_output_tokens"].tolist() == [0]


@pytest.mark.parametrize("kind", ["radix", "mini_sglang", "prefix", "paged"])
def test_a_block_table_names_every_block(kind: str) -> None:
    """Neighbouring blocks of a radix tree were one, with the number of another."""
    used = pool(kind)
    rows = [used.enter(10, 20), used.enter(9, 5)]
    first = 1 if kind == "prefix" else 0  # behind the null block
    expected = [list(range(first, first + 3)), list(range(first + 3, first + 6))]
    assert [used.block_table(row) for row in rows if row is not None] == expected
    assert used.table()["num_written"].tolist() == [4, 4, 2, 4, 4, 1]


@pytest.mark.parametrize("seconds", [math.nan, -1.0, math.inf, "x", None, True])
def test_what_is_no_time_ends_a_run_with_a_sentence(seconds: Any, trace: sim.Trace) -> None:
    """Not a number was taken for a nanosecond."""

    class Odd(sim.CostModel):
        kind = "odd"
        source = "assumed"

        def iteration_s(self, batch: Any) -> Any:
            return seconds

    with pytest.raises(ValueError, match=r"^odd: iteration_s gives .*; accepted: seconds from 0"):
        sim.simulate(trace, PAGED, 128, cost=Odd())
