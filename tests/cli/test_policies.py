"""kvsim trace policies as a user meets it."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from command import kvsim
from sim.policies import POLICIES

LINE = '{{"timestamp": {0}, "input_length": 1024, "output_length": 5, "hash_ids": [{1}, {2}]}}\n'
# two conversations that take turns: with room for one of them lru always drops the other
CHAT = "".join(LINE.format(i * 1000, i % 2, 2 + i % 2) for i in range(6))
TABLE = "arrival_s,prompt_tokens,output_tokens\n0,3,4\n"
EXPERIMENT = """
name: small
kv_cache: {num_slots: 4096}
max_model_len: 2048
workload: {kind: file, path: chat.jsonl}
allocator: {kind: prefix}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "chat.jsonl").write_text(CHAT)
    (tmp_path / "table.csv").write_text(TABLE)
    (tmp_path / "small.yaml").write_text(EXPERIMENT)
    return tmp_path


def test_a_small_trace_by_hand(folder: Path) -> None:
    """Room for two blocks: lru finds nothing, the clairvoyant keeps one conversation of two."""
    done = kvsim(
        *("trace", "policies", "chat.jsonl", "--block-size", 512, "--capacity", "1024,2048"),
        *("--policy", "unbounded,clairvoyant,lru,none", "--json"),
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    hits = {(row["policy"], row["capacity_blocks"]): row["num_hit_tokens"] for row in rows}
    assert hits == {
        ("unbounded", 2): 4096,
        ("unbounded", 4): 4096,
        ("clairvoyant", 2): 2048,
        ("clairvoyant", 4): 4096,
        ("lru", 2): 0,
        ("lru", 4): 4096,
        ("none", 2): 0,
        ("none", 4): 0,
    }
    assert {row["num_prompt_tokens"] for row in rows} == {6144}


def test_a_folder_gets_the_table_and_the_figure_of_all_traces(folder: Path) -> None:
    done = kvsim(
        *("trace", "policies", "chat.jsonl", "small.yaml", "--block-size", "512,256"),
        *("--out", "out"),
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    table = pd.read_csv(folder / "out" / "summary.csv")
    assert list(table["trace"].unique()) == ["chat", "small"]
    assert set(table["policy"]) == set(POLICIES)
    assert set(table.loc[table["trace"] == "small", "block_size"]) == {256}
    points = pd.read_csv(folder / "out" / "figures" / "prefix_policies.csv")
    assert points["hit_rate"].tolist() == table["hit_rate"].tolist()
    assert (folder / "out" / "figures" / "prefix_policies.png").stat().st_size > 10_000
    assert "  clairvoyant " in done.stdout


def test_traces_of_one_name_stay_apart(folder: Path) -> None:
    """One curve a trace: what has the same name is told by its path, or by its block size."""
    (folder / "old").mkdir()
    (folder / "old" / "chat.jsonl").write_text(CHAT)
    done = kvsim(
        *("trace", "policies", "chat.jsonl", "old/chat.jsonl", "old/chat.jsonl", "small.yaml"),
        *("--block-size", "512,512,256,512", "--policy", "lru", "--capacity", "1024", "--json"),
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["trace"] for line in done.stdout.splitlines()] == [
        "chat.jsonl",
        "old/chat.jsonl, blocks of 512",
        "old/chat.jsonl, blocks of 256",
        "small",
    ]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["table.csv"], "table.csv: does not say what prompts share (no prefix identity)"),
        (["chat.jsonl", "--policy", "mru"], "--policy: unknown 'mru'; accepted: unbounded, "),
        (["chat.jsonl", "--capacity", "8"], "--capacity: 8 tokens hold no block of 16 (chat)"),
        (["chat.jsonl", "--capacity", "1k"], "--capacity: must be whole numbers with commas"),
        (["chat.jsonl", "--block-size", "0"], "--block-size: 0; accepted: 1 to "),
        (["chat.jsonl", "--block-size", "1,2"], "--block-size: 2 sizes for 1 traces"),
        (["chat.jsonl", "--capacity", "9" * 23], "--capacity: 99999999999999999999999; accepted: "),
        (["chat.jsonl", "--capacity", "1024,1024"], "--capacity: 1024 is named twice"),
        (["chat.jsonl", "--policy", "lru,lfu,lru"], "--policy: lru is named twice"),
        (["chat.jsonl", "small.yaml", "chat.jsonl"], "FILE: chat.jsonl, blocks of 16: named twice"),
        (["absent.yaml"], "absent.yaml"),
    ],
)
def test_a_mistake_is_one_line(folder: Path, arguments: list[str], sentence: str) -> None:
    done = kvsim("trace", "policies", *arguments, cwd=folder)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(sentence)
    assert done.stdout == ""


def test_list_shows_policies_with_the_bounds_first_and_last(folder: Path) -> None:
    done = kvsim("list", "policies", cwd=folder)
    names = [line.split()[0] for line in done.stdout.splitlines()[1:]]
    assert names == list(POLICIES)
    assert (names[:2], names[-2:]) == (["unbounded", "clairvoyant"], ["fifo", "none"])
