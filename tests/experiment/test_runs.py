"""From a file to runs: expansion, names, resolved configuration, traces, keys."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from experiment_files import BOTH, HEAD, INLINE, PAGED, SHAREGPT, errors_of, ids, load
from sim.config.figure_keys import FIGURE_NAMES
from sim.config.naming import Names
from sim.engine.simulation import simulate
from sim.runs import outcome
from sim.sequence import FINAL_TOKENS, MAX_FINAL_TOKENS
from workloads.trace import Trace


def test_runs_come_in_the_order_allocators_sweep_seeds(tmp_path: Path) -> None:
    sweep = "sweep: {allocator.block_size: [8, 16], scheduler.max_num_seqs: [2, 4]}\nseeds: 2\n"
    assert ids(load(tmp_path, HEAD + SHAREGPT + BOTH + sweep)) == [
        f"{allocator}-max_num_seqs={cap}-seed={seed}"
        for allocator in ("contiguous", "paged-block_size=8", "paged-block_size=16")
        for cap in (2, 4)
        for seed in (0, 1)
    ]


def test_an_allocator_without_the_swept_key_gives_one_run_with_an_empty_cell(
    tmp_path: Path,
) -> None:
    runs = load(tmp_path, HEAD + INLINE + BOTH + "sweep: {allocator.block_size: [8, 16]}\n").runs()
    assert [spec.cells["allocator"] for spec in runs] == ["contiguous", "paged", "paged"]
    assert [spec.cells["allocator.block_size"] for spec in runs] == [None, 8, 16]


def test_parameters_that_differ_within_the_list_are_cells(tmp_path: Path) -> None:
    allocators = """\
allocator:
  - {kind: contiguous, reservation: pow2}
  - {kind: contiguous, reservation: oracle}
  - {kind: paged}
"""
    experiment = load(tmp_path, HEAD + INLINE + allocators)
    assert [spec.cells.get("allocator.reservation") for spec in experiment.runs()] == [
        "pow2",
        "oracle",
        None,
    ]
    assert ids(experiment) == [
        "contiguous-reservation=pow2-seed=0",
        "contiguous-reservation=oracle-seed=0",
        "paged-seed=0",
    ]
    assert list(experiment.runs()[0].cells) == [
        "experiment",
        "run",
        "seed",
        "allocator",
        "allocator.reservation",
    ]


def test_a_sweep_may_name_an_entry_of_a_list(tmp_path: Path) -> None:
    workload = SHAREGPT.replace("}}\n", "}, prefix: [{kind: shared, tokens: 8}]}\n")
    experiment = load(
        tmp_path, HEAD + workload + PAGED + "sweep: {workload.prefix.0.tokens: [8, 40]}\n"
    )
    swept = [spec.config["workload"]["prefix"][0]["tokens"] for spec in experiment.runs()]
    assert swept == [8, 40]
    (line,) = errors_of(
        tmp_path, HEAD + workload + PAGED + "sweep: {workload.prefix.1.tokens: [8]}\n"
    )
    assert line.startswith("x.yaml:6: sweep.workload.prefix.1.tokens.0: 8: cannot be set: ")


def test_every_default_is_filled_in(tmp_path: Path) -> None:
    config = load(tmp_path, HEAD + INLINE + PAGED).runs()[0].config
    assert config["allocator"] == {
        "kind": "paged",
        "block_size": 16,
        "watermark": 0.0,
        "reserve_max_tokens": False,
    }
    assert config["scheduler"] == {
        "kind": "fcfs",
        "max_num_seqs": 256,
        "max_num_batched_tokens": None,
        "enable_chunked_prefill": False,
    }
    assert config["cost"]["kind"] == "linear"
    assert config["workload"]["max_tokens"] == "output"
    assert config["seed"] == 0
    assert json.loads(json.dumps(config)) == config


def test_the_same_file_gives_the_same_runs(tmp_path: Path) -> None:
    text = HEAD + SHAREGPT + BOTH + "sweep: {allocator.block_size: [8, 16]}\nseeds: [7, 3]\n"
    assert load(tmp_path, text).runs() == load(tmp_path, text).runs()


def test_a_swept_parameter_reaches_the_parts(tmp_path: Path) -> None:
    sweep = """\
sweep:
  workload.arrivals.rate: [1, 8.0]
  kv_cache.num_slots: [128, 256]
  max_model_len: [32]
