"""Every command that README and docs show, run in a copy of the repository."""

from __future__ import annotations

import contextlib
import io
import runpy
import shutil
from pathlib import Path

import numpy as np
import pytest

from command import ROOT, SHARED
from doc_blocks import Command, Page, is_shown_by, read_page
from sim.cli import build_parser, main

PATHS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [page for page in map(read_page, PATHS) if page.items]
ALIASES = {"make quickstart": "kvsim run experiments/quickstart.yaml"}
OTHERS = {"dask", "ray", "pip", "helm", "kubectl"}  # that a page may show, to be run elsewhere
NOT_OURS = ("git clone", "cd ", ". .venv/bin/activate", "make ")
MOONCAKE = SHARED / "traces" / "mooncake" / "conversation_trace.jsonl.gz"
TRACE = "mooncake-conversation"  # what a page may name


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what a reader has: experiments, committed results, a trace of their own."""
    folder = tmp_path_factory.mktemp("checkout")
    shutil.copytree(ROOT / "experiments", folder / "experiments")
    shutil.copytree(ROOT / "results" / "claims", folder / "results" / "claims")
    shutil.copy(ROOT / "README.md", folder)
    rng = np.random.default_rng(0)
    gaps, prompts, outputs = (
        rng.exponential(0.5, 400),
        rng.integers(20, 600, 400),
        1 + rng.poisson(150, 400),
    )
    rows = [f"{t:.3f},{p},{o}" for t, p, o in zip(gaps.cumsum(), prompts, outputs, strict=True)]
    table = "\n".join(["arrival_s,prompt_tokens,output_tokens", *rows]) + "\n"
    (folder / "requests.csv").write_text(table)
    return folder


def run(words: list[str]) -> tuple[int, str, str]:
    """A kvsim command in this process: exit code, output, errors."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(words)
        except SystemExit as stop:
            code = int(stop.code or 0)
    return code, out.getvalue(), err.getvalue()


def run_program(path: str) -> tuple[int, str, str]:
    """A Python file of the page, in this process."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        runpy.run_path(path, run_name="__main__")
    return 0, out.getvalue(), ""


def arguments(command: Command) -> list[str]:
    """What follows `kvsim`, up to where its output goes elsewhere, as the page says to run it."""
    words = command.words[1:]
    for sign in (">", "|"):
        words = words[: words.index(sign)] if sign in words else words
    if "-j" in words:  # how many at a time changes no result
        at = words.index("-j")
        words = words[:at] + words[at + 2 :]
    if command.how.startswith("with "):
        words += Command(command.how.removeprefix("with ")).words
    if command.how == "check":
        assert words[0] == "run", f"check stands for run alone: {command.line}"
        words = ["check", *(word for word in words[1:] if word not in {"--json", "--check"})]
    return words


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.path.relative_to(ROOT)))
def test_every_command_of_a_page_runs_and_prints_what_is_shown(
    page: Page, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(checkout)
    monkeypatch.syspath_prepend(checkout)
    monkeypatch.setenv("KVSIM_SHARED", str(SHARED))
    for item in page.items:
        if isinstance(item, tuple):
            path = checkout / item[0]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(item[1])
            continue
        line = ALIASES.get(item.line.strip(), item.line)
        command = Command(line, item.how, item.output)
        if command.how.startswith("other, "):
            is_file = command.words[0] == "python" and (checkout / command.words[1]).exists()
            assert command.words[0] in OTHERS or is_file, line
            continue
        if command.words[0] not in {"kvsim", "python"}:
            assert line.startswith(NOT_OURS), f"neither kvsim nor known: {line}"
            continue
        words = arguments(command)
        lacks_trace = TRACE in words and not MOONCAKE.exists()
        if command.how.startswith("parse, ") or lacks_trace:
            build_parser().parse_args(words)
            continue
        code, out, err = run(words) if command.words[0] == "kvsim" else run_program(words[0])
        if ">" in command.words:
            (checkout / command.words[-1]).write_text(out)
        expected = int(command.how.removeprefix("exit ")) if command.how.startswith("exit ") else 0
        assert code == expected, f"{line}\n{out}{err}"
        if command.output is not None:
            assert is_shown_by(out + err, command.output), f"{line}\n{out}{err}"


def test_blocks_are_read_as_the_rules_say() -> None:
    """Guards the test above: blocks that nobody reads would pass it."""
    commands = [command for page in PAGES for command in page.commands]
    assert len(commands) > 25
    assert sum(command.output is not None for command in commands) > 5
    hows = {command.how.split()[0].rstrip(",") for command in commands if command.how}
    assert hows <= {"with", "check", "parse", "exit", "other"}


@pytest.mark.parametrize(
    ("output", "shown", "is_right"),
    [
        ("a 1\nb 2\n", ["a 1", "b 2"], True),
        ("a 1\nb 2\n", ["a 1", "b 3"], False),
        ("a 1\nb 2\nc\n", ["a 1", "…"], True),
        ("a 1\nb 2\nc\n", ["a 1", "…", "c"], True),
        ("a 1\nb 2\nc\n", ["a 1"], False),
        ("took 1.3 s\n", ["took … s"], True),
        ("took 1.3 ms\n", ["took … s"], False),
    ],
)
def test_shown_output_stands_for_what_is_printed(
    output: str, shown: list[str], is_right: bool
) -> None:
    assert is_shown_by(output, shown) is is_right


def test_no_kvsim_command_stands_outside_of_a_block_that_is_run() -> None:
    """Indented blocks are not read; README's one holds make alone."""
    for path in PATHS:
        inside = False
        for line in path.read_text(encoding="utf-8").splitlines():
            inside ^= line.startswith("```")
            shown = line.strip().startswith(("kvsim ", ".venv/bin/kvsim"))
            assert inside or not (line.startswith("    ") and shown), f"{path}: {line}"
