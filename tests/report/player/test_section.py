"""The fragment of a page: what is in it before any script runs."""

from __future__ import annotations

import json
import re
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from xml.etree import ElementTree

import pandas as pd
import pytest

from command import ROOT, SMALL, kvsim
from comparisons import folder_of, values_of
from sim.cli import main
from sim.report.player import Recording, player_section, recordings
from sim.report.player.recordings import state_at, unit_slots
from sim.report.player.section import HERE, SCRIPTS, script
from sim.stored import open_folder
from synthetic_log import synthetic

HOSTILE = '</script><img src=x onerror="alert(1)">&<!-- \u202e\u2028'


@pytest.fixture(scope="module")
def pair() -> list:
    return [synthetic(1024, 128, 400, is_paged=False), synthetic(1024, 16, 800, is_paged=True)]


def data_of(fragment: str | None) -> dict:
    found = re.search(r'<script type="application/json" class="kvp-data">(.*?)</script>', fragment)
    return json.loads(found[1])


def test_without_a_recording_there_is_no_section(pair: list) -> None:
    assert player_section([]) is None
    assert player_section([replace(pair[0], events=pair[0].events[:0])]) is None


def test_a_folder_without_recordings_has_none(tmp_path: Path) -> None:
    assert recordings(open_folder(folder_of(tmp_path, values_of("ttft_s_p50", [1])))) == []
    assert recordings(open_folder(ROOT / "results" / "capacity_slo")) == []


