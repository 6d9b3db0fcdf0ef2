"""Claims as text, from plain data: what the record of verdicts holds is all that is needed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any


def leaves(value: Any) -> dict[str, Any]:
    """A value of mappings and lists as its leaves, by dotted path; {"": value} for a plain one."""
    if isinstance(value, Mapping):
        items: Sequence[tuple[Any, Any]] = list(value.items())
    elif isinstance(value, list | tuple):
        items = list(enumerate(value))
    else:
        return {"": value}
    return {
        f"{key}.{inner}".rstrip("."): leaf
        for key, below in items
        for inner, leaf in leaves(below).items()
    }


def shown(value: Any) -> str:
    """A value as a sentence has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 10_000 else f"{value:,.0f}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(shown(item) for item in value) + "]"
    return str(value)


def expected_text(entry: Mapping[str, Any]) -> str:
    """The expected value with its tolerance and unit, in a line.

    entry has expected, comparator, tolerance, unit, and is_relative: whether the tolerance is a
    part of the value.
    """
    expected, unit, is_part = entry["expected"], entry["unit"], entry.get("is_relative", False)
    values = expected if isinstance(expected, dict) else {"": expected}
    parts = [
        f"{name}: {_nested(value)}" if name else _nested(value) for name, value in values.items()
    ]
    sign = {"le": "≤ ", "ge": "≥ ", "order_and_upper": "≤ "}.get(entry["comparator"], "")
    text = sign + "; ".join(parts)
    slack = _slack(expected, entry["tolerance"], is_part)
    order = (text, unit, slack) if is_part else (text, slack, unit)
    return " ".join(part for part in order if part)


def _slack(expected: Any, slack: Any, is_part: bool) -> str:
    """The tolerance of an expected value; "" if it has none."""
    if all(isinstance(leaf, str | bool) for leaf in leaves(expected).values()):
        return ""

    def said(value: float) -> str:
        return f"{shown(100 * value)} %" if is_part else shown(value)

    if isinstance(slack, dict):
        return "± " + ", ".join(f"{said(value)} {name}" for name, value in slack.items())
    return f"± {said(slack)}" if slack else ""


def measured_text(values: Mapping[str, Mapping[str, Any]]) -> str:
    """Measured values in a line."""
    parts: dict[str, list[str]] = {}
    for name, found in values.items():
        text = shown(found["mean"])
        if found["sd"] is not None:
            text += f" ± {found['sd']:.2g}"
        whole, _, number = name.rpartition(".")
        parts.setdefault(whole if number.isdigit() else name, []).append(text)
    return "; ".join(
        f"{name}: {_joined(texts)}" if name else _joined(texts) for name, texts in parts.items()
    )


def _joined(texts: list[str]) -> str:
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def _nested(value: Any) -> str:
    """An expected value in a line, mappings in brackets."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_nested(inner)}" for key, inner in value.items()) + "}"
    return shown(value)


def variation_text(entry: Mapping[str, Any]) -> str:
    """A setting other than the claim's, and what is measured there."""
    found = entry.get("problem") or measured_text(entry["measured"])
    return f"{_setting(entry['setting'])} → {found}"


def _setting(text: str) -> str:
    """A setting in words: of a plug-in's keys, as a summary has them, the kind and the others."""
    try:
        keys = json.loads(text)
    except ValueError:
        return text
    if not isinstance(keys, dict):
        return text
    return ", ".join(
        str(value) if key == "kind" else f"{key} {value}" for key, value in keys.items()
    )
