"""The verdict on a claim: what was expected against what was measured.

A tolerance is relative to the expected value, except for shares (percent, points, fractions) and
for bounds and ranges, where it is in the unit. It is the one the claim states.
"""

from __future__ import annotations

import math
import statistics
from typing import Any

from sim.claims.expressions import too_little_queued
from sim.claims.measure import Measured
from sim.claims.statement import Statement
from sim.claims.text import leaves, shown
from sim.claims.verdicts import (
    CONFIRMED,
    DIRECTION,
    FITTED,
    NOT_REPRODUCED,
    REFUTED,
    VACUOUS,
)

EXACT_KINDS = {"deterministic", "property", "config_fact"}
ABSOLUTE_UNITS = {
    "percent",
    "percentage points",
    "points",
    "fraction",
    "of max",
    "of optimal",
}
BOUNDS = {"range", "le", "ge", "order_and_upper", "input_parameter"}
UNMEASURED = "is not measured"
ROUNDING = 1e-9  # of floating-point arithmetic


def judge(stated: Statement, measured: Measured) -> tuple[str, list[str]]:
    """The verdict, and what misses the expected value, a phrase each."""
    if measured.problem:
        return NOT_REPRODUCED, [measured.problem]
    problem = too_little_queued(measured.queued_time_frac)
    if problem:
        return NOT_REPRODUCED, [problem]
    misses = compare(stated, measured)
    if not misses:
        if measured.vacuous:
            return VACUOUS, []
        return (FITTED if stated.fitted else CONFIRMED), []
    if measured.directions and all(measured.directions):
        return DIRECTION, misses
    return (REFUTED if stated.kind in EXACT_KINDS else NOT_REPRODUCED), misses


def compare(stated: Statement, measured: Measured) -> list[str]:
    """What of the expected value is not met, a phrase each."""
    expected = _with_ranges(expected_leaves(stated), measured)
    misses, met = [], set()
    for name, values in measured.values.items():
        key = _key_of(name, expected)
        met.add(key)
        wanted = expected.get(key) if key is not None else None
        if not _is_met(stated, key or "", wanted, values):
            misses.append(f"{name or 'value'} is {shown(mean(values))}, not {shown(wanted)}")
    if not _only_truths(measured):
        misses += [f"{key} {UNMEASURED}" for key in expected if key not in met]
    return misses


def expected_leaves(stated: Statement) -> dict[str, Any]:
    """The expected value as leaves; a pair that is a range stays together."""
    if stated.comparator in {"range", "input_parameter"}:
        if not isinstance(stated.expected, dict):
            return {"": stated.expected}
        return dict(stated.expected)
    return leaves(stated.expected)


def _with_ranges(expected: dict[str, Any], measured: Measured) -> dict[str, Any]:
    """Expected leaves in which a pair is one where a single value is measured: its range."""
    result = dict(expected)
    for name in measured.values:
        ends = f"{name}.0", f"{name}.1"
        if all(end in expected and end not in measured.values for end in ends):
            result[name] = [result.pop(end) for end in ends]
    return result


def mean(values: list[Any]) -> Any:
    """The mean of numbers; of anything else the value if all are equal, and otherwise all."""
    if all(isinstance(value, bool) for value in values):
        return all(values)
    if all(isinstance(value, int | float) for value in values):
        return statistics.fmean(values) if len(values) > 1 else values[0]
    return values[0] if len(set(map(str, values))) == 1 else values


def spread(values: list[Any]) -> float | None:
    """The standard deviation between seeds; None where there is none."""
    is_number = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    return statistics.stdev(values) if is_number and len(values) > 1 else None


def _only_truths(measured: Measured) -> bool:
    """Whether all that was measured are truth values, which may answer a claim in words."""
    return all(isinstance(v, bool) for values in measured.values.values() for v in values)


def _key_of(name: str, expected: dict[str, Any]) -> str | None:
    """The expected leaf that a measured one is about: its own, or the nearest above it."""
    while name not in expected:
        if not name:
            return None
        name = name.rpartition(".")[0]
    return name


def _is_met(stated: Statement, key: str, wanted: Any, values: list[Any]) -> bool:
    if all(isinstance(value, bool) for value in values):
        is_answer = not _is_number(wanted) or stated.comparator == "order_and_upper"
        return is_answer and all(value is (wanted is not False) for value in values)
    value = mean(values)
    is_number = isinstance(value, int | float)
    if isinstance(wanted, list | tuple) and is_number:
        low, high = wanted
    elif is_number and isinstance(wanted, int | float):
        low = -math.inf if stated.comparator in BOUNDS - {"ge"} else wanted
        high = math.inf if stated.comparator == "ge" else wanted
    else:
        return bool(value == wanted)
    slack = _tolerance(stated, key)
    if is_relative(stated, wanted):
        slack *= abs(wanted)
    slack += ROUNDING * abs(value)
    return bool(low - slack <= value <= high + slack)


def _is_number(wanted: Any) -> bool:
    """Whether a number, or a range of them, is expected, which no truth value answers."""
    if isinstance(wanted, list | tuple):
        return all(map(_is_number, wanted))
    return isinstance(wanted, int | float) and not isinstance(wanted, bool)


def is_relative(stated: Statement, wanted: Any) -> bool:
    """Whether the tolerance of an expected leaf is a fraction of it."""
    is_kind = stated.comparator not in BOUNDS and stated.unit not in ABSOLUTE_UNITS
    return is_kind and _is_number(wanted) and not isinstance(wanted, list | tuple)


def has_relative_tolerance(stated: Statement) -> bool:
    """Whether that is so of any leaf."""
    return any(is_relative(stated, leaf) for leaf in expected_leaves(stated).values())


def _tolerance(stated: Statement, key: str) -> float:
    """The tolerance of a leaf: one for all, or that of the part of its name that has one."""
    if not isinstance(stated.tolerance, dict):
        return stated.tolerance
    named = [part for part in (key, *key.split(".")) if part in stated.tolerance]
    return stated.tolerance[named[0]] if named else 0.0
