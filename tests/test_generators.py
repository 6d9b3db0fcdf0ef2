"""Generated workloads in experiment files: nested parts, shorthand, paths, what was changed."""

from __future__ import annotations

import pytest

from sim.allocators import ALLOCATORS
from sim.cli import main
from sim.config.experiment import ConfigError, load_experiment

HEAD = """\
name: t
kv_cache: {num_slots: 4096}
allocator: {kind: paged, block_size: 16}
workload:
  kind: synthetic
  num_requests: 100
  arrivals: {kind: gamma, rate: 5, cv: 2}
"""


@pytest.fixture
def write(tmp_path):
    def write_file(lengths):
        path = tmp_path / "t.yaml"
        path.write_text(HEAD + lengths)
        return path

    return write_file


def lines_of(path, *overrides):
    with pytest.raises(ConfigError) as error:
        load_experiment(path, overrides)
    return error.value.lines


def test_lengths_are_resolved_with_their_defaults_and_a_bare_number_written_out(write):
    path = write("  prompt_tokens: {kind: gamma, mean: 90, cv: 1}\n  output_tokens: 7\n")
    workload = load_experiment(path).config["workload"]
    gamma = {"kind": "gamma", "mean": 90.0, "cv": 1.0, "min": 1, "max": None}
    assert workload["prompt_tokens"] == gamma
    assert workload["output_tokens"] == {"kind": "fixed", "tokens": 7, "min": 1, "max": None}


def test_mistakes_in_nested_parts_are_reported_together_at_their_keys(write):
    path = write("  prompt_tokens: {kind: gamma, men: 90, cv: 1}\n  output_tokens: many\n")
    assert lines_of(path, "workload.arrivals.cv=0") == [
        f"{path}:8: workload.prompt_tokens.mean: is required",
        f"{path}:8: workload.prompt_tokens.men: unknown key, did you mean mean; "
        "accepted: mean, cv, min, max",
        f"{path}:9: workload.output_tokens: must be a mapping like {{kind: fixed}} or a number, "
        "got 'many'",
    ]


def test_what_only_a_constructor_finds_is_reported_at_the_nested_key(write):
    path = write("  prompt_tokens: 5\n  output_tokens: {kind: uniform, low: 5, high: 4}\n")
    (line,) = lines_of(path)
    assert line.startswith(f"{path}:9: workload.output_tokens.high: must be a whole number, from 5")


def test_the_path_of_a_table_starts_at_the_folder_of_the_experiment(write, tmp_path):
    path = write("  prompt_tokens: {kind: quantiles, path: q.csv}\n  output_tokens: 4\n")
    (line,) = lines_of(path)
    assert line.startswith(f"{path}:8: workload.prompt_tokens.path: ")
    assert line.endswith("q.csv: No such file or directory")
    (tmp_path / "q.csv").write_text("level,tokens\n0,1\n1,x\n")
    (line,) = lines_of(path)
    assert line.endswith("q.csv: line 3: tokens is 'x'; accepted: a number")
    (tmp_path / "q.csv").write_text("level,tokens\n0,3\n1,3\n")
    assert load_experiment(path).runs()[0].build()[0].prompt_tokens.tolist() == [3] * 100


def test_nested_keys_can_be_swept(write):
    path = write("  prompt_tokens: {kind: gamma, cv: 1}\n  output_tokens: 4\n")
    path.write_text(
        path.read_text() + "sweep: {workload.prompt_tokens.mean: [9, 90], "
        "workload.output_tokens: [4, 5], workload.arrivals.rate: [1, 2]}\n"
    )
    assert len(load_experiment(path).runs()) == 8


def test_check_says_how_many_draws_a_limit_changed(write, capsys):
    path = write("  prompt_tokens: {kind: uniform, low: 1, high: 9, max: 5}\n  output_tokens: 4\n")
    assert main(["check", str(path)]) == 0
    changed = [line for line in capsys.readouterr().out.splitlines() if "clipped" in line]
    assert len(changed) == 1
    assert changed[0].startswith("  workload      100 requests; clipped: prompt_tokens lowered to ")


