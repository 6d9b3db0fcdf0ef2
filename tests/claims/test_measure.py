"""From the summaries of experiments to a claim's values, and to what they hang on."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from sim.allocators.terms import ConservationError
from sim.claims.measure import Tables, experiments_of, measure, variations
from sim.claims.probes import PROBES
from sim.claims.statement import Claim, load_claims
from sim.config.yaml_nodes import ConfigError

CLAIM = """
sources: {paper: {title: A paper, ref: x}}
claims:
  - id: gain
    source: paper
    where: Fig. 1
    statement: Twice as much.
    kind: rate_sim
    priority: 1
    evidence: primary
    expected: 2.0
    comparator: approx
    measured_by:
      experiment: runs/a.yaml
      rows: {mine: {latency: [0.0, 0.4, 1.2]}, theirs: {from: runs/b.yaml}}
      knee: {x: rate, y: latency, limit: 0.5}
      values: mine.knee / theirs.knee
    sensitivity:
      - {parameter: the limit, limits: [0.2, 0.5]}
      - parameter: the step
        experiment: runs/a.yaml
        over: step
        rows: {mine: {status: finished}}
        values: mine.served
"""


AVERAGED = """
sources: {paper: {title: A paper, ref: x}}
claims:
  - id: gain
    source: paper
    where: Fig. 1
    statement: Twice as much.
    kind: rate_sim
    priority: 1
    evidence: primary
    expected: 2.0
    comparator: approx
    measured_by: {experiment: runs/a.yaml, rows: {it: {}}, values: it.served_queued}
    sensitivity:
      - {parameter: the step, experiment: runs/a.yaml, over: step}
"""


def stated(folder: Path, text: str = CLAIM) -> Claim:
    (folder / "runs").mkdir()
    for name in ("a", "b"):
        (folder / "runs" / f"{name}.yaml").touch()
    (folder / "paper.yaml").write_text(text, encoding="utf-8")
    return load_claims(folder)[0]


def curve(name: str, factor: float) -> pd.DataFrame:
    """Latency 0, 0.4 and 1.2 at factor times 1, 2 and 4."""
    return pd.DataFrame(
        {
            "experiment": name,
            "run": [f"{name}{i}" for i in range(3)],
            "seed": 0,
            "status": "finished",
            "reason": "",
            "rate": [factor, 2 * factor, 4 * factor],
            "latency": [0.0, 0.4, 1.2],
            "step": ["short", "long", "longer"],
            "served": [1.0, factor, factor**2],
        }
    )


def summaries(claim: Claim) -> Tables:
    return dict(zip(experiments_of([claim]), (curve("a", 3), curve("b", 1)), strict=True))


def test_curves_of_two_experiments_stand_in_one_expression(tmp_path: Path) -> None:
    claim = stated(tmp_path)
    assert measure(claim, summaries(claim)).values == {"": [pytest.approx(3.0)]}


def test_a_knee_is_shown_at_other_limits(tmp_path: Path) -> None:
    claim = stated(tmp_path)
    tables = summaries(claim)
    second = tables[experiments_of([claim])[1]]
    second["latency"] = [0.0, 0.8, 1.6]
    found = variations(claim, claim.stated.sensitivity[0], tables)
    assert [one.label for one in found] == ["0.2", "0.5"]
    assert [one.values[""] for one in found] == [
        [pytest.approx(3 * 1.5 / 1.25)],
        [pytest.approx(3 * 2.25 / 1.625)],
    ]


def test_values_of_its_own_free_a_sensitivity_of_the_claims_knee(tmp_path: Path) -> None:
    claim = stated(tmp_path)
    found = variations(claim, claim.stated.sensitivity[1], summaries(claim))
    assert [(one.label, one.values[""]) for one in found] == [
        ("short", [1.0]),
        ("long", [3.0]),
        ("longer", [9.0]),
    ]


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("runs/b.yaml", "runs/c.yaml", "c.yaml: no such file"),
        ("        over: step\n", "", "needs over, the column that varies, or limits"),
        ("      knee: {x: rate, y: latency, limit: 0.5}\n", "", "is measured by a knee"),
    ],
)
def test_what_cannot_be_measured_is_one_sentence(tmp_path, old, new, sentence) -> None:
    assert old in CLAIM
    with pytest.raises(ConfigError) as error:
        stated(tmp_path, CLAIM.replace(old, new))
    assert [sentence in line for line in error.value.lines] == [True]


def test_a_sensitivity_over_queued_time_needs_requests_that_wait(tmp_path: Path) -> None:
    claim = stated(tmp_path, AVERAGED)
    table = pd.DataFrame(
        {
            "run": ["a", "b"],
            "seed": 0,
            "status": "finished",
            "reason": "",
            "step": ["short", "long"],
            "served_queued": [2.0, 3.0],
            "queued_time_frac": [0.6, 0.4],
        }
    )
    found = variations(claim, claim.stated.sensitivity[0], {claim.path("runs/a.yaml"): table})
    assert [variation.values for variation in found] == [{"": [2.0]}, {"": [3.0]}]
    assert found[0].problem == ""
    assert "only 40% of the time" in found[1].problem


def test_a_probe_that_meets_broken_memory_fails_its_claim_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(model: str) -> int:
        raise ConservationError(f"{model} lost a block")

    monkeypatch.setitem(PROBES, "kv_bytes_per_token", broken)
    by = "    measured_by: {probe: kv_bytes_per_token, with: {model: opt-13b}}\n"
    claim = stated(tmp_path, AVERAGED[: AVERAGED.index("    measured_by")] + by)
    assert "opt-13b lost a block" in measure(claim, {}).problem