"""
    runs = load(tmp_path, HEAD + SHAREGPT + PAGED + sweep).runs()
    assert [spec.build()[2].num_slots for spec in runs] == [128, 256] * 2
    assert all(spec.build()[2].max_model_len == 32 for spec in runs)
    last = [spec.build()[0].arrival_ns[-1] for spec in runs]
    assert last[0] == pytest.approx(8 * last[2], rel=1e-6)
    assert runs[2].run_id == "paged-rate=8.0-num_slots=128-max_model_len=32-seed=0"


def test_a_swept_value_may_replace_a_whole_mapping(tmp_path: Path) -> None:
    sweep = "sweep: {cost: [{kind: constant, seconds: 0.5}, {kind: linear}]}\n"
    experiment = load(tmp_path, HEAD + INLINE + PAGED + sweep)
    assert experiment.cost_source == "constant: assumed constant; linear: assumed coefficients"
    assert [spec.config["cost"]["kind"] for spec in experiment.runs()] == ["constant", "linear"]
    assert len(set(ids(experiment))) == 2
    assert experiment.runs()[0].cells["cost"] == '{"kind": "constant", "seconds": 0.5}'


def test_a_run_simulates_after_a_trip_to_another_process(tmp_path: Path) -> None:
    spec = load(tmp_path, HEAD + INLINE + PAGED).runs()[0]
    _, requests, memory, allocator, scheduler, cost = pickle.loads(pickle.dumps(spec)).build()
    run = simulate(requests, memory, allocator, scheduler, cost)
    assert (run.status, scheduler.num_finished) == ("finished", 2)


def test_a_workload_without_chance_gives_one_run_for_all_seeds(tmp_path: Path) -> None:
    experiment = load(tmp_path, HEAD + INLINE + PAGED + "seeds: 5\n")
    assert ids(experiment) == ["paged-seed=0"]
    assert "seeds         inline draws nothing: one run for all seeds" in experiment.budget_lines()


def test_a_trace_is_loaded_once_for_a_workload_and_seed(tmp_path: Path) -> None:
    text = HEAD + SHAREGPT + BOTH + "sweep: {allocator.block_size: [8, 16]}\nseeds: 2\n"
    traces = [(spec.seed, spec.build()[0]) for spec in load(tmp_path, text).runs()]
    by_seed: dict[int, list[Trace]] = {}
    for seed, trace in traces:
        by_seed.setdefault(seed, []).append(trace)
    assert {seed: len(same) for seed, same in by_seed.items()} == {0: 3, 1: 3}
    assert all(trace is same[0] for same in by_seed.values() for trace in same)
    assert by_seed[0][0].digest() != by_seed[1][0].digest()


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("output", [25, 40]),
        ("max_model_len", [64, 64]),
        ("8", [28, 18]),
        ("column", [27, 50]),
        (None, [27, 50]),  # the column, because there is one
    ],
)
def test_max_tokens_is_what_the_workload_says(
    tmp_path: Path, rule: str | None, expected: list[int]
) -> None:
    text = INLINE.replace("output_tokens: 5", "output_tokens: 5, max_tokens: 7")
    text = text.replace("output_tokens: 30", "output_tokens: 30, max_tokens: 40")
    if rule is not None:
        text = text.replace("kind: inline", f"kind: inline\n  max_tokens: {rule}")
    requests = load(tmp_path, HEAD + text + PAGED).runs()[0].build()[1]
    assert requests[:, MAX_FINAL_TOKENS].tolist() == expected
    stops = np.minimum(requests[:, MAX_FINAL_TOKENS], [25, 40])
    assert requests[:, FINAL_TOKENS].tolist() == stops.tolist()


def test_the_pool_comes_from_model_and_device(tmp_path: Path) -> None:
    text = HEAD.replace("kv_cache: {num_slots: 256}", "model: opt-13b\ndevice: a100-40gb")
    text = text.replace("max_model_len: 64\n", "")
    experiment = load(tmp_path, text + INLINE + PAGED)
    memory = experiment.runs()[0].build()[2]
    assert (memory.num_slots, memory.max_model_len) == (15_090, 2048)
    assert experiment.budget_lines()[-1].strip() == "15,090 slots of 819,200 bytes"
    less = load(tmp_path, text + INLINE + PAGED, f"activation_bytes={1 << 30}")
    assert less.runs()[0].build()[2].num_slots == 13_779


def test_blocks_times_their_size_are_the_pool_of_every_allocator(tmp_path: Path) -> None:
    text = HEAD.replace("num_slots: 256", "num_gpu_blocks: 983, block_size: 16")
    runs = load(tmp_path, text + INLINE + BOTH).runs()
    assert [spec.config["kv_cache"] for spec in runs] == [{"num_slots": 15_728}] * 2


def test_a_key_changes_with_all_that_results_depend_on(tmp_path: Path) -> None:
    text = HEAD + INLINE + PAGED
    base = load(tmp_path, text).runs()[0]
    changed = [
        load(tmp_path, text, "allocator.block_size=8").runs()[0],
        load(tmp_path, text, "slo={ttft_s: 1}").runs()[0],
        load(tmp_path, text, "figures=[pool_map]").runs()[0],
        load(tmp_path, text, "max_model_len=63").runs()[0],
    ]
    keys = {spec.key("code", "trace") for spec in [base, *changed]}
    assert len(keys) == 5
    assert base.key("code", "trace") == load(tmp_path, text).runs()[0].key("code", "trace")
    assert base.key("other", "trace") != base.key("code", "trace") != base.key("code", "other")
    assert re.fullmatch(r"[0-9a-f]{32}", base.key("code", "trace"))


def test_a_key_does_not_depend_on_the_folder_or_the_order_of_keys(tmp_path: Path) -> None:
    other = tmp_path / "elsewhere"
    other.mkdir()
    text = HEAD + INLINE + "allocator: {kind: paged, block_size: 8, watermark: 0}\n"
    turned = HEAD + INLINE + "allocator: {watermark: 0.0, block_size: 8, kind: paged}\n"
    keys = {load(f, t).runs()[0].key("c", "t") for f, t in ((tmp_path, text), (other, turned))}
    assert len(keys) == 1


@pytest.mark.parametrize("figure", ["pool_map", "block_tables"])
def test_block_contents_are_recorded_for_figures_of_blocks(tmp_path: Path, figure: str) -> None:
    assert figure in FIGURE_NAMES
    text = HEAD + INLINE + PAGED
    assert not load(tmp_path, text + "figures: [waste]\n").runs()[0].records_blocks
    assert load(tmp_path, text + f"figures: [{figure}]\n").runs()[0].records_blocks


def test_the_resolved_experiment_is_plain_data(tmp_path: Path) -> None:
    experiment = load(tmp_path, HEAD + INLINE + BOTH + "slo: {ttft_s: 1}\ndescription: d\n")
    config = experiment.config
    assert json.loads(json.dumps(config)) == config
    assert [entry["kind"] for entry in config["allocator"]] == ["contiguous", "paged"]
    assert (config["slo"], config["seeds"], config["sweep"]) == ({"ttft_s": 1.0}, [0], {})
    assert experiment.description == "d"
    assert experiment.runs()[0].slo == {"ttft_s": 1.0}


texts = st.text(max_size=8)

cells = st.none() | st.booleans() | st.integers() | st.floats() | texts


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(cells, cells), min_size=1, max_size=8, unique_by=repr))
def test_run_names_are_unique_safe_and_short(points: list[tuple[object, object]]) -> None:
    swept = [{"cost.seconds": a, "scheduler.seconds": b} for a, b in points]
    # values that are equal, such as 0.0 and -0.0 or 1 and true, are one value of a sweep
    swept = [point for i, point in enumerate(swept) if point not in swept[:i]]
    names = Names(["cost.seconds", "scheduler.seconds"], [(0, {"kind": "m:C"})] * len(swept), swept)
    run_ids = [names.run_id(i, seed) for i in range(len(swept)) for seed in (0, 1)]
    assert len(set(run_ids)) == len(run_ids)
    assert all(re.fullmatch(r"[A-Za-z0-9_.=+-]{1,140}", run_id) for run_id in run_ids)
    assert run_ids == [names.run_id(i, seed) for i in range(len(swept)) for seed in (0, 1)]


def test_every_key_but_name_workload_and_allocator_has_a_default(tmp_path: Path) -> None:
    bare = load(tmp_path, "name: bare\n" + SHAREGPT + PAGED)
    config = bare.runs()[0].config
    assert (config["model"], config["device"]) == ("opt-13b", "a100-40gb")
    assert config["max_model_len"] == 2048
    assert config["kv_cache"]["num_slots"] == 15090
    assert any("opt-13b" in line for line in bare.budget_lines())
    given = load(tmp_path, "name: bare\nkv_cache: {num_slots: 64}\n" + SHAREGPT + PAGED)
    assert given.runs()[0].config["max_model_len"] == 2048
    assert not any("opt-13b" in line for line in given.budget_lines())


def test_counts_stay_whole_numbers_in_a_summary_where_some_allocators_have_none() -> None:
    rows = [{"run": "a", "n": 3, "x": 1.5, "s": None}, {"run": "b", "n": None, "x": 2, "s": None}]
    text = outcome.summary_table(rows, ["run", "n", "x", "s"]).to_csv(index=False)
    assert text == "run,n,x,s\na,3,1.5,\nb,,2.0,\n"