def test_check_shows_a_bounded_number_of_changes(write, capsys):
    path = write("  prompt_tokens: {kind: uniform, low: 1, high: 99}\n  output_tokens: 4\n")
    limits = ", ".join(str(limit) for limit in range(10, 40))
    path.write_text(path.read_text() + f"sweep: {{workload.prompt_tokens.max: [{limits}]}}\n")
    assert main(["check", str(path)]) == 0
    out = capsys.readouterr().out
    assert out.count("clipped") == 10
    assert "  workload      … and 20 more such changes\n" in out


def test_an_unknown_key_does_not_hide_a_wrong_value_beside_it(write):
    path = write("  prompt_tokens: {kind: gamma, mean: 0, cv: 1, men: 90}\n  output_tokens: 4\n")
    unknown, value = lines_of(path)
    assert unknown.startswith(f"{path}:8: workload.prompt_tokens.men: unknown key")
    assert value.startswith(f"{path}:8: workload.prompt_tokens.mean: must be at least 1 and at ")


@pytest.mark.parametrize(
    ("override", "keys"),
    [
        ("allocator={kind: paged, block_size: 0, blok_size: 4}", ["blok_size", "block_size"]),
        ("scheduler={kind: fcfs, max_num_seqs: 0, max: 4}", ["max", "max_num_seqs"]),
        ("cost={kind: constant, seconds: -1, second: 4}", ["second", "seconds"]),
    ],
)
def test_an_unknown_key_does_not_hide_a_wrong_value_of_any_plug_in(write, override, keys):
    path = write("  prompt_tokens: 5\n  output_tokens: 4\n")
    part = override.partition("=")[0]
    found = [
        line.removeprefix(f"--set {override}: ").partition(": ")[0]
        for line in lines_of(path, override)
    ]
    assert found == [f"{part}.{key}" for key in keys]


def test_bad_requests_are_reported_each_at_its_own_line(tmp_path):
    path = tmp_path / "t.yaml"
    path.write_text(
        HEAD.partition("workload:")[0]
        + "workload:\n  kind: inline\n  requests:\n"
        + "    - {prompt_tokens: 0, output_tokens: 4}\n"
        + "    - {prompt_tokens: 5, output_tokens: 4}\n"
        + "    - {prompt_tokens: 5, output_tokens: 1.5}\n"
    )
    first, second = lines_of(path)
    assert first.startswith(f"{path}:7: workload.requests.0: request 0: prompt_tokens is 0; ")
    assert second.startswith(f"{path}:9: workload.requests.2")


def test_mistakes_in_a_list_of_parts_are_reported_at_their_own_lines(write, tmp_path):
    path = write(
        "  prompt_tokens: 5\n  output_tokens: 4\n  prefix:\n    - 80\n"
        "    - {kind: pool, texts: 9, tokens: {kind: uniform, low: 5}, tekst: 1}\n"
        "    - {kind: shard, tokens: 5}\n"
    )
    found = sorted(lines_of(path))
    assert [line.removeprefix(f"{path}:").partition(": ")[2] for line in found] == [
        "workload.prefix.1.tekst: unknown key, did you mean texts; accepted: texts, tokens, pick, "
        "zipf, order, every_turn",
        "workload.prefix.1.tokens.high: is required",
        "workload.prefix.2.kind: unknown kind 'shard', did you mean shared; accepted: shared, pool",
    ]
    assert [line.removeprefix(f"{path}:").partition(":")[0] for line in found] == ["12", "12", "13"]


def test_what_only_the_constructor_of_an_item_finds_is_reported_at_its_key(write):
    path = write(
        "  prompt_tokens: 5\n  output_tokens: 4\n  prefix:\n"
        "    - {kind: pool, texts: 9, tokens: 4, pick: 10}\n"
    )
    (line,) = lines_of(path)
    assert line.startswith(
        f"{path}:11: workload.prefix.0.pick: must be a whole number, from 1 to 9"
    )


