"""Pages of results: valid, whole, alone in their file, and the same every time."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree.ElementTree import Element

import pytest

from command import ROOT
from pages import all_of, assert_well_made, read_page, text_in, visible_text
from sim.report import write_claims_report, write_report
from sim.report.limits import MAX_BYTES
from sim.report.sections import SECTIONS
from sim.stored.facts import read_facts

COMMITTED = sorted(
    path.parent.name
    for path in (ROOT / "results").glob("*/experiment.json")
    if (ROOT / "experiments" / f"{path.parent.name}.yaml").exists()
)


def headings(root: Element) -> list[str]:
    return [text_in(heading) for heading in all_of(root, "h2")]


@pytest.mark.parametrize("name", COMMITTED)
def test_every_committed_experiment_makes_a_page(name: str, tmp_path: Path) -> None:
    folder = ROOT / "results" / name
    written = write_report(folder, tmp_path / "page.html")
    assert written.num_bytes == (tmp_path / "page.html").stat().st_size < MAX_BYTES / 3
    assert written.left_out == ()
    root = read_page(written.path)
    assert_well_made(root)
    shown = visible_text(root)
    facts = read_facts(folder)
    assert " ".join(facts.description.split()) in " ".join(shown.split())
    assert len(list((folder / "figures").glob("*.svg"))) == len(all_of(root, "figure"))
    assert "How to make it again" in headings(root)


def test_the_page_of_all_claims_has_every_claim(tmp_path: Path) -> None:
    written = write_claims_report(ROOT / "results" / "claims", tmp_path / "claims.html")
    root = read_page(written.path)
    assert_well_made(root)
    record = json.loads((ROOT / "results" / "claims" / "verdicts.json").read_text())["claims"]
    rows = all_of(all_of(root, "tbody")[0], "tr")
    assert len(rows) == len(record)
    for row, entry in zip(rows, record, strict=True):
        shown = text_in(row)
        assert entry["id"] in shown
        assert entry["verdict"] in shown
        assert " ".join(entry["statement"].split()) in " ".join(shown.split())


def test_a_page_has_what_the_run_left(small: Path) -> None:
    root = read_page(write_report(small).path)
    assert_well_made(root)
    table = all_of(root, "table")[0]
    assert [text_in(th) for th in all_of(table, "th") if th.get("scope") == "row"] == [
        "contiguous-seed=0",
        "paged-seed=0",
    ]
    expected = [heading for heading, _ in SECTIONS.values()]
    found = headings(root)
    assert found == [heading for heading in expected if heading in found]
    shown = visible_text(root)
    assert f"kvsim run {read_facts(small).file}" in shown
    assert "linear: assumed coefficients" in shown
    assert "kv_cache      160 slots, as given" in shown
    manifest = json.loads((small / "runs" / "paged-seed=0" / "manifest.json").read_text())
    for fact in (manifest["python"], manifest["machine"], manifest["versions"]["numba"]):
        assert fact in shown


def test_every_column_of_the_summary_is_in_the_page_or_said_to_be_empty(small: Path) -> None:
    shown = visible_text(read_page(write_report(small).path))
    for column in (small / "summary.csv").read_text().splitlines()[0].split(","):
        assert column in shown


def test_a_page_is_the_same_bytes_wherever_and_whenever_it_is_made(
    small: Path, small_results: Path, tmp_path: Path
) -> None:
    first = write_report(small).path.read_bytes()
    assert write_report(small).path.read_bytes() == first
    assert write_report(small_results, tmp_path / "x.html").path.read_bytes() == first
    assert (small_results / "report.html").read_bytes() == first


def test_a_page_is_readable_without_its_script(small: Path) -> None:
    """Nothing is hidden or empty that a script would have to fill."""
    root = read_page(write_report(small).path)
    assert [element for element in root.iter() if element.get("hidden") is not None] == []
    assert all_of(root, "button") == all_of(root, "select") == all_of(root, "input") == []
    for section in all_of(root, "section"):
        assert len(text_in(section).strip()) > 20


def test_claims_that_an_experiment_serves_stand_in_its_page(small: Path) -> None:
    entry = {
        "id": "a-claim",
        "source": "paper",
        "title": "A paper",
        "ref": "2023",
        "where": "§1",
        "statement": "Paging wastes little.",
        "verdict": "not reproduced",
        "expected": 4,
        "comparator": "le",
        "tolerance": 0.5,
        "unit": "percent",
        "is_relative": False,
        "measured": {"": {"mean": 5.0, "sd": 0.25, "seeds": 5}},
        "misses": ["value is 5, not 4"],
        "because": "Blocks are large.",
        "experiments": ["small"],
        "ablation": [{"setting": "blocks of 1", "measured": {"": {"mean": 1.5, "sd": None}}}],
        "sensitivity": [],
    }
    other = {**entry, "id": "of-large", "experiments": ["large"]}
    folder = small.parent / "claims"
    folder.mkdir()
    (folder / "verdicts.json").write_text(json.dumps({"claims": [entry, other]}))
    shown = visible_text(read_page(write_report(small).path))
    texts = ("a-claim", "≤ 4 ± 0.5 percent", "5 ± 0.25", "✗ not reproduced", "Blocks are large.")
    for text in texts:
        assert text in shown
    assert "blocks of 1 → 1.5" in shown
    assert "of-large" not in shown


def test_several_seeds_stand_as_points_with_their_spread(tmp_path: Path) -> None:
    folder = ROOT / "results" / "fig02_memory_waste"
    shown = visible_text(read_page(write_report(folder, tmp_path / "x.html").path))
    assert "Points with their spread" in shown
    assert "17.9 ± 0.5 [17.6, 18.4]" in shown


def test_a_search_of_rates_stands_as_its_limits_and_rates(tmp_path: Path) -> None:
    folder = ROOT / "results" / "capacity_slo"
    root = read_page(write_report(folder, tmp_path / "x.html").path)
    assert "Rates within the limits" in headings(root)
    assert "p99 ttft < 1 s, p99 tpot < 0.05 s" in visible_text(root)
    assert "offline: unbounded memory" in visible_text(root)
