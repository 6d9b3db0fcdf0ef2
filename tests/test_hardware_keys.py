"""The keys model and device of an experiment, and how the model is served."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sim.cli import main
from sim.config.experiment import Experiment, load_experiment
from sim.config.point import ConfigError
from sim.hardware.by_name import find_model
from sim.hardware.types import Model, on_one_gpu, with_dtypes

SMALL: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 1000,
    "max_position_embeddings": 512,
    "tie_word_embeddings": True,
}
SMALL_PARAMS = 1000 * 64 + 2 * (4 * 64 * 64 + 3 * 64 * 128 + 2 * 64) + 64
SMALL_KV = 2 * 2 * 64 * 2


def write(folder: Path, content: Any, name: str = "config.json") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name
    text = content if isinstance(content, str) else json.dumps(content)
    file.write_text(text, encoding="utf-8")
    return file


HEAD = """name: x
workload: {kind: inline, requests: [{arrival_s: 0, prompt_tokens: 3, output_tokens: 2}]}
allocator: {kind: paged}
"""


def load(folder: Path, text: str) -> Experiment:
    return load_experiment(write(folder, HEAD + text, "x.yaml"))


def lines_of(folder: Path, text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(folder, text)
    return [line.removeprefix(f"{folder}/") for line in caught.value.lines]


@pytest.mark.parametrize("path", ["m/config.json", "m", "./m", "{config: m}"])
def test_an_experiment_names_a_config_beside_it(tmp_path: Path, path: str) -> None:
    write(tmp_path / "m", SMALL)
    experiment = load(tmp_path, f"device: {{memory_bytes: 1000000}}\nmodel: {path}\n")
    config = experiment.runs()[0].config
    assert config["max_model_len"] == 512
    assert config["kv_cache"]["num_slots"] == (900_000 - 2 * SMALL_PARAMS) // SMALL_KV
    assert any(f"  m, {tmp_path}/" in line for line in experiment.budget_lines())


def test_a_preset_wins_over_a_folder_of_its_name(tmp_path: Path) -> None:
    write(tmp_path / "opt-13b", SMALL)
    experiment = load(tmp_path, "device: a100-40gb\nmodel: opt-13b\n")
    assert experiment.runs()[0].config["kv_cache"]["num_slots"] == 15_090


def test_a_window_warns_in_the_budget_of_the_experiment(tmp_path: Path) -> None:
    experiment = load(tmp_path, "device: a100-40gb\nmodel: mistral-7b\n")
    model = find_model("mistral-7b")
    assert model is not None
    assert experiment.warnings == (f"mistral-7b {model.warnings[0]}",)
    assert experiment.budget_lines()[-1] == f"warning       mistral-7b {model.warnings[0]}"


def test_numbers_beside_a_config_replace_what_it_gives(tmp_path: Path) -> None:
    write(tmp_path / "m", {**SMALL, "quantization_config": {"quant_method": "mxfp4"}})
    device = "device: {memory_bytes: 1000000}\n"
    assert lines_of(tmp_path, device + "model: m\n") == [
        "x.yaml:5: model.weights_bytes: is needed to find the pool that device leaves (the size "
        "of weights quantized by mxfp4 is not computed); or give kv_cache.num_slots"
    ]
    given = load(tmp_path, device + "model: {config: m, weights_bytes: 100000, max_len: 64}\n")
    config = given.runs()[0].config
    assert config["max_model_len"] == 64
    assert config["kv_cache"]["num_slots"] == 800_000 // SMALL_KV


def test_a_model_by_hand_may_say_what_time_depends_on(tmp_path: Path) -> None:
    text = (
        "device: {memory_bytes: 1000000, memory_gb_s: 1e3, bf16_tflops: 2, pcie_gb_s: 3}\n"
        "model: {kv_bytes_per_token: 1024, num_params: 100000, layers: 2, heads: 4, kv_heads: 2,"
        " head_dim: 64}\ntensor_parallel_size: 2\n"
    )
    config = load(tmp_path, text).runs()[0].config
    assert config["kv_cache"]["num_slots"] == (900_000 - 100_000) // 512


def test_how_a_model_is_served_can_be_swept(tmp_path: Path) -> None:
    text = "device: a100-80gb\nmodel: llama-2-13b\n"
    sweep = "sweep: {tensor_parallel_size: [1, 2, 4], kv_cache_dtype: [auto, fp8]}\n"
    experiment = load(tmp_path, text + sweep)
    slots = [spec.config["kv_cache"]["num_slots"] for spec in experiment.runs()]
    usable, weights = int(84_975_927_951 * 0.9), 2 * 13_015_864_320
    assert slots == [
        (usable - weights // num_gpus) // (2 * 5120 * 40 * kv_bytes // num_gpus)
        for num_gpus in (1, 2, 4)
        for kv_bytes in (2, 1)
    ]
    assert sum("memory" in line for line in experiment.budget_lines()) == 6


WRONG = {
    "model: none.json": "x.yaml:4: model: {folder}/none.json: No such file or directory",
    "model: m/none": "x.yaml:4: model: unknown model 'm/none'; accepted: opt-13b, ",
    "model: {config: none}": "x.yaml:4: model.config: {folder}/none: No such file or directory",
    "model: $KVSIM_SHARED/x": "x.yaml:4: model: needs the environment variable KVSIM_SHARED",
    "model: {config: m, kv_heads: 2}": "x.yaml:4: model.kv_heads: unknown key; accepted: config, ",
    "model: {kv_bytes_per_token: 9, num_params: 5, num_active_params: 6}": (
        "x.yaml:4: model.num_active_params: must be at most num_params, 5"
    ),
    "model: {kv_bytes_per_token: 9, heads: 4, kv_heads: 3}": (
        "x.yaml:4: model.kv_heads: must divide heads, 4; got 3"
    ),
    "model: opt-13b\ntensor_parallel_size: 3": (
        "x.yaml:5: tensor_parallel_size: 3 does not divide the 40 attention heads of opt-13b"
    ),
    "model: opt-13b\nkv_cache_dtype: int4": (
        "x.yaml:5: kv_cache_dtype: unknown value 'int4'; accepted: auto, float16, "
    ),
    "kv_cache: {num_slots: 99}\ngpu_memory_utilization: 0.5": (
        "x.yaml:5: gpu_memory_utilization: divides a device's memory, but there is no model and"
    ),
    "kv_cache: {num_slots: 99}\ntensor_parallel_size: 2": (
        "x.yaml:5: tensor_parallel_size: says how a model is served, but there is no model"
    ),
    "device: {memory_bytes: 9, memory_gb_s: 0}": (
        "x.yaml:4: device.memory_gb_s: must be above 0.0, got 0"
    ),
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_model_is_one_sentence(
    tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KVSIM_SHARED", raising=False)
    write(tmp_path / "m", SMALL)
    lines = lines_of(tmp_path, text + "\n")
    assert len(lines) == 1, lines
    assert lines[0].startswith(WRONG[text].replace("{folder}", str(tmp_path)))


def test_a_run_shows_its_budget_and_what_is_not_simulated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path, HEAD + "device: l4\nmodel: mistral-7b\n", "x.yaml")
    assert main(["run", str(file), "--out", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr().out.splitlines()
    experiment = load_experiment(file)
    budget = experiment.budget_lines()
    assert shown[: len(budget)] == budget
    assert f"warning: {experiment.warnings[0]}" in shown[len(budget) :]
    written = json.loads((tmp_path / "out/x/experiment.json").read_text(encoding="utf-8"))
    assert written["budget"] == budget


def test_kv_of_one_byte_a_token_stays_one_however_it_is_divided() -> None:
    model = Model("m", kv_bytes_per_token=1, weights_bytes=10**6, heads=8, kv_heads=8)
    assert with_dtypes(model, "auto", "fp8").kv_bytes_per_token == 1
    assert on_one_gpu(model, 8).kv_bytes_per_token == 1
