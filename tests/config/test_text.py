"""YAML text and overrides: what is read, what is refused, and that nothing else escapes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from experiment_files import GOOD, errors_of, write
from sim.config.experiment import ConfigError, load_experiment
from sim.config.yaml_nodes import parse_document


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"", ":1: the file is empty; accepted: a mapping of keys"),
        (b"# nothing\n", ":1: the file is empty; accepted: a mapping of keys"),
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
