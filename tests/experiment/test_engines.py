"""Engine presets: what they set, what an experiment overrides, and what is wrong with a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from experiment_files import HEAD, INLINE, SHAREGPT, errors_of, ids, load
from replay_v1 import VERSIONS
from sim.allocators import ALLOCATORS
from sim.config.classes import find_class
from sim.config.engine_presets import ENGINES, ENGINES_FOLDER, PARTS, lay_over, read_engine
from sim.config.plugin_keys import PLUGINS
from sim.config.plugins import parameter_names
from sim.config.runspec import sequence_content
from sim.engine.simulation import Options, simulate
from sim.runs.outcome import run_and_write
from sim.runs.runner import RunOptions
from sim.sequence import SequenceTable

ROOT = Path(__file__).parents[2]
SHARED = SHAREGPT.replace("}}\n", "}, prefix: [40]}\n")
FROM_MODEL = {"kv_bytes_per_token", "layers"}  # what presets leave open
ACCEPTED = f"accepted: {', '.join(ENGINES)}, or the path of a file like ./mine.yaml"
MINE = "allocator: {kind: paged, block_size: 8}\nscheduler: {kind: fcfs}\n"


def text(engine: str, more: str = "") -> str:
    return f"name: example\nengine: {engine}\n{SHARED}{more}"


def told(engine: str, more: str = "") -> str:
    """An experiment that says max_tokens, for engines that admit by them."""
    workload = "kind: sharegpt, max_tokens: 400"
    return text(engine, more).replace("kind: sharegpt", workload)


def configs(folder: Path, experiment: str, *overrides: str) -> list[dict[str, Any]]:
    return [spec.config for spec in load(folder, experiment, *overrides).runs()]


def preset_file(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ENGINES_FOLDER / f"{name}.yaml").read_text())
    return found


@pytest.mark.parametrize("name", ENGINES)
def test_every_preset_runs_a_trace_and_is_named_in_the_resolved_configuration(
    tmp_path: Path, name: str
) -> None:
    experiment = load(tmp_path, told(name))
    (spec,) = experiment.runs()
    trace, requests, memory, allocator, scheduler, cost = spec.build()
    how = Options(content=sequence_content(trace))
    run = simulate(requests, memory, allocator, scheduler, cost, how)
    assert run.status == "finished"
    assert scheduler.num_finished == len(trace) == 20
    assert spec.config["engine"] == experiment.config["engine"] == name
    for part in PARTS:
        facts = {key: value for key, value in spec.config[part].items() if key in FROM_MODEL}
        assert spec.config[part] == preset_file(name)[part] | facts


@pytest.mark.parametrize("name", ENGINES)
def test_a_preset_states_every_knob_with_its_source_so_that_no_default_of_ours_creeps_in(
    name: str,
) -> None:
    preset = preset_file(name)
    assert preset["version"]
    assert preset["description"]
    assert preset["source"]
    lines = (ENGINES_FOLDER / f"{name}.yaml").read_text().splitlines()
    for part in PARTS:
        cls = find_class(preset[part]["kind"], *PLUGINS[part])
        assert sorted(preset[part]) == sorted(["kind", *parameter_names(cls)])
        for knob in preset[part].keys() - {"kind"}:
            (line,) = [line for line in lines if line.startswith(f"  {knob}:")]
            assert " # " in line, line


@pytest.mark.parametrize(
    ("name", "recorded"),
    [("vllm-0.32", "vllm_v1"), ("vllm-0.32-async", "vllm_v1"), ("vllm-0.16", "vllm_v1_0.16")],
)
def test_the_rules_of_a_vllm_preset_are_those_its_recorded_runs_are_replayed_with(
    name: str, recorded: str
) -> None:
    preset, rules = preset_file(name), VERSIONS[recorded]
    allocator, scheduler = preset["allocator"], preset["scheduler"]
    assert allocator["free_order"] == rules.free_order
    assert allocator["reserve_full_isl"] == rules.has_watermark  # both came, or neither
    assert scheduler["single_request_exempt"] == rules.single_request_exempt
    assert scheduler["count_blocked_lookups"] == rules.count_blocked_lookups


def test_the_async_preset_differs_in_nothing_but_the_scheduler() -> None:
    plain, ahead = preset_file("vllm-0.32"), preset_file("vllm-0.32-async")
    assert ahead["scheduler"].pop("kind") == f"{plain['scheduler'].pop('kind')}_async"
    assert plain.pop("description") != ahead.pop("description")
    assert plain == ahead


def test_the_orca_presets_are_what_the_experiments_of_the_paper_s_figures_set_by_hand() -> None:
    for figure in ("fig02_memory_waste", "fig13_batched_requests"):
        file = yaml.safe_load((ROOT / "experiments" / f"{figure}.yaml").read_text())
        for name in ("orca-max", "orca-pow2", "orca-oracle"):
            preset = preset_file(name)
            assert sum(entry.items() <= preset["allocator"].items() for entry in file["allocator"])
            assert file["scheduler"].items() <= preset["scheduler"].items()


SMALL, LARGE, LARGEST = (256, 2048), (1024, 8192), (1024, 16384)
LIMITS = {
    ("vllm-0.32", "a100-40gb-sxm"): SMALL,
    ("vllm-0.32", "a100-80gb-sxm"): SMALL,
    ("vllm-0.32", "l40s"): SMALL,
    ("vllm-0.32", "h100-sxm"): LARGE,
    ("vllm-0.32", "H200"): LARGE,
    ("vllm-0.32", "b200-sxm"): LARGEST,
    ("vllm-0.32-async", "b200-sxm"): LARGEST,
    ("vllm-0.19", "b200-sxm"): LARGE,
    ("vllm-0.16", "b200-sxm"): LARGE,
    ("vllm-0.16", "a100-80gb-sxm"): SMALL,
}


@pytest.mark.parametrize(("name", "device"), LIMITS)
def test_the_limits_of_a_batch_depend_on_the_device_as_in_the_engine(
    tmp_path: Path, name: str, device: str
) -> None:
    more = f"model: llama-3-8b\ndevice: {device}\n"
    (config,) = configs(tmp_path, text(name, more))
    scheduler = config["scheduler"]
    found = scheduler["max_num_seqs"], scheduler["max_num_batched_tokens"]
    assert found == LIMITS[name, device]
    (config,) = configs(tmp_path, text(name, more + "scheduler: {max_num_seqs: 7}\n"))
    assert config["scheduler"] == scheduler | {"max_num_seqs": 7}


CHUNKS = {"a100-40gb-sxm": 4096, "h100-sxm": 8192, "H200": 8192, "b200-sxm": 16384}


@pytest.mark.parametrize("device", CHUNKS)
def test_sglang_s_chunks_depend_on_the_device_as_in_the_engine(tmp_path: Path, device: str) -> None:
    more = f"model: llama-3-8b\ndevice: {device}\n"
    (config,) = configs(tmp_path, told("sglang", more))
    assert config["scheduler"]["chunked_prefill_size"] == CHUNKS[device]


def test_a_small_device_and_an_unknown_one_have_sglang_s_smaller_chunks(tmp_path: Path) -> None:
    small = "model: {kv_bytes_per_token: 65536, weights_bytes: 1000000}\n"
    small += "device: {memory_bytes: 25769803776}\n"
    for more, size in ((small, 2048), ("kv_cache: {num_slots: 4096}\n", 4096)):
        (config,) = configs(tmp_path, told("sglang", more))
        assert config["scheduler"]["chunked_prefill_size"] == size


def test_sglang_s_scheduler_refuses_memory_without_a_tree_before_anything_runs(
    tmp_path: Path,
) -> None:
    lines = errors_of(tmp_path, told("sglang", "allocator: {kind: paged}\n"))
    assert len(lines) == 1
    assert lines[0].endswith(
        "sglang admits by what a radix tree holds and could evict, which paged cannot say; "
        "accepted with it: allocators mini_sglang and radix"
    )
    lines = errors_of(tmp_path, told("sglang", "allocator: {block_size: 48}\n"))
    assert len(lines) == 1
    assert lines[0].endswith(
        "chunked_prefill_size: must be a multiple of the allocator's block_size 48, got 4096"
    )


def test_without_a_device_the_limits_are_those_of_a_small_one(tmp_path: Path) -> None:
    (config,) = configs(tmp_path, text("vllm-0.32", "kv_cache: {num_slots: 4096}\n"))
    assert config["scheduler"]["max_num_seqs"] == 256
    assert config["device"] is None


def test_the_share_of_memory_is_the_engine_s_unless_the_experiment_says_it(tmp_path: Path) -> None:
    def share(name: str, more: str = "") -> Any:
        return configs(tmp_path, text(name, more))[0]["gpu_memory_utilization"]

    assert share("vllm-0.32") == 0.92
    assert share("vllm-0.16") == share("orca-max") == 0.9
    assert share("vllm-0.32", "gpu_memory_utilization: 0.8\n") == 0.8


def test_an_experiment_overrides_key_by_key(tmp_path: Path) -> None:
    preset = preset_file("vllm-0.16")
    more = "allocator: {block_size: 32}\nscheduler: {kind: vllm_v1, max_num_seqs: 7}\n"
    (config,) = configs(tmp_path, text("vllm-0.16", more))
    assert config["allocator"] == preset["allocator"] | {"block_size": 32}
    assert config["scheduler"] == preset["scheduler"] | {"max_num_seqs": 7}


def test_a_part_of_another_kind_replaces_the_engine_s_entirely(tmp_path: Path) -> None:
    more = "allocator: {kind: paged}\nscheduler: {kind: vllm_v1_async}\n"
    (config,) = configs(tmp_path, text("vllm-0.16", more))
    assert config["allocator"] == {
        "kind": "paged",
        "block_size": 16,
        "watermark": 0.0,
        "reserve_max_tokens": False,
    }
    assert config["scheduler"]["count_blocked_lookups"] is False


def test_each_entry_of_a_list_lies_over_the_engine_s_allocator(tmp_path: Path) -> None:
    more = "allocator:\n  - {}\n  - {watermark: 0.1}\n  - {kind: unbounded}\n"
    found = configs(tmp_path, text("vllm-0.32", more))
    preset = preset_file("vllm-0.32")["allocator"]
    assert found[0]["allocator"] == preset
    assert found[1]["allocator"] == preset | {"watermark": 0.1}
    assert found[2]["allocator"] == {"kind": "unbounded"}


def test_left_out_null_and_an_empty_mapping_are_the_engine_s(tmp_path: Path) -> None:
    first = configs(tmp_path, text("orca-pow2"))
    for nothing in ("null", "{}", "[{}]"):
        assert configs(tmp_path, text("orca-pow2", f"allocator: {nothing}\n")) == first
    assert configs(tmp_path, text("orca-pow2", "scheduler: null\n")) == first
    assert configs(tmp_path, text("orca-pow2", "scheduler: {}\n")) == first


@given(
    under=st.dictionaries(st.sampled_from("abc"), st.integers()),
    over=st.dictionaries(st.sampled_from("abcd"), st.integers()),
    kind=st.sampled_from([None, "same", "other"]),
)
def test_what_an_experiment_says_wins_and_the_rest_is_the_engine_s(
    under: dict[str, Any], over: dict[str, Any], kind: str | None
) -> None:
    under = {"kind": "same", **under}
    over = over if kind is None else {"kind": kind, **over}
    before = dict(under), dict(over)
    whole = lay_over(under, over)
    if kind == "other":
        assert whole == over
    else:
        assert whole.keys() == under.keys() | over.keys()
        assert all(whole[key] == over.get(key, under.get(key)) for key in whole)
    assert (under, over) == before


def test_engines_are_swept_in_the_order_of_the_sweep_and_each_has_its_own_axes(
    tmp_path: Path,
) -> None:
    sweep = (
        "sweep: {scheduler.max_num_seqs: [4, 8], engine: [orca-max, vllm-0.32], "
        "allocator.block_size: [16, 32]}\n"
    )
    experiment = load(tmp_path, f"name: example\n{SHARED}{sweep}")
    assert ids(experiment) == [
        name
        for cap in (4, 8)
        for name in (
            f"contiguous-max_num_seqs={cap}-engine=orca-max-seed=0",
            f"prefix-max_num_seqs={cap}-engine=vllm-0.32-block_size=16-seed=0",
            f"prefix-max_num_seqs={cap}-engine=vllm-0.32-block_size=32-seed=0",
        )
    ]
    assert [spec.cells["engine"] for spec in experiment.runs()] == 2 * [
        "orca-max",
        "vllm-0.32",
        "vllm-0.32",
    ]


def test_a_sweep_of_all_engines_is_one_of_every_preset(tmp_path: Path) -> None:
    sweep = "sweep: {engine: all}\nmodel: llama-3-8b\ndevice: h100-sxm\n"
    workload = SHARED.replace("kind: sharegpt", "kind: sharegpt, max_tokens: 400")
    experiment = load(tmp_path, f"name: example\n{workload}{sweep}")
    assert [spec.cells["engine"] for spec in experiment.runs()] == ENGINES


def test_of_swept_engines_one_that_lacks_something_of_the_trace_is_a_row_with_its_reason(
    tmp_path: Path,
) -> None:
    text = f"{HEAD}{INLINE}sweep: {{engine: [vllm-0.2, vllm-0.32]}}\n"
    experiment = load(tmp_path, text)
    reason = (
        "vllm-0.32's allocator: prefix needs prefix identity of the trace; inline provides "
        "arrivals; or set enable_prefix_caching: false"
    )
    assert [spec.skip for spec in experiment.runs()] == ["", reason]
    assert f"warning       skipped: {reason}" in experiment.budget_lines()
    outcome = run_and_write(experiment, tmp_path / "out", RunOptions())
    assert [row["status"] for row in outcome.rows] == ["finished", "skipped"]
    assert outcome.rows[1]["reason"] == reason


def test_engines_none_of_which_has_what_it_needs_are_refused(tmp_path: Path) -> None:
    sweep = "sweep: {engine: [vllm-0.19, vllm-0.32]}\n"
    lines = errors_of(tmp_path, f"{HEAD}{INLINE}{sweep}")
    assert [line.partition(": prefix needs")[0] for line in lines] == [
        f'x.yaml:9: sweep.engine.{i}: "{name}": {name}\'s allocator'
        for i, name in enumerate(["vllm-0.19", "vllm-0.32"])
    ]


def test_a_swept_part_lies_over_the_engine_s_as_one_in_the_file_does(tmp_path: Path) -> None:
    sweep = "sweep: {scheduler: [{max_num_seqs: 4}, {kind: fcfs}]}\n"
    first, second = configs(tmp_path, text("vllm-0.32", sweep))
    preset = preset_file("vllm-0.32")["scheduler"]
    assert first["scheduler"] == preset | {"max_num_seqs": 4}
    assert second["scheduler"]["kind"] == "fcfs"


def test_an_engine_and_what_it_sets_can_be_given_on_the_command_line(tmp_path: Path) -> None:
    (config,) = configs(
        tmp_path, text("vllm-0.16"), "engine=orca-pow2", "allocator.arena=max_len_chunks"
    )
    assert config["engine"] == "orca-pow2"
    assert config["allocator"]["arena"] == "max_len_chunks"
    assert config["allocator"]["reservation"] == "pow2"


def test_the_key_of_a_run_depends_on_what_was_resolved(tmp_path: Path) -> None:
    def key(more: str = "") -> str:
        (spec,) = load(tmp_path, text("./mine.yaml", more)).runs()
        return spec.key("code", "trace")

    (tmp_path / "mine.yaml").write_text(MINE)
    first = key()
    assert key() == key("allocator: {block_size: 8}\n") == first
    assert key("allocator: {block_size: 16}\n") != first
    (tmp_path / "mine.yaml").write_text(MINE.replace("8", "16"))
    assert key() != first
    assert key("allocator: {block_size: 8}\n") == first


def test_a_preset_of_one_s_own_lies_beside_the_experiment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.yaml").write_text(MINE)
    monkeypatch.chdir(ROOT)
    for name in ("./mine.yaml", "mine.yaml", str(tmp_path / "mine.yaml")):
        (config,) = configs(tmp_path, text(name))
        assert (config["engine"], config["allocator"]["block_size"]) == (name, 8)


def test_engines_that_the_same_experiment_uses_may_be_ours_and_one_s_own(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(MINE)
    sweep = "sweep: {engine: [./mine.yaml, vllm-0.32, null]}\nallocator: [{}, {kind: unbounded}]\n"
    lines = errors_of(tmp_path, f"name: example\n{SHARED}{sweep}")
    assert lines == [
        f"x.yaml:4: allocator.0.kind: is required; accepted: {', '.join(ALLOCATORS)}, "
        "or module:Class (with engine null)"
    ]
    sweep = sweep.replace(", null", "")
    assert len(configs(tmp_path, f"name: example\n{SHARED}{sweep}")) == 4


REFUSED = {
    "a misspelt engine": (
        text("vlm-0.32"),
        [f"x.yaml:2: engine: unknown engine 'vlm-0.32', did you mean vllm-0.32; {ACCEPTED}"],
    ),
    "a misspelt engine hides no other mistake": (
        text("orca-mx", "allocator: {block_size: 5}\nscheduler: {kind: fcfs, max_seqs: 3}\n"),
        [
            f"x.yaml:2: engine: unknown engine 'orca-mx', did you mean orca-max; {ACCEPTED}",
            "x.yaml:5: scheduler.max_seqs: unknown key, did you mean max_num_seqs; accepted: "
            "max_num_seqs, max_num_batched_tokens, enable_chunked_prefill",
        ],
    ),
    "a number": (
        text("0.32"),
        [
            "x.yaml:2: engine: must be the name of one, got 0.32; several are compared by sweep: "
            "{engine: […]}"
        ],
    ),
    "several without a sweep": (
        text("[vllm-0.32, orca-max]"),
        [
            "x.yaml:2: engine: must be the name of one, got ['vllm-0.32', 'orca-max']; several are "
            "compared by sweep: {engine: […]}"
        ],
    ),
    "none, and no allocator": (
        text("null"),
        ["x.yaml:1: allocator: is required; accepted: {kind: contiguous, "],
    ),
    "an override that the engine's allocator does not have": (
        text("orca-max", "allocator: {blocksize: 16}\n"),
        [
            "x.yaml:4: allocator.blocksize: unknown key; accepted: reservation, placement, "
            "granularity, arena, min_block, compaction"
        ],
    ),
    "an override that does not go with the engine's": (
        text("orca-max", "allocator: {compaction: true}\n"),
        [
            "x.yaml:4: allocator.compaction: a buddy system's blocks cannot slide; accepted with "
            "first_fit, best_fit and next_fit"
        ],
    ),
    "what the engine sets and the pool cannot hold": (
        text("vllm-0.32", "kv_cache: {num_slots: 20}\nallocator: {watermark: 0.1}\n"),
        [
            "x.yaml:2: engine: vllm-0.32's allocator.block_size: a block of 16 slots beside the "
            "null block is more than the pool of 20"
        ],
    ),
    "a trace that lacks what the engine needs": (
        f"{HEAD}{INLINE}engine: vllm-0.32\n",
        [
            "x.yaml:9: engine: vllm-0.32's allocator: prefix needs prefix identity of the trace; "
            "inline provides arrivals; or set enable_prefix_caching: false"
        ],
    ),
    "a swept engine that is misspelt": (
        f"name: example\n{SHARED}sweep:\n  engine: [vllm-0.32, vllm-0.33]\n",
        ["x.yaml:4: sweep.engine.1: \"vllm-0.33\": unknown engine 'vllm-0.33', did you mean "],
    ),
    "a sweep of what is below an engine": (
        text("vllm-0.32", "sweep: {engine.block_size: [8]}\n"),
        [
            "x.yaml:4: sweep.engine.block_size: cannot be swept; accepted: engine, and keys of "
            "allocator and scheduler"
        ],
    ),
    "a sweep of one engine without a list": (
        f"name: example\n{SHARED}sweep: {{engine: vllm-0.32}}\n",
        ["x.yaml:3: sweep.engine: must be a list of at least one value, or all"],
    ),
    "an allocator that is the same under two engines": (
        f"name: example\n{SHARED}sweep: {{engine: [orca-max, orca-pow2]}}\n"
        "allocator: [{}, {kind: paged}]\n",
        [
            'x.yaml:3: sweep.engine.1: "orca-pow2": gives the same run as "orca-max" with '
            "allocator.1"
        ],
    ),
    "an override that says what the engine says": (
        text("vllm-0.32", "allocator: [{}, {block_size: 16}]\n"),
        ["x.yaml:4: allocator.1: gives the same run as allocator.0"],
    ),
    "a wrong device does not become a wrong share of its memory": (
        text("vllm-0.32", "device: a100-4gb\n"),
        ["x.yaml:4: device: unknown device 'a100-4gb', did you mean a100-40gb"],
    ),
    "a file that is not there": (
        text("./yours.yaml"),
        ["x.yaml:2: engine: yours.yaml: No such file or directory"],
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_error_about_an_engine_says_where_it_is_and_what_is_accepted(
    tmp_path: Path, case: str
) -> None:
    experiment, expected = REFUSED[case]
    lines = [line.replace(f"{tmp_path}/", "") for line in errors_of(tmp_path, experiment)]
    assert len(lines) == len(expected), lines
    for line, start in zip(lines, expected, strict=True):
        assert line.startswith(start), line


PAIR = "allocator: {kind: paged}\nscheduler: {kind: fcfs}\n"
BROKEN = {
    "": ":1: the file is empty; accepted: a mapping of keys",
    "# nothing\n": ":1: the file is empty; accepted: a mapping of keys",
    "[1]\n": ":1: is a list of 1; accepted: a mapping of keys",
    "allocator: {kind: paged\n": ":2: not YAML: ",
    "allocator: {kind: paged}\n": ":1: scheduler: is required",
    "allocator: {kind: paged}\nscheduler:\n": ":2: scheduler: must be a mapping like {kind: fcfs}",
    "scheduler: {kind: fcfs}\n\nallocator: {kind: pagd}\n": (
        ":3: allocator.kind: unknown kind 'pagd', did you mean paged; accepted: contiguous, "
    ),
    "scheduler: {kind: fcfs}\nallocator:\n  kind: paged\n  block_sze: 8\n": (
        ":4: allocator.block_sze: unknown key, did you mean block_size; accepted: block_size, "
    ),
    "scheduler: {kind: fcfs}\nallocator: {kind: paged, block_size: 0}\n": (
        ":2: allocator.block_size: must be at least 1 slot, got 0"
    ),
    PAIR + "shedule: 1\n": ":3: shedule: unknown key, did you mean scheduler; accepted: version, ",
    PAIR + "version: 0.3\n": ":3: version: must be text, got 0.3",
    PAIR + "gpu_memory_utilization: 2\n": ":3: gpu_memory_utilization: must be at most 1",
    PAIR + "workload: {max_tokens: most}\n": (
        ":3: workload.max_tokens: unknown rule 'most'; accepted: output, max_model_len, column, "
        "required, or 1 to "
    ),
    PAIR + "workload: {max_tokens: 0}\n": ":3: workload.max_tokens: unknown rule 0; accepted: ",
    PAIR + "workload: {max_tokens: output, path: a.csv}\n": (
        ":3: workload.path: unknown key; accepted: max_tokens"
    ),
    PAIR + "by_device:\n  - {min_memory_gib: 9, scheduler: {max_seqs: 2}}\n": (
        ":4: by_device.0.scheduler.max_seqs: unknown key, did you mean max_num_seqs; accepted: "
    ),
    PAIR + "by_device:\n  - {min_memory_gib: 9, scheduler: {max_num_seqs: 0}}\n": (
        ":4: by_device.0.scheduler.max_num_seqs: must be at least 1, got 0"
    ),
    PAIR + "by_device:\n  - {min_memory_gib: 9, allocator: {kind: prefix}}\n": (
        ":4: by_device.0.allocator.kind: must be paged on every device; prefix is an engine apart"
    ),
    PAIR + "by_device:\n  - {scheduler: {max_num_seqs: 1}}\n": (
        ":4: by_device.0.min_memory_gib: is required"
    ),
}


@pytest.mark.parametrize("content", BROKEN, ids=list(BROKEN.values()))
def test_what_is_wrong_with_a_preset_of_one_s_own_has_its_file_line_and_key(
    tmp_path: Path, content: str
) -> None:
    (tmp_path / "mine.yaml").write_text(content)
    (line,) = errors_of(tmp_path, text("./mine.yaml"))
    assert line.startswith(f"x.yaml:2: engine: {tmp_path / 'mine.yaml'}{BROKEN[content]}")


def test_everything_wrong_with_a_preset_is_said_at_once_and_once_for_all_its_runs(
    tmp_path: Path,
) -> None:
    (tmp_path / "mine.yaml").write_text("allocator: {kind: pagd}\nscheduler: {kind: fcf}\nx: 1\n")
    sweep = "sweep: {workload.arrivals.rate: [1, 2, 3]}\n"
    lines = errors_of(tmp_path, text("./mine.yaml", sweep))
    assert len(lines) == 3
    assert all("mine.yaml:" in line for line in lines)


def test_an_engine_that_admits_by_max_tokens_must_be_told_them(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(PAIR + "workload: {max_tokens: required}\n")
    assert errors_of(tmp_path, text("./mine.yaml")) == [
        "x.yaml:3: workload.max_tokens: ./mine.yaml admits by it, and the trace has none; "
        "accepted: output, max_model_len or a number"
    ]
    said = text("./mine.yaml").replace("kind: sharegpt", "kind: sharegpt, max_tokens: 100")
    assert configs(tmp_path, said)[0]["workload"]["max_tokens"] == 100


@pytest.mark.parametrize("name", ["tensorrt-llm-no-evict", "tgi", "sglang", "mini-sglang"])
def test_engines_that_reserve_for_max_tokens_say_so_once(tmp_path: Path, name: str) -> None:
    assert errors_of(tmp_path, text(name)) == [
        f"x.yaml:3: workload.max_tokens: {name} admits by it, and the trace has none; "
        "accepted: output, max_model_len or a number"
    ]


def test_a_scheduler_that_admits_by_max_tokens_must_be_told_them(tmp_path: Path) -> None:
    lacks = "admits by workload.max_tokens, because the trace has none of its own"
    start = f"name: example\n{SHAREGPT}allocator: {{kind: paged}}\nscheduler: "
    assert errors_of(tmp_path, start + "{kind: tgi}\n") == [f"x.yaml:4: scheduler: tgi {lacks}"]
    assert errors_of(tmp_path, start + "{kind: trtllm}\n") == [
        f"x.yaml:4: scheduler: trtllm {lacks}"
    ]
    radix = f"name: example\n{SHARED}allocator: {{kind: radix}}\nscheduler: {{kind: sglang}}\n"
    assert errors_of(tmp_path, radix) == [f"x.yaml:4: scheduler: sglang {lacks}"]
    mini = radix.replace("kind: sglang", "kind: mini_sglang")
    assert errors_of(tmp_path, mini) == [f"x.yaml:4: scheduler: mini_sglang {lacks}"]
    load(tmp_path, start + "{kind: trtllm, capacity_scheduler_policy: max_utilization}\n")


def test_the_two_policies_of_tensorrt_llm_differ_in_nothing_else() -> None:
    one, other = preset_file("tensorrt-llm-no-evict"), preset_file("tensorrt-llm-max-util")
    assert one.pop("workload") == {"max_tokens": "required"}
    for preset in (one, other):
        del preset["version"], preset["description"]
        del preset["scheduler"]["capacity_scheduler_policy"]
    assert one == other


@pytest.mark.parametrize(("page_size_kib", "block_size"), [(64, 32), (2048, 1024)])
def test_the_pages_of_vattention_are_the_model_s(
    tmp_path: Path, page_size_kib: int, block_size: int
) -> None:
    more = (
        f"model: llama-3-8b\ndevice: a100-80gb-sxm\nallocator: {{page_size_kib: {page_size_kib}}}\n"
    )
    (spec,) = load(tmp_path, text("vattention", more)).runs()
    _, _, memory, allocator, *_ = spec.build()
    allocator.bind(memory.num_slots, SequenceTable(), memory.max_model_len)
    assert allocator.num_blocks == memory.num_slots // block_size
    assert allocator.usage().external == memory.num_slots % block_size
    assert spec.config["gpu_memory_utilization"] == 0.85


def test_vattention_without_a_model_needs_the_tokens_of_a_page(tmp_path: Path) -> None:
    more = "kv_cache: {num_slots: 4096}\n"
    assert errors_of(tmp_path, text("vattention", more)) == [
        "x.yaml:2: engine: vattention's allocator.block_size: the tokens of a page follow from a "
        "model with layers, and there is none; give it, or block_size"
    ]
    load(tmp_path, text("vattention", more + "allocator: {block_size: 64}\n"))


def test_an_engine_s_rule_of_max_tokens_is_used_where_nobody_else_says_one(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(PAIR + "workload: {max_tokens: max_model_len}\n")

    def rule(experiment: str) -> Any:
        return configs(tmp_path, experiment)[0]["workload"]["max_tokens"]

    assert rule(text("./mine.yaml")) == "max_model_len"
    own = HEAD + "engine: ./mine.yaml\n" + INLINE
    assert rule(own.replace("output_tokens: ", "max_tokens: 31, output_tokens: ")) == "column"
    assert rule(own.replace("kind: inline", "kind: inline\n  max_tokens: output")) == "output"


def test_a_request_that_never_fits_stalls_a_vllm_preset_as_it_does_the_engine(
    tmp_path: Path,
) -> None:
    more = (
        "engine: {}\nkv_cache: {{num_slots: 320}}\nmax_model_len: 4096\nworkload:\n  kind: inline\n"
        "  requests: [{{prompt_tokens: 1000, output_tokens: 3}}]\n"
        "allocator: {{enable_prefix_caching: false}}\n"
    )
    for name in ("vllm-0.16", "vllm-0.32", "vllm-0.32-async"):
        (spec,) = load(tmp_path, "name: example\n" + more.format(name)).runs()
        _, *parts = spec.build()
        assert simulate(*parts).status == "stalled"


def test_check_says_what_the_engine_sets_and_what_the_experiment_says_instead(
    tmp_path: Path,
) -> None:
    more = (
        "model: llama-3-8b\ndevice: h100-sxm\nscheduler: {max_num_seqs: 64, policy: fcfs}\n"
        "allocator: [{}, {kind: paged}, {watermark: 0.5}]\n"
        "sweep: {allocator.block_size: [8, 32], engine: [vllm-0.32, vllm-0.16]}\n"
    )
    lines = load(tmp_path, f"name: example\n{SHARED}{more}").budget_lines()
    engines = [i for i, line in enumerate(lines) if line.startswith("engine  ")]
    assert lines[engines[0]] == (
        "engine        vllm-0.32, on a device of 70 GiB or more that is no a100"
    )
    first = lines[engines[0] + 1 : engines[1]]
    assert first[0] == (
        "  allocator   prefix: block_size 16, enable_prefix_caching true, free_order "
        "prepend_unhashed, reserve_full_isl true, watermark 0.0"
    )
    assert first[1].startswith("  scheduler   vllm_v1: max_num_seqs 1024, max_num_batched_tokens ")
    assert first[2:] == [
        "  memory      x 0.92",
        "  here        allocator.block_size: swept, not 16",
        "  here        scheduler.max_num_seqs: 64, not 1024",
        "  here        allocator.1: paged, not prefix nor its keys",
        "  here        allocator.2.watermark: 0.5, not 0.0",
    ]
    assert lines[engines[1]].startswith("engine        vllm-0.16, on a device of ")


def test_nothing_is_said_of_engines_where_none_is_named(tmp_path: Path) -> None:
    experiment = load(tmp_path, HEAD + INLINE + "allocator: {kind: paged}\n")
    assert not any("engine" in line for line in experiment.budget_lines())
    assert "engine" not in experiment.config
    assert "engine" not in experiment.runs()[0].config


@pytest.mark.parametrize("name", ENGINES)
def test_the_list_explains_an_engine_in_two_lines(name: str) -> None:
    first, second = read_engine(name, ENGINES_FOLDER).about().split("\n")
    preset = preset_file(name)
    assert first.startswith(f"{preset['allocator']['kind']} + {preset['scheduler']['kind']}: ")
    assert preset["version"] in second
    assert preset["source"] in second
