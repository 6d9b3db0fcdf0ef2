"""Results of which something is missing or broken: a page that says so, or one sentence."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pages import all_of, assert_well_made, read_page, text_in, visible_text
from sim.cli import main
from sim.report import write_report
from sim.report.figures import Figure


def removed(*parts: str) -> Callable[[Path], None]:
    def remove(folder: Path) -> None:
        for part in parts:
            path = folder / part
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    return remove


def written(part: str, content: str | bytes) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        data = content.encode() if isinstance(content, str) else content
        (folder / part).write_bytes(data)

    return write


def cut_summary(folder: Path) -> None:
    path = folder / "summary.csv"
    path.write_text(path.read_text().splitlines()[0] + "\n")


def old_facts(folder: Path) -> None:
    """experiment.json as it was before it knew its file and the errors of its times."""
    path = folder / "experiment.json"
    facts = json.loads(path.read_text())
    for key in ("file", "overrides", "cost_errors", "budget", "description"):
        del facts[key]
    path.write_text(json.dumps(facts))


def broken_manifest(folder: Path) -> None:
    (folder / "runs" / "paged-seed=0" / "manifest.json").write_text("[")


PAGED = "paged-seed=0"
WASTE = ("figures/waste.svg", "figures/waste.png")


@pytest.mark.parametrize(
    ("breaks", "said"),
    [
        (removed("figures"), "figures/waste.svg is not there"),
        (removed("runs"), "the folder of single runs is not here"),
        (removed(f"runs/{PAGED}"), "1 of 2 runs were removed or made anew"),
        (
            removed("runs/keys.json"),
            "runs/keys.json: No such file or directory; run the experiment",
        ),
        (broken_manifest, "1 of 2 runs were removed or made anew"),
        (removed("summary.csv"), "summary.csv: No such file or directory"),
        (written("summary.csv", ""), "summary.csv: is empty"),
        (
            written("summary.csv", b"\xff\xfe\x00a,b\n\x80,2\n"),
            "summary.csv: is not UTF-8 (byte 1)",
        ),
        (cut_summary, "summary.csv: has no rows"),
        (removed("figures/waste.svg"), "As dots, not lines: its SVG is not there"),
        (written("figures/waste.svg", "<svg"), "As dots, not lines: its SVG is no SVG"),
        (removed("figures/waste.csv"), "Where the KV slots are"),
        (written("points.csv", "a,num_seeds\nx,2\n"), "How to make it again"),
        (old_facts, "These results do not record their command"),
    ],
)
def test_a_page_says_what_is_missing(
    small: Path, breaks: Callable[[Path], None], said: str
) -> None:
    breaks(small)
    root = read_page(write_report(small).path)
    assert_well_made(root)
    assert said in visible_text(root)


def test_a_broken_picture_without_another_is_left_out(small: Path) -> None:
    for path in WASTE:
        (small / path).write_text("nothing")
    shown = visible_text(read_page(write_report(small).path))
    assert "Left out: its SVG is no SVG" in shown
    assert "its PNG is no PNG" in shown


def test_runs_that_did_not_finish_stand_first(small: Path) -> None:
    """Skipped, failed and stalled runs, extrapolated times, lost requests, changes of a trace."""
    path = small / "experiment.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "runs": [*"abcde", PAGED]}))
    (small / "summary.csv").write_text(
        "run,status,reason,num_truncated,num_requests,num_iterations,num_extrapolated_iterations,"
        "extrapolated,times_from\n"
        "a,finished,,3,10,100,40,kv_len 40,measured: h100; fitted: x\n"
        "b,finished,,1,10,100,2,kv_len 2,measured: h100; fitted: x\n"
        "c,skipped,a block is larger than the pool,,,,,,\n"
        "d,error,ValueError: no (x.py; line 3),,,,,,\n"
        "e,stalled,request 3 can never fit,,10,,,,\n"
        f"{PAGED},finished,,,10,,,,\n"
    )
    path = small / "runs" / PAGED / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["trace"]["notes"] = {"dropped: no prompt": 17, "taken for azure": 100}
    path.write_text(json.dumps(manifest))
    root = read_page(write_report(small).path)
    lines = [text_in(li) for li in all_of(all_of(root, "section")[0], "li")]
    assert lines[:6] == [
        "1 of 6 runs cannot be, and were skipped",
        "c: a block is larger than the pool",
        "1 of 6 runs failed",
        "d: ValueError: no (x.py; line 3)",
        "1 of 6 runs stalled: nothing could happen any more, with requests left",
        "e: request 3 can never fit",
    ]
    assert "4 outputs were cut at the longest sequence, in 2 of 6 runs" in lines
    assert any(line.startswith("cost profile h100; fitted: x: 42 times") for line in lines)
    assert "trace inline: dropped: no prompt: 17 (in 1 run)" in lines
    assert not any("taken for" in line for line in lines)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["report"], "report: RESULTS is missing"),
        (["report", "nowhere"], "nowhere: no such folder"),
        (["report", "--claims", "nowhere"], "kvsim claims --record makes it"),
        (["report", "{small}", "-o", "{small}"], "is a folder; accepted: the path of a file"),
        (["report", "{small}", "-o", "/dev/null/x"], "/dev/null/x: cannot be written"),
    ],
)
def test_a_wrong_command_is_one_sentence(
    small: Path, arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([argument.format(small=small) for argument in arguments]) == 2
    assert sentence in capsys.readouterr().err


def test_a_figure_without_points_says_so(tmp_path: Path) -> None:
    assert Figure("x", tmp_path, None).describe() == "The plotted points are not there."