def test_a_path_in_an_item_starts_at_the_folder_of_the_experiment(write, tmp_path):
    part = "{kind: pool, texts: 9, tokens: {kind: quantiles, path: q.csv}}"
    path = write(f"  prompt_tokens: 5\n  output_tokens: 4\n  prefix: [{part}]\n")
    (line,) = lines_of(path)
    assert line.startswith(f"{path}:10: workload.prefix.0.tokens.path: ")
    (tmp_path / "q.csv").write_text("level,tokens\n0,3\n1,3\n")
    assert load_experiment(path).runs()[0].build()[0].prompt_tokens.tolist() == [8] * 100


@pytest.mark.parametrize(
    ("needs", "block"),
    [
        ("prefix identity", "prefix: [80]"),
        ("output identity", "turns: {kind: chat, count: 2}"),
        ("sessions", "turns: {kind: chat, count: 2}"),
        ("follow-ups", "turns: {kind: closed_loop, users: 2}"),
        ("samples", "num_samples: 2"),
        ("beams", "beam_width: 2"),
    ],
)
def test_what_an_allocator_needs_must_be_provided_by_a_block(write, monkeypatch, needs, block):
    monkeypatch.setattr(ALLOCATORS["paged"], "needs", frozenset({needs}), raising=False)
    lengths = "  prompt_tokens: 5\n  output_tokens: 4\n"
    (line,) = lines_of(write(lengths))
    assert line.endswith(
        f"allocator: paged needs {needs} of the trace; synthetic provides arrivals"
    )
    load_experiment(write(f"{lengths}  {block}\n"))


def test_whether_a_workload_within_a_workload_draws_decides_about_seeds(tmp_path):
    path = tmp_path / "t.yaml"
    inner = "{kind: inline, requests: [{prompt_tokens: 5, output_tokens: 4}]}"
    head = HEAD.partition("workload:")[0] + "seeds: 3\n"
    path.write_text(f"{head}workload: {{kind: filter, workload: {inner}}}\n")
    assert len(load_experiment(path).runs()) == 1
    path.write_text(f"{head}workload: {{kind: mix, workloads: [{inner}]}}\n")
    assert len(load_experiment(path).runs()) == 3
    lengths = "arrivals: {kind: all_at_once}, prompt_tokens: 5, output_tokens: 4"
    inner = f"{{kind: synthetic, num_requests: 9, {lengths}}}"
    path.write_text(f"{head}workload: {{kind: filter, workload: {inner}}}\n")
    assert len(load_experiment(path).runs()) == 3


def test_mistakes_in_workloads_of_workloads_are_reported_at_their_own_keys(tmp_path):
    path = tmp_path / "t.yaml"
    path.write_text(
        HEAD.partition("workload:")[0] + "workload:\n  kind: mix\n  workloads:\n"
        "    - {kind: table, path: none.csv}\n"
        "    - {kind: filter, limit: 0, workload: {kind: azure, path: t.csv, limits: 5}}\n"
        "    - {kind: mixed}\n"
    )
    unknown, other = lines_of(path)
    key = "workload.workloads.1.workload.limits"
    assert unknown.startswith(f"{path}:8: {key}: unknown key, did you mean limit; accepted: ")
    assert other.startswith(f"{path}:9: workload.workloads.2.kind: unknown kind 'mixed', did you ")
    path.write_text(
        HEAD.partition("workload:")[0] + "workload:\n  kind: mix\n  workloads:\n"
        "    - {kind: filter, workload: {kind: azure, path: none.csv}}\n"
    )
    (line,) = lines_of(path)
    assert line.startswith(f"{path}:7: workload.workloads.0.workload.path: {tmp_path}")
    assert line.endswith("none.csv: No such file or directory")