def test_recordings_of_a_run_experiment_are_read(tmp_path: Path) -> None:
    """What kvsim run has written, with the labels of figures and the sizes of its blocks."""
    text = SMALL.replace("figures: [waste]", "record: blocks")
    (tmp_path / "small.yaml").write_text(text)
    made = kvsim("run", "small.yaml", "--out", "out", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    found = recordings(open_folder(tmp_path / "out" / "small"))
    assert [(r.allocator, r.block_size, r.num_slots) for r in found] == [
        ("contiguous", None, 160),
        ("paged", 16, 160),
    ]
    assert all(r.num_moments_recorded is None and len(r.events) for r in found)
    fragment = player_section(found)
    assert [run["cellSlots"] for run in data_of(fragment)["runs"]] == [16, 16]


def test_a_run_in_which_nothing_was_admitted_is_said_in_a_sentence(tmp_path: Path) -> None:
    text = SMALL.replace("figures: [waste]", "record: blocks").replace("160", "16")
    text = text.replace("prompt_tokens: 10", "prompt_tokens: 40")
    (tmp_path / "small.yaml").write_text(re.sub(r"arrival_s: [^,]*, ", "", text))
    with redirect_stdout(StringIO()):
        assert main(["run", str(tmp_path / "small.yaml"), "--out", str(tmp_path / "out")]) == 0
    found = recordings(open_folder(tmp_path / "out" / "small"))
    assert [(len(r.iterations), r.num_slots) for r in found] == [(0, 16), (0, 16)]
    fragment = str(player_section(found))
    assert "nothing to watch" in fragment
    assert "<script" not in fragment


def test_a_hostile_label_stays_text(pair: list) -> None:
    fragment = player_section([replace(pair[1], label=HOSTILE)])
    assert fragment.count("</script>") == 2
    assert "<img" not in fragment
    assert "<!--" not in fragment
    assert data_of(fragment)["runs"][0]["label"] == HOSTILE


def test_nothing_is_loaded_from_elsewhere(pair: list) -> None:
    fragment = player_section(pair)
    without_names = fragment.replace("http://www.w3.org/2000/svg", "")
    assert "http" not in without_names
    assert "@import" not in fragment
    assert not re.search(r"\b(src|href)=", fragment)
    assert not re.search(r"\b(fetch|XMLHttpRequest|eval|innerHTML|document\.write)\b", script())


def test_without_javascript_there_are_pictures(pair: list) -> None:
    fragment = player_section(pair)
    assert "<noscript>" in fragment
    pictures = re.findall(r"<figure>.*?(<svg.*?</svg>)</figure>", fragment)
    assert len(pictures) == 6
    for picture in pictures:
        root = ElementTree.fromstring(picture)
        assert root.get("aria-label").split()[0] in {"contiguous", "paged"}
    held = pair[1].events[pair[1].events["state"] == "held"]
    numbers = {int(n) for n in re.findall(r"<text[^>]*>(\d+)", pictures[-1])}
    assert numbers
    assert numbers <= set(held["request"])


def test_a_picture_of_a_large_pool_says_that_it_leaves_cells_out() -> None:
    fragment = player_section([synthetic(64_000, 16, 1000, is_paged=True)])
    assert "one of every 4 cells" in fragment


def test_a_large_recording_is_sampled_and_says_so() -> None:
    recording = synthetic(1024, 128, 6000, is_paged=False)
    whole = data_of(player_section([recording]))["runs"][0]
    assert whole["recordedMoments"] is None
    fragment = player_section([recording], max_bytes=len(whole["data"]) // 2)
    run = data_of(fragment)["runs"][0]
    assert len(run["data"]) <= len(whole["data"]) // 2
    assert run["recordedMoments"] == len(recording.iterations)
    assert "sampled to keep the page small" in fragment


def test_runs_that_are_left_out_are_counted(pair: list) -> None:
    fragment = player_section([*pair, *pair], max_runs=2)
    assert "2 of 4 recorded pools are in this page." in fragment
    assert [run["allocator"] for run in data_of(fragment)["runs"]] == ["contiguous", "paged"]


def test_replicas_are_pools_of_their_own(pair: list) -> None:
    tables = {}
    for name in ("events", "iterations", "phases", "tables"):
        one = getattr(pair[1], name)
        both = [one.assign(replica=r) for r in (0, 1)]
        tables[name] = pd.concat(both, ignore_index=True)
    runs = data_of(player_section([replace(pair[1], **tables)]))["runs"]
    assert [run["label"] for run in runs] == ["paged, replica 0", "paged, replica 1"]
    assert (
        runs[0]["data"] == runs[1]["data"] == data_of(player_section([pair[1]]))["runs"][0]["data"]
    )


def test_every_module_of_the_page_is_in_it_and_says_what_it_does() -> None:
    modules = sorted(HERE.glob("*.js"))
    assert sorted(SCRIPTS) == [path.stem for path in modules]
    for path in modules:
        text = path.read_text(encoding="utf-8")
        assert text.startswith("// ")
        assert text.count("\n") < 300


def fleet(recording: Recording, num_replicas: int) -> Recording:
    """Several replicas that do the same; num_slots is that of all, as in a summary."""
    names = ("iterations", "phases", "events", "tables")
    parts = {
        name: pd.concat([getattr(recording, name).assign(replica=r) for r in range(num_replicas)])
        for name in names
        if getattr(recording, name) is not None
    }
    return replace(recording, num_slots=num_replicas * recording.num_slots, **parts)


def test_the_pool_of_a_replica_is_its_own(pair: list) -> None:
    runs = data_of(player_section([fleet(pair[1], 3)]))["runs"]
    assert [run["numSlots"] for run in runs] == [1024] * 3
    assert runs[2]["label"].endswith(", replica 2")


def test_a_run_longer_than_the_page_can_count_is_told_of(pair: list) -> None:
    long = replace(pair[0], phases=pair[0].phases.assign(end_s=1e7))
    said = "1 of the recorded pools go on for more than 104 days"
    assert said in player_section([long])
    fragment = player_section([long, pair[1]])
    assert said in fragment
    assert len(data_of(fragment)["runs"]) == 1


def test_the_last_slots_of_a_pool_may_be_fewer_than_a_block(pair: list) -> None:
    """What is behind the last whole block is what its event says, not free."""
    events = pair[1].events
    rest = {**events.iloc[0].to_dict(), "start_slot": 1024, "num_slots": 8, "state": "external",
            "request": -1, "time_s": 0.0}  # fmt: skip
    whole = pd.concat([pd.DataFrame([rest]), events], ignore_index=True)
    recording = replace(pair[1], num_slots=1032, events=whole)
    assert unit_slots(recording) == 16
    assert state_at(recording, 0.0)[-1] == 0
