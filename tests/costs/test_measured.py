"""The cost model of measured kernel times: what an iteration consists of, and what it is told."""

import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from cost_models import LLAMA_3_8B, batch_of, measured

from experiment_files import write
from sim.allocators.paged import Paged
from sim.batch import COPIED_TOKENS, SWAPPED_BLOCKS, SWAPPED_TOKENS, next_decode
from sim.config.experiment import load_experiment
from sim.costs.link import link_gb_s
from sim.costs.measured import Measured
from sim.costs.profile import load_profile, shipped, write_profile
from sim.engine.simulation import Memory, Options, Run, simulate
from sim.schedulers.vllm_v1 import VllmV1
from sim.sequence import Limits, new_requests

ROOT = Path(__file__).parents[2]


def seconds(model: Measured, **sizes: int) -> float:
    return model.iteration_s(batch_of(**sizes))


def test_a_decode_reads_the_weights_once_and_the_kv_of_every_sequence() -> None:
    """16 GB of weights at about 1 TB/s, less the input embedding; 8 GB of KV as much again."""
    alone = seconds(measured(host_us=0.0), decodes=1, length=1)
    assert 0.014 < alone < 0.020
    many = seconds(measured(host_us=0.0), decodes=64, length=1000)
    assert many - alone == pytest.approx(64_000 * 131_072 / 0.93e12, rel=0.35)


def test_the_hosts_overhead_is_added_once_an_iteration() -> None:
    without, with_it = (seconds(measured(host_us=us), decodes=8, length=100) for us in (0.0, 500.0))
    assert with_it - without == pytest.approx(500e-6)


def test_kernel_time_falls_as_blocks_grow_where_the_kernel_computes_every_address() -> None:
    times = [
        seconds(measured(paging="2023-kernel", block_size=size), decodes=32, length=2000)
        for size in (1, 4, 16, 64, 256)
    ]
    assert times == sorted(times, reverse=True)
    assert times[0] > 1.2 * times[2]
    flat = {
        seconds(measured(paging="equal-prefetch", block_size=size), decodes=32, length=2000)
        for size in (1, 16, 256)
    }
    assert len(flat) == 1


def test_contiguous_memory_is_faster_by_what_the_preset_says() -> None:
    """Attention alone: the difference of two lengths has no weights in it."""
    long, short = {"decodes": 64, "length": 4000}, {"decodes": 64, "length": 2000}

    def attention(block_size: int | None) -> float:
        model = measured(paging="2023-kernel", block_size=block_size)
        return seconds(model, **long) - seconds(model, **short)

    assert attention(16) / attention(None) == pytest.approx(1.23, abs=0.001)


def test_prompts_and_decodes_in_one_launch_cost_at_least_either() -> None:
    model = measured()
    both = seconds(model, decodes=64, length=1000, prompt=512)
    assert both > seconds(model, decodes=64, length=1000)
    assert both > seconds(model, prompt=512)


def test_context_makes_a_chunk_slower_and_shorter_chunks_faster() -> None:
    model = measured(profile="h100")
    assert seconds(model, prompt=512, context=8000) > 1.02 * seconds(model, prompt=512)
    assert seconds(model, prompt=2048) > 2 * seconds(model, prompt=512)


def test_copies_are_read_and_written() -> None:
    model, batch = measured(), batch_of(decodes=4, length=100)
    before = model.iteration_s(batch)
    batch[COPIED_TOKENS] = 10_000
    moved_s = 2 * 10_000 * 131_072 / 1e12
    assert model.iteration_s(batch) - before == pytest.approx(moved_s, rel=0.15)


