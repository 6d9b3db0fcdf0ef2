"""What the rows of a comparison say, in words, after a correction for how many there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sim.compare.significance import ALPHA, holm

Row = dict[str, Any]

EQUAL = "equal"
NO_DIFFERENCE = "no difference found"
TOO_FEW = "too few runs to tell"
ONE_SEED = "one seed: no significance"
DEPENDENT = "stretches depend: no significance"
NO_VALUE = "no value"
A_BETTER, B_BETTER = "A better", "B better"
B_HIGHER, B_LOWER = "B higher", "B lower"
FOUND = (A_BETTER, B_BETTER, B_HIGHER, B_LOWER)


def judge(rows: Sequence[Row]) -> None:
    """Add p_holm and verdict to all rows."""
    tested = [row for row in rows if row["p"] is not None and row["smallest_p"] < 1]
    for row, corrected in zip(tested, holm([row["p"] for row in tested]), strict=True):
        row["p_holm"] = corrected
    for row in rows:
        row.setdefault("p_holm", None)
        row["verdict"] = _verdict(row, len(tested))


def num_tested(rows: Sequence[Row]) -> int:
    """How many rows the correction is for."""
    return sum(row["p_holm"] is not None for row in rows)


def _verdict(row: Row, num_tests: int) -> str:
    if row["difference"] is None:
        return NO_VALUE
    if row["p"] is None:
        return DEPENDENT if row["method"] == "stretches" else ONE_SEED
    if row["low"] == row["high"] == 0:
        return EQUAL
    if row["p_holm"] is None or row["p_holm"] > ALPHA:
        return TOO_FEW if row["smallest_p"] * num_tests > ALPHA else NO_DIFFERENCE
    is_higher = row["difference"] > 0
    if not row["better"]:
        return B_HIGHER if is_higher else B_LOWER
    return B_BETTER if is_higher == (row["better"] == "higher") else A_BETTER
