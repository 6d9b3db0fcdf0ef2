"""kvsim trace as a user meets it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from command import kvsim
from sim.cli import main
from workloads.publictraces import public_traces

MOONCAKE = (
    '{"timestamp": 0, "input_length": 700, "output_length": 5, "hash_ids": [0, 1]}\n'
    '{"timestamp": 3000, "input_length": 1100, "output_length": 7, "hash_ids": [0, 2, 3]}\n'
)
TABLE = "arrival_s,prompt_tokens,output_tokens\n0,3,4\n1.5,0,6\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "chat.jsonl").write_text(MOONCAKE)
    (tmp_path / "table.csv").write_text(TABLE)
    (tmp_path / "notes.txt").write_text("nothing")
    return tmp_path


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_info_says_what_it_took_each_file_for_and_what_is_in_it(folder: Path) -> None:
    done = kvsim("trace", "info", "chat.jsonl", "table.csv", cwd=folder)
    assert done.returncode == 0, done.stderr
    for text in ("mooncake: ", "table: ", "28.4 % of prompt tokens", "{zero_tokens: one}"):
        assert text in done.stdout
    assert len(done.stdout.splitlines()) < 25


def test_info_as_json_is_one_object_a_line(folder: Path) -> None:
    done = kvsim("trace", "info", "chat.jsonl", "table.csv", "--json", cwd=folder)
    first, second = (json.loads(line) for line in done.stdout.splitlines())
    assert (first["format"], first["sharing"]["hit_tokens"]) == ("mooncake", 512)
    assert (second["format"], second["zero_prompt"]) == ("table", 1)


@pytest.mark.parametrize("command", ["info", "validate"])
def test_a_file_that_cannot_be_read_does_not_hide_the_others(folder: Path, command: str) -> None:
    done = kvsim("trace", command, "notes.txt", "chat.jsonl", cwd=folder)
    assert done.returncode == 2
    assert "mooncake" in done.stdout
    (line,) = done.stderr.splitlines()
    assert line.startswith("notes.txt: is in none of the known formats: ")


def test_plots_are_three_files_and_never_take_the_name_of_a_trace(folder: Path) -> None:
    done = kvsim("trace", "info", "table.csv", "--plot", "table.png", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert (folder / "table.csv").read_text() == TABLE
    assert {"table.png", "table.svg", "table.points.csv"} < set(names(folder))
    several = ("chat.jsonl", "table.csv", "--plot", "pictures")
    assert kvsim("trace", "info", *several, cwd=folder).returncode == 0
    assert len(names(folder / "pictures")) == 6


def test_validate_exits_with_1_if_anything_is_wrong(folder: Path) -> None:
    done = kvsim("trace", "validate", "chat.jsonl", cwd=folder)
    assert (done.returncode, done.stdout) == (0, "chat.jsonl: mooncake, 2 rows, no problem\n")
    done = kvsim("trace", "validate", "table.csv", cwd=folder)
    assert done.returncode == 1
    assert "1 x no prompt; the first: line 3: prompt of 0 tokens" in done.stdout
    found = json.loads(kvsim("trace", "validate", "table.csv", "--json", cwd=folder).stdout)
    assert found["problems"][0]["count"] == 1


def test_a_converted_file_is_the_same_trace(folder: Path) -> None:
    done = kvsim("trace", "convert", "chat.jsonl", "chat.parquet", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    written = json.loads(done.stdout)
    assert written["lost"] == {}
    info = json.loads(kvsim("trace", "info", "chat.parquet", "--json", cwd=folder).stdout)
    assert info["format"] == "canonical"
    assert info["digest"] == written["digest"]


def test_a_slice_is_converted_and_what_is_lost_is_said(folder: Path) -> None:
    options = ("--to", "vidur", "--zero-tokens", "one", "--limit", "1", "--start-s", "1")
    done = kvsim("trace", "convert", "table.csv", "out.csv", *options, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert (folder / "out.csv").read_text().splitlines()[1:] == ["0,1,6"]
    assert "altered: no prompt, taken as one token: 1" in done.stdout
    done = kvsim("trace", "convert", "chat.jsonl", "b.csv", "--to", "azure", cwd=folder)
    assert "no prefix identity: 2 requests" in done.stdout


def test_a_file_that_is_there_is_replaced_only_by_force(folder: Path) -> None:
    command = ("trace", "convert", "chat.jsonl", "table.csv", "--to", "azure")
    done = kvsim(*command, cwd=folder)
    assert done.returncode == 2
    assert done.stderr == "table.csv: is there already; --force replaces it\n"
    assert (folder / "table.csv").read_text() == TABLE
    assert kvsim(*command, "--force", cwd=folder).returncode == 0
    assert (folder / "table.csv").read_text().startswith("TIMESTAMP")


def test_what_is_no_regular_file_is_never_replaced(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    (folder / "dangling").symlink_to("nowhere")
    (folder / "inside").mkdir()
    os.mkfifo(folder / "pipe")
    before = names(folder)
    for target in ("dangling", "inside", "pipe", "/dev/null"):
        for force in ([], ["--force"]):
            command = ["trace", "convert", "chat.jsonl", target, "--to", "azure", *force]
            assert main(command) == 2
            said = capsys.readouterr().err
            assert said == f"{target}: is there already, and no regular file; it is not replaced\n"
    assert names(folder) == before


def test_a_public_trace_is_meant_by_its_name_unless_a_file_is_called_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("KVSIM_CACHE", str(folder / "cache"))
    monkeypatch.delenv("KVSIM_SHARED", raising=False)
    name = "azure-conv-2023"
    convert = ["trace", "convert", name, "out.csv", "--to", "vidur"]
    for command in (["trace", "info", name], ["trace", "validate", name], convert):
        assert main(command) == 2
        assert f"get it with: kvsim trace fetch {name}" in capsys.readouterr().err
    copy = folder / "traces" / public_traces()[name].shared
    copy.parent.mkdir(parents=True)
    copy.write_text(TABLE)
    monkeypatch.setenv("KVSIM_SHARED", str(folder))
    assert main(["trace", "info", name]) == 0
    assert capsys.readouterr().out.startswith(f"{copy}\n")
    assert main([*convert, "--zero-tokens", "one"]) == 0
    (folder / name).write_text(MOONCAKE)
    capsys.readouterr()
    assert main(["trace", "info", name]) == 0
    assert capsys.readouterr().out.startswith(f"{name}\n")


def test_a_public_trace_of_another_kind_is_refused_by_its_name(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    other = next(name for name, trace in public_traces().items() if trace.read_by != "trace")
    assert main(["trace", "info", other]) == 2
    assert capsys.readouterr().err.startswith(f"{other} is read by 'kind: ")


MISTAKES = {
    "no target": (["convert", "chat.jsonl", "x.csv"], "--to: is missing"),
    "an unknown target": (["convert", "chat.jsonl", "x.csv", "--to", "azur"], "'azur' is unknown"),
    "no source": (["convert", "absent.csv", "x.parquet"], "absent.csv"),
    "a bad row": (["convert", "table.csv", "x.parquet"], "line 3: prompt_tokens"),
    "no requests": (["convert", "chat.jsonl", "x.parquet", "--limit", "0"], "--limit: "),
    "a negative start": (["convert", "chat.jsonl", "x.parquet", "--start-s", "-1"], "--start-s: "),
    "a start that is no number": (
        ["convert", "chat.jsonl", "x.parquet", "--start-s", "nan"],
        "--start-s: ",
    ),
    "a slice without requests": (
        ["convert", "chat.jsonl", "x.parquet", "--start-s", "99"],
        "no request arrives",
    ),
    "no folder for it": (["convert", "chat.jsonl", "table.csv/x.parquet"], "cannot be written"),
    "one picture of two": (
        ["info", "chat.jsonl", "table.csv", "--plot", "x.png"],
        "name a folder",
    ),
    "a picture of another kind": (["info", "chat.jsonl", "--plot", "x.pdf"], "x.pdf"),
}


@pytest.mark.parametrize(("arguments", "named"), MISTAKES.values(), ids=MISTAKES.keys())
def test_bad_input_is_one_sentence_and_leaves_nothing(
    arguments: list[str],
    named: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In this process: many mistakes, and a process of its own would add nothing to any."""
    monkeypatch.chdir(folder)
    before = names(folder)
    assert main(["trace", *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == 1, said.err
    assert named in said.err
    assert names(folder) == before