def test_swaps_of_small_blocks_crawl_over_the_link() -> None:
    """Llama-3-8B's K of one layer: 32 KiB in blocks of 16, above the cliff; 16 in blocks of 8."""
    times = []
    for block_size in (8, 16, 32):
        model, batch = measured(block_size=block_size, pcie_gb_s=64.0), batch_of(2, 100)
        before = model.iteration_s(batch)
        batch[[SWAPPED_BLOCKS, SWAPPED_TOKENS]] = (1600 // block_size, 1600)
        times.append(model.iteration_s(batch) - before)
    moved = 1600 * 131_072
    assert times[0] == pytest.approx(moved / 6.3e9, rel=0.01)
    assert times[1] == pytest.approx(moved / 41.6e9, rel=0.02)
    assert times[2] == pytest.approx(moved / 51.4e9, rel=0.01)


def test_tensor_parallelism_adds_two_all_reduces_a_layer() -> None:
    """Ten microseconds each, and 8 KiB a token: on a halved model."""
    link = {"nvlink_gb_s": 900.0}
    half = {name: LLAMA_3_8B[name] // 2 for name in ("heads", "kv_heads", "kv_bytes_per_token")}
    one = measured(profile="h100", **half)
    two = measured(profile="h100", tensor_parallel_size=2, **link, **half)
    extra = seconds(two, decodes=1, length=10) - seconds(one, decodes=1, length=10)
    assert extra == pytest.approx(64 * 10e-6, rel=0.01)
    with pytest.raises(ValueError, match=r"^nvlink_gb_s: is not known, nor is pcie_gb_s"):
        measured(tensor_parallel_size=2)


def test_the_step_times_of_the_paper_come_back() -> None:
    """270 tokens/s at batch 8 and 900 at 38, read off Fig. 1; OPT-13B, about 415 tokens each."""
    opt = {
        "weights_bytes": 25_700_000_000,
        "num_params": 12_850_000_000,
        "kv_bytes_per_token": 819_200,
        "layers": 40,
        "hidden": 5120,
        "heads": 40,
        "kv_heads": 40,
    }
    model = Measured(
        **{**LLAMA_3_8B, **opt, "num_embedding_params": 0, "vocab": 0},
        profile="a100-40-2023",
        block_size=16,
    )
    for batch, rate in ((8, 270), (38, 900)):
        assert batch / seconds(model, decodes=batch, length=415) == pytest.approx(rate, rel=0.03)


def small_run(single_step: bool, kernel_profile: str = "rtx-4090") -> tuple[Run, Measured]:
    rng = np.random.default_rng(5)
    count = 60
    arrival = np.sort(rng.integers(0, 3_000_000_000, count))
    prompt, output = rng.integers(20, 900, count), rng.integers(1, 200, count)
    requests = new_requests(arrival, prompt, output, Limits(2048, output))
    cost = measured(profile=kernel_profile)
    parts = Paged(16), VllmV1(max_num_batched_tokens=512), cost
    run = simulate(requests, Memory(8192, 2048), *parts, Options(single_step=single_step))
    return run, cost


def test_sleeping_changes_neither_times_nor_what_is_counted() -> None:
    (slept, cost), (stepped, cost_stepped) = (small_run(step) for step in (False, True))
    assert slept.requests.tolist() == stepped.requests.tolist()
    assert slept.recorder.num_iterations == stepped.recorder.num_iterations
    assert cost.extrapolated() == cost_stepped.extrapolated()
    assert sum(cost.extrapolated().values()) > 0, "the example must leave the range"


def test_uncompiled_code_gives_the_same_times() -> None:
    program = (
        "import hashlib, numpy as np\n"
        "from cost_models import batch_of, measured\n"
        "state = hashlib.sha256()\n"
        "for name in ('rtx-4090', 'h100', 'a100-40-2023'):\n"
        "    model = measured(profile=name)\n"
        "    for sizes in ((1, 5, 0, 0), (300, 1700, 0, 0), (2000, 70, 0, 0), (20, 900, 333, 0),\n"
        "                  (0, 0, 2000, 7000), (1, 3_000_000, 0, 0), (3, 3, 40_000, 1)):\n"
        "        ends = np.zeros(60, np.int64)\n"
        "        model.plan(batch_of(*sizes), ends, 59, 1 << 62)\n"
        "        model.passed(batch_of(*sizes), 59)\n"
        "        state.update(ends.tobytes())\n"
        "    state.update(repr(model.extrapolated()).encode())\n"
        "print(state.hexdigest())"
    )
    digests = []
    for disabled in ("0", "1"):
        path = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "support")])
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "NUMBA_DISABLE_JIT": disabled, "PYTHONPATH": path},
            timeout=250,
        )
        digests.append(done.stdout)
    assert digests[0] == digests[1] != ""


