"""Every error of an experiment file: its sentence, file and line, and never anything else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sim.experiment import ConfigError, load_experiment
from sim.yaml_nodes import parse_document

GOOD = """\
name: example
kv_cache: {num_slots: 256}
max_model_len: 64
workload:
  kind: inline
  requests:
    - {prompt_tokens: 20, output_tokens: 5}
allocator: {kind: paged}
"""
HEAD = GOOD.partition("workload:")[0]


def write(folder: Path, text: str) -> Path:
    path = folder / "x.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def errors_of(folder: Path, text: str, *overrides: str) -> list[str]:
    """The error lines, without the folder."""
    path = write(folder, text)
    with pytest.raises(ConfigError) as caught:
        load_experiment(path, overrides)
    assert str(caught.value) == "\n".join(caught.value.lines)
    return [line.removeprefix(f"{folder}/") for line in caught.value.lines]


def test_a_good_file_loads(tmp_path: Path) -> None:
    assert load_experiment(write(tmp_path, GOOD)).name == "example"


# each case: lines added to or replacing those of GOOD, and the only error they give
CASES = {
    "an unknown key": (
        GOOD + "sheduler: {kind: fcfs}\n",
        "x.yaml:9: sheduler: unknown key, did you mean scheduler; accepted: name, description, ",
    ),
    "an unknown kind": (
        GOOD.replace("kind: paged", "kind: pagd"),
        "x.yaml:8: allocator.kind: unknown kind 'pagd', did you mean paged; "
        "accepted: contiguous, paged, unbounded",
    ),
    "an unknown parameter": (
        GOOD.replace("paged}", "paged, blocksize: 8}"),
        "x.yaml:8: allocator.blocksize: unknown key, did you mean block_size; "
        "accepted: block_size, watermark",
    ),
    "text for a number": (
        GOOD.replace("paged}", 'paged, block_size: "8"}'),
        "x.yaml:8: allocator.block_size: must be a whole number, got '8'",
    ),
    "a boolean for a number": (
        GOOD.replace("paged}", "paged, block_size: true}"),
        "x.yaml:8: allocator.block_size: must be a whole number, got true",
    ),
    "a fraction for a whole number": (
        GOOD.replace("paged}", "paged, block_size: 8.5}"),
        "x.yaml:8: allocator.block_size: must be a whole number, got 8.5",
    ),
    "a number for a boolean": (
        GOOD + "scheduler: {kind: fcfs, enable_chunked_prefill: 1}\n",
        "x.yaml:9: scheduler.enable_chunked_prefill: must be true or false, got 1",
    ),
    "yes is text, not true": (
        GOOD + "scheduler: {kind: fcfs, enable_chunked_prefill: yes}\n",
        "x.yaml:9: scheduler.enable_chunked_prefill: must be true or false, got 'yes'",
    ),
    "a word that is not among the accepted ones": (
        GOOD.replace("paged}", "contiguous, reservation: orcle}"),
        "x.yaml:8: allocator.reservation: unknown value 'orcle', did you mean oracle; "
        "accepted: max, pow2, oracle, max_tokens",
    ),
    "a value that the constructor refuses": (
        GOOD.replace("paged}", "paged, block_size: 0}"),
        "x.yaml:8: allocator.block_size: must be at least 1 slot, got 0",
    ),
    "a combination that the constructor refuses": (
        GOOD + "scheduler:\n  kind: fcfs\n  enable_chunked_prefill: true\n",
        "x.yaml:11: scheduler.enable_chunked_prefill: chunks need a limit, "
        "set max_num_batched_tokens",
    ),
    "a block larger than the pool": (
        GOOD.replace("paged}", "paged, block_size: 512}"),
        "x.yaml:8: allocator.block_size: a block of 512 slots is larger than the pool of 256",
    ),
    "a kind without a mapping": (
        GOOD + "scheduler: fcfs\n",
        "x.yaml:9: scheduler: must be a mapping like {kind: fcfs}, got 'fcfs'",
    ),
    "a mapping without a kind": (
        GOOD.replace("kind: paged", "block_size: 8"),
        "x.yaml:8: allocator.kind: is required; accepted: contiguous, paged, unbounded",
    ),
    "a required parameter": (
        HEAD
        + "workload:\n  kind: sharegpt\n"
        + "  arrivals: {kind: poisson, rate: 1}\nallocator: {kind: paged}\n",
        "x.yaml:4: workload.num_requests: is required",
    ),
    "an unknown kind of arrivals": (
        HEAD
        + "workload: {kind: sharegpt, num_requests: 9, arrivals: {kind: poison, rate: 2}}\n"
        + "allocator: {kind: paged}\n",
        "x.yaml:4: workload.arrivals.kind: unknown kind 'poison', did you mean poisson; ",
    ),
    "a bad rate of arrivals": (
        HEAD
        + "workload: {kind: sharegpt, num_requests: 9, arrivals: {kind: poisson, rate: -2}}\n"
        + "allocator: {kind: paged}\n",
        "x.yaml:4: workload.arrivals.rate: ",
    ),
    "a zero pool": (
        GOOD.replace("256", "0"),
        "x.yaml:2: kv_cache.num_slots: must be at least 1, got 0",
    ),
    "a pool said in two ways": (
        GOOD.replace("256", "256, block_size: 16"),
        "x.yaml:2: kv_cache: must say the number of slots in one way; "
        "accepted: {num_slots} or {num_gpu_blocks, block_size}",
    ),
    "an unknown key of the pool": (
        GOOD.replace("num_slots: 256", "num_slots: 256, num_slot: 3"),
        "x.yaml:2: kv_cache.num_slot: unknown key, did you mean num_slots; "
        "accepted: num_slots, num_gpu_blocks, block_size",
    ),
    "a model without weights on a device": (
        GOOD.replace(
            "kv_cache: {num_slots: 256}", "model: {kv_bytes_per_token: 9}\ndevice: a100-40gb"
        ),
        "x.yaml:2: model.weights_bytes: is needed to find the pool that device leaves; "
        "or give kv_cache.num_slots",
    ),
    "weights that do not fit": (
        GOOD.replace("kv_cache: {num_slots: 256}", "model: opt-66b\ndevice: a100-40gb"),
        "x.yaml:3: device: 122.41 GiB of weights (opt-66b) leave no KV memory in 0.9 of "
        "39.39 GiB (a100-40gb-sxm)",
    ),
    "an unknown model": (
        GOOD + "model: opt13b\n",
        "x.yaml:9: model: unknown model 'opt13b', did you mean opt-13b; accepted: opt-13b, ",
    ),
    "an unknown device": (
        GOOD + "device: a100-40g-sxm\n",
        "x.yaml:9: device: unknown device 'a100-40g-sxm', did you mean a100-40gb-sxm; accepted: ",
    ),
    "a name that is no folder": (
        GOOD.replace("example", "a/b"),
        "x.yaml:1: name: 'a/b' is no folder name; accepted: letters, digits, _ . and -",
    ),
    "a name that climbs": (
        GOOD.replace("example", '".."'),
        "x.yaml:1: name: '..' is no folder name; accepted: letters, digits, _ . and -",
    ),
    "a missing workload": (
        "name: x\nkv_cache: {num_slots: 9}\nmax_model_len: 9\nallocator: {kind: paged}\n",
        "x.yaml:1: workload: is required",
    ),
    "an empty allocator": (
        GOOD.replace("{kind: paged}", ""),
        "x.yaml:8: allocator: is required; accepted: {kind: contiguous, paged, unbounded",
    ),
    "no seeds": (GOOD + "seeds: 0\n", "x.yaml:9: seeds: got 0; accepted: a number from 1 to"),
    "a seed twice": (GOOD + "seeds: [1, 1]\n", "x.yaml:9: seeds: has a seed twice; accepted: "),
    "a negative limit": (
        GOOD + "slo: {ttft_s: -1}\n",
        "x.yaml:9: slo.ttft_s: must be above 0.0, got -1",
    ),
    "an unknown figure": (
        GOOD + "figures: [waist]\n",
        "x.yaml:9: figures.0: unknown figure 'waist', did you mean waste; accepted: waste, ",
    ),
    "a figure twice": (
        GOOD + "figures:\n  - waste\n  - waste\n",
        "x.yaml:11: figures.1: waste is named twice",
    ),
    "an unknown rule of max_tokens": (
        GOOD.replace("kind: inline", "kind: inline\n  max_tokens: colum"),
        "x.yaml:6: workload.max_tokens: unknown rule 'colum'; "
        "accepted: output, max_model_len, column, or 1 to ",
    ),
    "max_tokens from a column that is not there": (
        GOOD.replace("kind: inline", "kind: inline\n  max_tokens: column"),
        "x.yaml:6: workload.max_tokens: inline has no max_tokens; "
        "accepted: output, max_model_len or a number",
    ),
    "a reservation of max_tokens that nobody gives": (
        GOOD.replace("paged}", "contiguous, reservation: max_tokens}"),
        "x.yaml:8: allocator.reservation: max_tokens needs workload.max_tokens, "
        "because the trace has none of its own",
    ),
    "a negative length": (
        GOOD.replace("prompt_tokens: 20", "prompt_tokens: -20"),
        "x.yaml:7: workload.requests.0: request 0: prompt_tokens is -20",
    ),
    "text in a column": (
        GOOD.replace("prompt_tokens: 20", "prompt_tokens: many"),
        "x.yaml:7: workload.requests.0.prompt_tokens: must be a whole number or a number, "
        "got 'many'",
    ),
    "not a number": (
        GOOD.replace("prompt_tokens: 20", "arrival_s: .nan, prompt_tokens: 20"),
        "x.yaml:7: workload.requests.0.arrival_s: .nan is no finite number of at most 4.6e18",
    ),
    "an empty trace": (
        GOOD.replace("requests:\n    - {prompt_tokens: 20, output_tokens: 5}", "requests: []"),
        "x.yaml:6: workload.requests: ",
    ),
    "a trace file that is missing": (
        HEAD + "workload: {kind: azure, path: no.csv}\nallocator: {kind: paged}\n",
        "x.yaml:4: workload.path: ",
    ),
    "a list of no allocators": (
        GOOD.replace("{kind: paged}", "[]"),
        "x.yaml:8: allocator: must name at least one allocator",
    ),
    "a key given twice": (
        GOOD + "name: other\n",
        "x.yaml:9: name: is given twice, first in line 1",
    ),
    "a tag that builds objects": (
        GOOD + "description: !!python/object/apply:os.getcwd []\n",
        "x.yaml:9: description: the tag tag:yaml.org,2002:python/object/apply:os.getcwd "
        "has no meaning here",
    ),
    "an integer too large for a column": (
        GOOD + f"seeds: {'9' * 5000}\n",
        "x.yaml:9: seeds: 999999999999999999999999999999… is no finite number of at most",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_one_error_is_one_line_with_its_place(tmp_path: Path, case: str) -> None:
    text, expected = CASES[case]
    lines = errors_of(tmp_path, text)
    assert len(lines) == 1, lines
    assert lines[0].startswith(expected), lines[0]
    assert "\n" not in lines[0]


def test_all_errors_are_shown_at_once(tmp_path: Path) -> None:
    text = """\
