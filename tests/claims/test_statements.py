"""The claims as stated: whole, as their sources have them, and explained where they fail."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from sim.claims.record import read_record
from sim.claims.statement import Claim, load_claims
from sim.claims.tables import page, with_section
from sim.claims.text import leaves
from sim.claims.verdicts import DIRECTION, NOT_REPRODUCED, REFUTED

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "experiments" / "claims"
RECORD = ROOT / "results" / "claims" / "verdicts.json"
SHARED = Path(os.environ.get("KVSIM_SHARED", ROOT.parent / "shared"))
STATED = load_claims(FOLDER)
SIMULATED = {"calibrated_sim", "rate_sim"}
MIN_SEEDS = 5


def their_claims() -> list[dict[str, Any]]:
    path = SHARED / "claims" / "claims.yaml"
    if not path.exists():
        return []
    found: list[dict[str, Any]] = yaml.safe_load(path.read_text(encoding="utf-8"))["claims"]
    return found


THEIRS = their_claims()


def plain(value: Any) -> Any:
    """A value with all its keys as text."""
    return {str(key): leaf for key, leaf in leaves(value).items()}


def tolerances(value: Any) -> set[float]:
    return {float(leaf) for leaf in leaves(value or 0.0).values()}


@pytest.mark.skipif(not THEIRS, reason=f"there is no list of claims at {SHARED}/claims")
def test_every_claim_of_the_list_has_an_entry() -> None:
    stated = {claim.id for claim in STATED}
    assert [claim["id"] for claim in THEIRS if claim["id"] not in stated] == []


@pytest.mark.parametrize("theirs", THEIRS, ids=lambda claim: claim["id"])
def test_an_entry_expects_what_the_list_says_within_its_tolerance(theirs: dict[str, Any]) -> None:
    """Where a value has several tolerances, an entry may name its parts otherwise."""
    ours = next(claim.stated for claim in STATED if claim.id == theirs["id"])
    expected = theirs["expected"]
    assert (ours.source, ours.kind) == (theirs["source"], theirs["kind"])
    assert ours.priority == theirs["priority"]
    assert ours.comparator == expected["comparator"]
    assert plain(ours.expected) == plain(expected["value"])
    assert tolerances(ours.tolerance) <= tolerances(expected.get("tolerance"))


@pytest.mark.skipif(not THEIRS, reason=f"there is no list of claims at {SHARED}/claims")
def test_what_matters_and_can_be_simulated_is_measured() -> None:
    left_out = {claim.id: claim for claim in STATED if claim.stated.out_of_scope}
    wanted = [
        claim["id"]
        for claim in THEIRS
        if claim["priority"] <= 2 and claim["kind"] != "not_simulable"
    ]
    assert [name for name in wanted if name in left_out] == []


def test_statements_are_short_and_none_stands_twice() -> None:
    texts = [claim.stated.statement for claim in STATED]
    assert len(set(texts)) == len(texts)
    assert [text for text in texts if len(text) > 220] == []


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    return {one.claim.id: one for one in read_record(RECORD, STATED)}


def test_every_claim_has_a_recorded_verdict(recorded: dict[str, Any]) -> None:
    assert [claim.id for claim in STATED if claim.id not in recorded] == []


@pytest.mark.parametrize("claim", STATED, ids=lambda claim: claim.id)
def test_a_claim_that_fails_says_why(claim: Claim, recorded: dict[str, Any]) -> None:
    is_failed = recorded[claim.id].verdict in {DIRECTION, NOT_REPRODUCED, REFUTED}
    assert not is_failed or claim.stated.because


@pytest.mark.parametrize("claim", STATED, ids=lambda claim: claim.id)
def test_simulated_values_have_a_spread(claim: Claim, recorded: dict[str, Any]) -> None:
    """An experiment's values come from several seeds, unless all are the same by arithmetic."""
    stated = claim.stated
    if stated.kind in SIMULATED and stated.measured_by and stated.measured_by.experiment:
        measured = recorded[claim.id].measured
        assert all(found["seeds"] >= MIN_SEEDS for found in measured.values())


def test_the_pages_are_what_the_record_says() -> None:
    judged = read_record(RECORD, STATED)
    again = "run kvsim claims --record"
    assert (FOLDER / "README.md").read_text(encoding="utf-8") == page(judged), again
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert with_section(readme, judged) == readme, again