def test_iterations_outside_of_what_was_measured_are_counted_by_what_was_outside() -> None:
    """The table ends at 256 sequences of 16,384 tokens and chunks of 16 to 2,048, one at a time."""
    model = measured()
    model.passed(batch_of(decodes=10, length=1000), 5)
    assert not any(model.extrapolated().values())
    model.passed(batch_of(decodes=257, length=100), 3)
    assert model.extrapolated()["decode"] == 3
    model.passed(batch_of(decodes=1, length=16_380), 10)
    assert model.extrapolated()["decode"] == 3 + 5
    model.passed(batch_of(prompt=8), 1)
    assert model.extrapolated()["prefill"] == 1
    model.passed(batch_of(prompt=100, context=20_000), 1)
    assert model.extrapolated()["context of a prompt"] == 1
    model.passed(batch_of(decodes=10, length=1000, prompt=2045), 1)
    assert model.extrapolated()["tokens"] == 1


@pytest.mark.parametrize("name", shipped())
def test_a_profile_says_what_it_is_and_where_every_number_is_from(name: str) -> None:
    profile = load_profile(name)
    assert profile.kind in {"fitted", "analytic", "measured"}
    assert len(profile.source) > 50
    assert all(len(fact["source"]) > 5 for fact in profile.constants.values())
    assert profile.kind != "measured" or profile.name.endswith("-kvsim")
    assert all(len(digest) == 64 for digest in profile.data.values())
    fitted = [v for kernels in profile.kernels.values() for v in kernels.values() if v.errors]
    assert fitted or name == "a100-40-2023"
    for variant in fitted:
        assert any("mape" in cell for cell in variant.errors.values() if isinstance(cell, dict))


def test_the_errors_that_are_said_are_those_of_the_kernels_in_use() -> None:
    model = measured(profile="rtx-4090")
    kept_out = model.chosen.decode.errors["random"]["mape"]
    line = f"rtx-4090, decode, {model.chosen.decode.name}: {kept_out:.1f} % off rows kept out"
    assert line in model.errors
    assert len(model.errors) == 4
    two_points = measured(profile="a100-40-2023")
    assert all(line.endswith(": no rows kept out") for line in two_points.errors)


def test_what_the_cumulative_maximum_raises_is_little_and_said() -> None:
    """Kernels do get faster with more work here and there, where they cut it otherwise."""
    for name in shipped():
        model = measured(profile=name)
        for table, raised in model.tables.raised.items():
            assert raised.mean < 0.012, (name, table)
        assert f"{100 * raised_share(model):.1f} % of its times raised" in model.notes[0]


def raised_share(model: Measured) -> float:
    return model.tables.raised["decode"].share


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"profile": "h10"}, "profile: unknown profile 'h10', did you mean h100; accepted: a100"),
        ({"profile": None}, "profile: is required; accepted: h200"),
        ({"profile": "/nowhere/x.yaml"}, "profile: /nowhere/x.yaml: No such file"),
        ({"kernel": "fa9"}, "kernel: rtx-4090 has none of 'fa9'"),
        ({"paging": "free"}, "paging: unknown value 'free'"),
        ({"paging": "profile"}, "paging: unknown value 'profile'"),
        ({"host_us": -1.0}, "host_us: must be at least 0 and below 1e9, got -1.0"),
        ({"layers": None}, "layers: is not known; accepted: a number here, or a model that has it"),
        ({"hidden": 0}, "hidden: must be above 0 and below 1e18, got 0"),
        ({"kernel": ""}, "kernel: rtx-4090 has none of ''; accepted: vllm"),
        ({"paging": ""}, "paging: unknown value ''"),
        ({"kv_heads": 3}, "kv_heads: must divide the 32 heads, got 3"),
        ({"vocab": -5}, "vocab: must be at least 0 and below 1e9, got -5"),
        ({"num_active_params": 0}, "num_active_params: must be above 0 and at most num_params"),
        ({"num_expert_params": -3}, "num_expert_params: must be at least what a token passes by"),
        ({"num_embedding_params": 10**13}, "num_embedding_params: must be at least 0 and at most"),
        ({"kv_dtype": "int3"}, "kv_dtype: unknown value 'int3'; accepted: float16"),
        ({"tensor_parallel_size": 0}, "tensor_parallel_size: must be above 0"),
        ({"nvlink_gb_s": -4.0}, "nvlink_gb_s: must be at least 0 and below 1e9, got -4.0"),
        ({"pcie_gb_s": 0.0}, "pcie_gb_s: must be above 0 and below 1e9, got 0.0"),
    ],
)
def test_a_wrong_parameter_is_named_with_its_rule(
    parameters: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match="^" + sentence):
        measured(**parameters)


