"""Checks of constructor parameters: each failure is a ValueError "<parameter>: sentence"."""

from __future__ import annotations

import difflib
import inspect
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")


def whole(name: str, value: object, low: int = 1, high: int | None = None) -> None:
    """Refuse anything but a whole number from low to high."""
    good = isinstance(value, int) and not isinstance(value, bool) and value >= low
    if not good or (high is not None and value > high):  # type: ignore[operator]
        span = f"at least {low}" if high is None else f"from {low} to {high}"
        raise ValueError(f"{name}: must be a whole number, {span}, got {value!r}")


def number(
    name: str, value: object, low: float = 0.0, high: float = math.inf, *, above: bool = False
) -> None:
    """Refuse anything but a finite number from low to high; above: low itself is refused too."""
    good = isinstance(value, int | float) and not isinstance(value, bool)
    good = good and low <= value <= high and value < math.inf  # type: ignore[operator]
    if not good or (above and value == low):
        rule = f"{'above' if above else 'at least'} {low:g}"
        rule += f" and at most {high:g}" if high < math.inf else ""
        raise ValueError(f"{name}: must be {rule}, got {value!r}")


def variation(name: str, value: object) -> None:
    """Refuse anything but a coefficient of variation that draws can have: 0.001 to 100."""
    number(name, value, 0.001, 100)


def weights(name: str, values: object, others: str, count: int) -> None:
    """Refuse what is no list of weights, one for each of so many others."""
    if isinstance(values, str | bytes) or not isinstance(values, Sequence):
        raise ValueError(f"{name}: must be a list of numbers, got {values!r}")
    if len(values) != count or not count:
        raise ValueError(f"{name}: must be as many as {others}, {count}, got {len(values)}")
    for value in values:
        number(name, value, above=True)


def one_of(name: str, value: object, accepted: Iterable[str]) -> None:
    """Refuse a value that is not in the list."""
    accepted = list(accepted)
    if value not in accepted:
        guess = did_you_mean(str(value), accepted)
        raise ValueError(f"{name}: {value!r} is unknown{guess}; accepted: {', '.join(accepted)}")


def did_you_mean(word: str, known: Collection[str]) -> str:
    """', did you mean X', or nothing if no known word is close."""
    close = difflib.get_close_matches(word, known, n=1)
    return f", did you mean {close[0]}" if close else ""


def written_out(spec: object, table: Mapping[str, type]) -> object:
    """A bare number as the {kind: …} it is short for, if an entry of the table has a shorthand.

    The entry's class attribute shorthand names the parameter that the number is.
    """
    if isinstance(spec, int | float) and not isinstance(spec, bool):
        for kind, entry in table.items():
            if parameter := getattr(entry, "shorthand", None):
                return {"kind": kind, parameter: spec}
    return spec


def build(name: str, spec: object, table: Mapping[str, type[T]]) -> T:
    """The table entry that {kind: …, and its parameters} describes.

    Raises ValueError with the full key, such as "arrivals.rate: must be above 0, got -1".
    """
    spec = written_out(spec, table)
    if not isinstance(spec, Mapping) or "kind" not in spec:
        raise ValueError(f"{name}: must be {{kind: …}} with one of {', '.join(table)}")
    one_of(f"{name}.kind", spec["kind"], table)
    entry = table[str(spec["kind"])]
    given = {key: value for key, value in spec.items() if key != "kind"}
    known = inspect.signature(entry).parameters
    for key in given:
        one_of(f"{name}.{key}", key, known)
    for key, parameter in known.items():
        if key not in given and parameter.default is parameter.empty:
            raise ValueError(f"{name}.{key}: is missing; {spec['kind']} needs it")
    try:
        return entry(**given)
    except ValueError as error:
        lines = str(error).split("\n")
        raise ValueError("\n".join(f"{name}.{line}" for line in lines)) from None


def build_list(name: str, specs: object, table: Mapping[str, type[T]]) -> list[T]:
    """The table entries that a list of {kind: …} describes.

    Raises ValueError with the full key, such as "prefix.0.tokens: must be …".
    """
    if isinstance(specs, str | bytes) or not isinstance(specs, Sequence):
        raise ValueError(f"{name}: must be a list of {{kind: …}}, got {specs!r}")
    return [build(f"{name}.{number}", spec, table) for number, spec in enumerate(specs)]