name: 5
kv_cache: {num_slots: many}
max_model_len: 64
workload: {kind: azure, path: no.csv}
allocator:
  - {kind: paged, block_size: 0}
  - {kind: pagd}
cost: {kind: linear, base_s: slow}
figures: [wast]
sweep: {seeds: [1, 2]}
"""
    lines = errors_of(tmp_path, text)
    keys = [line.split(": ")[1] for line in lines]
    assert sorted(keys) == sorted(
        [
            "name",
            "kv_cache.num_slots",
            "workload.path",
            "allocator.0.block_size",
            "allocator.1.kind",
            "cost.base_s",
            "figures.0",
            "sweep.seeds",
        ]
    )


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"", ":1: the file is empty; accepted: an experiment"),
        (b"# nothing\n", ":1: the file is empty; accepted: an experiment"),
        (b"- a\n- b\n", ":1: is a list of 2; accepted: a mapping of keys"),
        (b"just words\n", ":1: is only 'just words'; accepted: a mapping of keys"),
        (
            b"name: x\nbad: [1,\nmore: 2\n",
            ":4: not YAML: expected ',' or ']', but got '<stream end>' (begun in line 2)",
        ),
        (b"name: x\n\tb: 1\n", ":2: not YAML: "),
        (b"a: 1\n---\nb: 2\n", ":2: not YAML: but found another document"),
        (b"name: x\nb: \xff\n", ":2: the text is not UTF-8"),
        (b"name: x\nb: \x00\n", ":2: not YAML: an unprintable character"),
        (b'name: "\\UFFFFFFFF"\n', ":1: not YAML: "),
        (b"? [a, b]\n: 1\n", ":1: a key must be text"),
        (b"a: " + b"[" * 3000, ":1: nested too deeply"),
        (b"a: " + b"[" * 60 + b"]" * 60, ":1: nested too deeply; accepted: 50 levels"),
        (b"a: &a [*a]\n", ":1: nested too deeply; accepted: 50 levels"),
        (b"a: *b\n", ":1: not YAML: found undefined alias"),
    ],
)
def test_a_file_that_is_no_mapping_is_one_sentence(
    tmp_path: Path, raw: bytes, expected: str
) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(raw)
    with pytest.raises(ConfigError) as caught:
        load_experiment(path)
    assert caught.value.lines[0].startswith(f"{path}{expected}"), caught.value.lines


def test_a_bomb_of_aliases_is_refused_quickly(tmp_path: Path) -> None:
    levels = [f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 9)}]" for i in range(1, 40)]
    lines = errors_of(tmp_path, "\n".join(["l0: &l0 [x, x]", *levels]) + "\n")
    assert len(lines) == 1
    assert "aliases stand for more than 10,000 values" in lines[0]


def test_a_file_that_is_missing_or_a_folder_is_one_sentence(tmp_path: Path) -> None:
    for path, reason in ((tmp_path / "no.yaml", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(ConfigError, match=rf"^{path}:1: {reason}.*; accepted: a YAML file$"):
            load_experiment(path)


def test_numbers_are_those_of_yaml_1_2() -> None:
    text = "{a: 1e-4, b: 1E5, c: .5, d: 010, e: yes, f: 1:30, g: 2023-01-01, h: ~, i: True}"
    assert parse_document(text, "x").data == {
        "a": 1e-4,
        "b": 1e5,
        "c": 0.5,
        "d": 10,
        "e": "yes",
        "f": "1:30",
        "g": "2023-01-01",
        "h": None,
        "i": True,
    }


def test_aliases_and_whole_numbers_for_fractions_are_fine(tmp_path: Path) -> None:
    text = GOOD.replace("{kind: paged}", "[&p {kind: paged, watermark: 0}, {kind: unbounded}]")
    experiment = load_experiment(write(tmp_path, text + "cost: {kind: linear, base_s: 1e-2}\n"))
    assert experiment.config["cost"]["base_s"] == 0.01
    assert experiment.config["allocator"][0]["watermark"] == 0.0


def test_an_override_replaces_adds_and_reaches_into_lists(tmp_path: Path) -> None:
    text = GOOD.replace("{kind: paged}", "[{kind: paged}, {kind: unbounded}]")
    overrides = ["max_model_len=32", "allocator.0.block_size=8", "cost.kind=constant", "seeds=[3]"]
    config = load_experiment(write(tmp_path, text), overrides).config
    assert config["max_model_len"] == 32
    assert config["allocator"][0]["block_size"] == 8
    assert config["cost"] == {"kind": "constant", "seconds": 0.02}
    assert config["seeds"] == [3]


def test_a_parameter_of_the_default_scheduler_needs_no_kind(tmp_path: Path) -> None:
    config = load_experiment(write(tmp_path, GOOD), ["scheduler.max_num_seqs=7"]).config
    assert (config["scheduler"]["kind"], config["scheduler"]["max_num_seqs"]) == ("fcfs", 7)


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("allocator.block_size=0", "allocator.block_size: must be at least 1 slot, got 0"),
        ("max_model=5", "max_model: unknown key, did you mean max_model_len; accepted: name, "),
        ("allocator={kind: pagd}", "allocator.kind: unknown kind 'pagd', did you mean paged"),
        ("seeds", "must have the form a.b=value"),
        ("a..b=1", "must have the form a.b=value"),
        ("seeds=[1", "not YAML: "),
        ("name.x=1", "name is 'example' and has no keys"),
        ("workload.requests.5=1", "workload.requests is a list of 1; accepted: "),
    ],
)
def test_an_error_of_an_override_names_the_override(
    tmp_path: Path, override: str, expected: str
) -> None:
    lines = errors_of(tmp_path, GOOD, override)
    assert len(lines) == 1, lines
    assert lines[0].startswith(f"--set {override}: {expected}"), lines[0]


def test_a_class_of_somebody_else_is_used_by_module_and_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = """\
from sim.allocators.paged import Paged
class Mine(Paged):
    kind = "mine"
    def __init__(self, block_size: int = 16, shape: tuple[int, int] = (1, 2)) -> None:
        super().__init__(block_size)
        if not isinstance(shape, tuple):
            raise ValueError("shape: is no tuple")
        self.shape = shape