def test_a_model_unlike_those_measured_is_warned_of() -> None:
    odd = {"heads": 96, "kv_heads": 96, "head_dim": 80, "kv_bytes_per_token": 983_040}
    lines = "\n".join(measured(**odd).warnings)
    assert "decode attention was fitted at head_dim 128 to 128, not 80" in lines
    assert "decode attention was fitted at kv_heads 8 to 8, not 96" in lines
    experts = measured(num_active_params=2_000_000_000, num_expert_params=7_000_000_000)
    assert any("experts are computed like one dense linear" in line for line in experts.warnings)


EXPERIMENT = """\
name: priced
kv_cache: {num_slots: 4096}
model: llama-3-8b
device: h100-sxm
max_model_len: 2048
workload:
  kind: inline
  requests:
    - {prompt_tokens: 300, output_tokens: 40}
    - {arrival_s: 0.1, prompt_tokens: 30, output_tokens: 9}
allocator:
  - {kind: paged, block_size: 32}
  - {kind: contiguous}
cost: {kind: measured}
"""


def test_profile_and_block_size_are_the_experiments_own(tmp_path: Path) -> None:
    experiment = load_experiment(write(tmp_path, EXPERIMENT))
    paged, contiguous = (spec.config["cost"] for spec in experiment.runs())
    assert (paged["profile"], paged["block_size"]) == ("h100-sxm", 32)
    assert contiguous["block_size"] is None
    assert paged["vocab"] == 128_256
    assert "h100, fitted" in experiment.cost_source
    swept = EXPERIMENT + "sweep: {allocator.block_size: [8, 64]}\n"
    specs = load_experiment(write(tmp_path, swept)).runs()
    sizes = {spec.config["cost"]["block_size"] for spec in specs}
    assert sizes == {8, 64, None}


def test_another_profile_file_makes_another_run(tmp_path: Path) -> None:
    profile = dataclasses.replace(load_profile("h100"), name="mine")
    path = tmp_path / "mine.yaml"
    write_profile(path, profile)
    text = EXPERIMENT.replace("{kind: measured}", f"{{kind: measured, profile: {path}}}")
    keys = []
    for note in ((), ("changed",)):
        write_profile(path, dataclasses.replace(profile, notes=note))
        keys.append(load_experiment(write(tmp_path, text)).runs()[0].key("code", "trace"))
    assert keys[0] != keys[1]


