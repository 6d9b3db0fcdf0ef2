"""Experiments of policies, which have no engine: what a file may say, and its runs."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from experiment_files import errors_of, ids, load
from sim.config.replays import BOUNDS
from sim.runs.outcome import draw_again, run_and_write
from sim.runs.runner import RunOptions

LINE = '{{"timestamp": {0}, "input_length": 1024, "output_length": 5, "hash_ids": [{1}, {2}]}}\n'
# two conversations that take turns: with room for one of them lru always drops the other
CHAT = "".join(LINE.format(i * 1000, i % 2, 2 + i % 2) for i in range(6))
GOOD = """\
name: example
policies: [lru]
traces:
  chat: {workload: {kind: file, path: chat.jsonl}, block_size: 512}
"""
SIZES = "capacity_tokens: [1024, 2048]\n"
FIGURES = "figures: [prefix_policies]\n"


@pytest.fixture(autouse=True)
def _chat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "chat.jsonl").write_text(CHAT)
    monkeypatch.setenv("KVSIM_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("KVSIM_SHARED", raising=False)


def test_runs_are_traces_by_policies_by_capacities_and_the_bounds_are_always_there(
    tmp_path: Path,
) -> None:
    more = GOOD + "  again: {workload: {kind: file, path: chat.jsonl}}\n"
    assert ids(load(tmp_path, more + SIZES)) == [
        f"{trace}-{policy}-capacity={tokens}"
        for trace in ("chat", "again")
        for policy in ("unbounded", "clairvoyant", "lru", "none")
        for tokens in (1024, 2048)
    ]
    assert set(BOUNDS) == {"unbounded", "clairvoyant", "none"}


def test_capacities_left_out_are_what_an_unbounded_cache_holds_halved(tmp_path: Path) -> None:
    experiment = load(tmp_path, GOOD)
    found = {spec.config["capacity_tokens"] for spec in experiment.runs()}
    assert found == {512, 1024, 2048}  # of four blocks
    assert experiment.budget_lines() == [
        "trace         chat: 6 requests, 4 different blocks of 512; a cache of all of them would "
        "serve 66.7 % of the prompt tokens",
        "  taken for mooncake: 6",
    ]


def test_a_replay_by_hand(tmp_path: Path) -> None:
    """Room for two blocks: lru finds nothing, the clairvoyant keeps one conversation of two."""
    outcome = run_and_write(load(tmp_path, GOOD + SIZES), tmp_path / "out", RunOptions())
    assert outcome.problems == []
    table = pd.read_csv(tmp_path / "out/summary.csv")
    assert set(table["status"]) == {"finished"}
    assert set(table["num_prompt_tokens"]) == {6144}
    hits = table.set_index(["policy", "capacity_tokens"])["num_hit_tokens"]
    assert hits.to_dict() == {
        ("unbounded", 1024): 4096,
        ("unbounded", 2048): 4096,
        ("clairvoyant", 1024): 2048,
        ("clairvoyant", 2048): 4096,
        ("lru", 1024): 0,
        ("lru", 2048): 4096,
        ("none", 1024): 0,
        ("none", 2048): 0,
    }


def test_what_is_done_is_not_replayed_again_unless_the_trace_changes(tmp_path: Path) -> None:
    from sim.config import replays, runspec

    def manifests() -> dict[str, bytes]:
        found = (tmp_path / "out/runs").glob("*/manifest.json")
        return {path.parent.name: path.read_bytes() for path in found}

    run_and_write(load(tmp_path, GOOD + SIZES), tmp_path / "out", RunOptions())
    before = manifests()
    run_and_write(load(tmp_path, GOOD + SIZES), tmp_path / "out", RunOptions())
    assert manifests() == before
    (tmp_path / "chat.jsonl").write_text(CHAT + LINE.format(9000, 0, 2))
    runspec._load_trace.cache_clear()  # as in another process
    replays._asked.cache_clear()
    outcome = run_and_write(load(tmp_path, GOOD + SIZES), tmp_path / "out", RunOptions())
    assert {row["num_requests"] for row in outcome.rows} == {7}


def test_the_figure_is_drawn_from_files_and_again(tmp_path: Path) -> None:
    experiment = load(tmp_path, GOOD + FIGURES)
    outcome = run_and_write(experiment, tmp_path / "out", RunOptions())
    png, svg, csv = outcome.files[2:]
    before = [path.read_bytes() for path in (png, svg, csv)]
    assert draw_again(tmp_path / "out", None) == ([png, svg, csv], [])
    assert [path.read_bytes() for path in (png, svg, csv)] == before
    points = pd.read_csv(csv)
    table = pd.read_csv(tmp_path / "out/summary.csv")
    assert points["hit_rate"].tolist() == table["hit_rate"].tolist()


def test_a_trace_that_is_not_there_is_a_row_with_its_reason(tmp_path: Path) -> None:
    more = GOOD + "  absent: {workload: {kind: trace, name: mooncake-1000}}\n" + FIGURES
    experiment = load(tmp_path, more)
    outcome = run_and_write(experiment, tmp_path / "out", RunOptions())
    assert outcome.problems == []
    last = outcome.rows[-1]
    assert (last["run"], last["status"]) == ("absent", "skipped")
    assert last["reason"].endswith("get it with: kvsim trace fetch mooncake-1000")
    assert experiment.budget_lines()[-1].startswith("warning       skipped: trace mooncake-1000")
    assert set(pd.read_csv(outcome.files[-1])["trace"]) == {"chat"}


CHAT_WITH = "name: example\npolicies: [lru]\ntraces:\n  chat: {}\n"
ERRORS = {
    "x.yaml:2: policies.1: unknown name 'lfru', did you mean lru; accepted: unbounded, ": (
        GOOD.replace("[lru]", "[lru, lfru]")
    ),
    "x.yaml:2: policies.1: lru is named twice": GOOD.replace("[lru]", "[lru, lru]"),
    "x.yaml:2: policies: must name at least one; accepted: unbounded, ": (
        GOOD.replace("[lru]", "[]")
    ),
    "x.yaml:2: policies: must be a list, got null": GOOD.replace("[lru]", "null"),
    "x.yaml:5: allocator: unknown key; accepted: name, ": GOOD + "allocator: {kind: prefix}\n",
    "x.yaml:5: capacity_tokens.0: 100 tokens hold no block of 512 (chat)": (
        GOOD + "capacity_tokens: [100]\n"
    ),
    "x.yaml:5: capacity_tokens: must be a list of at least one value, each once": (
        GOOD + "capacity_tokens: []\n"
    ),
    "x.yaml:5: figures.0: unknown name 'waste'; accepted: prefix_policies": (
        GOOD + "figures: [waste]\n"
    ),
    "x.yaml:1: traces: is required": "name: example\npolicies: [lru]\n",
    "x.yaml:3: traces: must be a mapping like {chat: ": (
        "name: example\npolicies: [lru]\ntraces: []\n"
    ),
    "x.yaml:4: traces.chat.workload: is required": CHAT_WITH.format("{}"),
    "x.yaml:4: traces.chat: must be a mapping like {workload: …}, got 5": CHAT_WITH.format("5"),
    "x.yaml:4: traces.chat.block_sze: unknown key, did you mean block_size": CHAT_WITH.format(
        "{workload: {kind: file, path: chat.jsonl}, block_sze: 8}"
    ),
    "x.yaml:4: traces.chat.block_size: must be at least 1, got 0": CHAT_WITH.format(
        "{workload: {kind: file, path: chat.jsonl}, block_size: 0}"
    ),
    "x.yaml:4: traces.chat.workload.path: ": CHAT_WITH.format(
        "{workload: {kind: file, path: chart.jsonl}}"
    ),
    "x.yaml:4: traces.chat.workload: trace mooncake-1000: is not in the cache ": CHAT_WITH.format(
        "{workload: {kind: trace, name: mooncake-1000}}"
    ),
    "x.yaml:4: traces.chat.workload: inline: does not say what prompts share ": CHAT_WITH.format(
        "{workload: {kind: inline, requests: [{prompt_tokens: 5, output_tokens: 4}]}}"
    ),
}


@pytest.mark.parametrize("expected", ERRORS)
def test_a_mistake_is_one_line_with_its_place(tmp_path: Path, expected: str) -> None:
    (line,) = errors_of(tmp_path, ERRORS[expected])
    assert line.startswith(expected)


def test_a_key_can_be_overridden_on_the_command_line(tmp_path: Path) -> None:
    experiment = load(tmp_path, GOOD, "traces.chat.workload.limit=2", "traces.chat.block_size=256")
    assert {spec.config["block_size"] for spec in experiment.runs()} == {256}
    spec = experiment.runs()[0]
    assert spec.measure(spec.trace_source.load())["num_requests"] == 2


def test_requests_that_follow_others_are_said_to_come_in_their_sessions_order(
    tmp_path: Path,
) -> None:
    workload = (
        "{kind: sharegpt, num_requests: 9, arrivals: {kind: all_at_once}, turns: {kind: chat, "
        "count: 3}}"
    )
    lines = load(tmp_path, CHAT_WITH.format(f"{{workload: {workload}}}")).budget_lines()
    assert lines[-1] == "  follow-ups come in the order in which sessions start: no engine runs"