class Strange:
    pass
"""
    (tmp_path / "kvsim_test_plugin.py").write_text(module)
    (tmp_path / "kvsim_test_broken.py").write_text("raise RuntimeError('broken\\nby design')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    text = GOOD.replace("paged}", '"kvsim_test_plugin:Mine", shape: [3, 4]}')
    spec = load_experiment(write(tmp_path, text)).runs()[0]
    assert spec.config["allocator"]["shape"] == [3, 4]
    assert vars(spec.build()[3])["shape"] == (3, 4)
    assert spec.run_id == "kvsim_test_plugin_Mine-seed=0"
    refused = {
        "kvsim_test_plugin:Strange": "is no Allocator; accepted: a subclass of it",
        "kvsim_test_plugin:Nobody": "cannot be imported: AttributeError: module",
        "no_such_module:X": "cannot be imported: ModuleNotFoundError: No module named",
        "kvsim_test_broken:X": "cannot be imported: RuntimeError: broken by design",
        "sim.allocators:Allocator": "cannot be used: it does not define append, ",
    }
    for kind, reason in refused.items():
        lines = errors_of(tmp_path, GOOD.replace("paged}", f'"{kind}"}}'))
        assert len(lines) == 1, lines
        assert lines[0].startswith(f"x.yaml:8: allocator.kind: {kind} {reason}"), lines[0]


def test_an_error_within_a_trace_file_has_both_places(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,NaN,2\n")
    text = HEAD + "workload: {kind: table, path: t.csv}\nallocator: {kind: paged}\n"
    lines = errors_of(tmp_path, text)
    assert len(lines) == 1
    assert lines[0].startswith(f"x.yaml:4: workload: {tmp_path}/t.csv: line 2: prompt_tokens ")


def test_a_path_starts_at_the_folder_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,5,2\n")
    text = HEAD + ("workload: {kind: table, path: t.csv}\nallocator: {kind: paged}\n")
    spec = load_experiment(write(tmp_path, text)).runs()[0]
    assert spec.build()[0].prompt_tokens.tolist() == [5]
    assert spec.config["workload"]["path"] == "t.csv"


def test_a_path_may_start_at_the_shared_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,7,2\n")
    text = HEAD + ("workload: {kind: table, path: $KVSIM_SHARED/t.csv}\nallocator: {kind: paged}\n")
    monkeypatch.setenv("KVSIM_SHARED", str(tmp_path))
    spec = load_experiment(write(tmp_path, text)).runs()[0]
    assert spec.build()[0].prompt_tokens.tolist() == [7]
    monkeypatch.delenv("KVSIM_SHARED")
    assert errors_of(tmp_path, text) == [
        "x.yaml:4: workload.path: needs the environment variable KVSIM_SHARED, which is not set"
    ]


def test_reading_an_experiment_imports_neither_matplotlib_nor_torch() -> None:
    code = (
        "import sys, sim.experiment; print(sorted({'torch', 'triton', 'matplotlib'}"
        " & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


WORDS = """name kv_cache num_slots max_model_len workload kind inline requests allocator paged
    block_size sweep seeds slo figures waste model device ~ 1 -3 1e-4 .nan true x
    &a *a !!int !x << | > '"""
words = st.sampled_from(WORDS.split())
punctuation = st.sampled_from(["{", "}", "[", "]", ": ", ", ", "\n", "\n  ", "- ", " ", "? ", "#"])
yaml_like = st.lists(words | punctuation, max_size=30).map("".join)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(text=st.text(max_size=80) | yaml_like)
def test_no_text_escapes_as_anything_but_a_config_error(text: str, tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(ConfigError) as caught:
        load_experiment(path)
    for line in caught.value.lines:
        assert line.startswith(f"{path}:")
        line.encode()


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
KEYS = """name description model device gpu_memory_utilization activation_bytes kv_cache
    max_model_len workload workload.requests workload.max_tokens allocator allocator.block_size
    allocator.watermark scheduler scheduler.max_num_seqs cost cost.base_s seeds sweep slo figures"""


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(key=st.sampled_from(KEYS.split()), value=values)
def test_no_value_of_a_key_escapes_as_anything_but_a_config_error(
    key: str, value: object, tmp_path: Path
) -> None:
    path = write(tmp_path, GOOD)
    try:
        load_experiment(path, [f"{key}={json.dumps(value)}"])
    except ConfigError as error:
        for line in error.lines:
            assert line.startswith(("--set ", str(path)))