def test_the_link_is_slow_below_its_cliff_and_scaled_to_other_links() -> None:
    rates = [link_gb_s(kib * 1024, 64.0) for kib in (1, 2, 4, 16, 24, 28, 64, 1024)]
    assert rates == sorted(rates)
    assert rates[0] == pytest.approx(1.0), "a copy of 1 KiB takes as long as one of 4"
    assert rates[4] == pytest.approx(6.9)
    assert rates[5] == pytest.approx(39.9)
    assert link_gb_s(65536, 32.0) == pytest.approx(51.4 / 2)


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("schema", "kvsim-cost-profile/2", "schema is 'kvsim-cost-profile/2'; accepted: kvsim"),
        ("kernels.linear", None, "kernels.linear: must be a mapping, got null"),
        ("kernels.prefill", {}, "kernels.prefill: needs at least 1, has 0"),
        ("kernels.decode.x.form.a_us", float("nan"), "a_us: must be a finite number, got nan"),
        ("kernels.decode.x.form.us_per_mb", -1.0, "us_per_mb: must be at least 0.0, got -1"),
        ("kernels.decode.x.form.us_per_mbx", 1.0, "us_per_mbx: unknown key"),
        ("kernels.decode.x.grids.0.thousandths", ["nan"], "grids.0: its axes have 108 nodes"),
        ("kernels.decode.x.grids.0.axes.0.0", "batc", "unknown axis 'batc', did you mean batch"),
        ("kernels.decode.x.valid.batch", [5.0], "valid.batch.1: is required"),
        ("kernels.decode.x.valid.batch", [9.0, 5.0], "valid.batch starts at 9, above its end, 5"),
        ("constants.host_us.value", float("nan"), "host_us.value: must be a finite number"),
        ("constants.link_gb_s.value", 0.0, "constants.link_gb_s.value: must be above 0"),
        ("defaults.kernel", "nope", "defaults.kernel: no decode kernel is of 'nope'"),
    ],
)
def test_a_profile_with_a_mistake_is_refused_by_its_path(
    path: str, value: object, said: str, tmp_path: Path
) -> None:
    data = load_profile("rtx-4090").to_data()
    name = next(iter(data["kernels"]["decode"]))
    keys: list[Any] = [
        int(key) if key.isdigit() else key.replace("?", ".")
        for key in path.replace(".x.", f".{name}.").split(".")
    ]
    place: Any = data
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    (tmp_path / "p.yaml").write_text(yaml.safe_dump(data))
    with pytest.raises(ValueError, match=re.escape(said)):
        measured(profile=str(tmp_path / "p.yaml"))


def test_a_sleep_counts_every_iteration_of_a_batch_beyond_the_range() -> None:
    """3,000 sequences are more tokens than were measured, in each of ten iterations."""
    for sizes in ({"decodes": 3000, "length": 100}, {"decodes": 3000, "length": 9, "prompt": 500}):
        slept, stepped = measured(), measured()
        batch = batch_of(**sizes)
        slept.passed(batch, 10)
        for i in range(10):
            if i:
                next_decode(batch)
            stepped.passed(batch, 1)
        assert slept.extrapolated() == stepped.extrapolated()
        assert slept.extrapolated()["tokens"] == 10


def test_mixed_launches_and_small_batches_have_ranges_too() -> None:
    model = measured()
    model.passed(batch_of(decodes=200, length=100, prompt=100), 1)
    assert {name: n for name, n in model.extrapolated().items() if n} == {"prompts with decodes": 1}
    paper = measured(profile="a100-40-2023", heads=8)
    paper.passed(batch_of(decodes=7, length=100), 3)
    assert paper.extrapolated()["decode"] == 3


def test_latent_attention_reads_no_more_weights_than_the_model_has() -> None:
    """DeepSeek-V3 on 8 GPUs: 128 heads of the latent's 576 would be six times its projections."""
    shape = {"layers": 61, "hidden": 7168, "heads": 16, "kv_heads": 1, "head_dim": 576}
    sizes = {"weights_bytes": 84 * 10**9, "num_params": 84 * 10**9, "num_embedding_params": 10**8}
    experts = {"num_active_params": 4_600_000_000, "num_expert_params": 81 * 10**9}
    model = measured(profile="h200", **shape, **sizes, **experts, kv_bytes_per_token=70_272)
    outside = (84 - 81) * 10**9 - 10**8
    assert 61 * model.shape.projection_params <= outside
    assert not any("kv_bytes_per_token" in line for line in model.warnings)
    odd = measured(kv_heads=32)
    assert any("kv_bytes_per_token is 0.5 bytes for each value" in line for line in odd.warnings)


def test_a_profiles_path_starts_at_the_experiments_folder(tmp_path: Path) -> None:
    write_profile(tmp_path / "mine.yaml", load_profile("h100"))
    text = EXPERIMENT.replace("{kind: measured}", "{kind: measured, profile: mine.yaml}")
    experiment = load_experiment(write(tmp_path, text))
    assert experiment.runs()[0].key("code", "trace")
    experiment.runs()[0].build()
