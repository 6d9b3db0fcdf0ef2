"""The swept keys of an experiment and their values, however the points are laid out.

Under `sweep:` a key with a list of values is a dimension of a grid. Four words lay out points
whose values go together, and each of them is one more dimension:

zip               {key: values, …}: the first values together, the second ones together, …
list              [{key: value, …}, …]: points written out
random            points drawn independently (sim.config.sampling)
latin_hypercube   points that divide the range of each key evenly (sim.config.sampling)
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sim.config.engine_presets import ENGINES
from sim.config.plugins import Report, guess, validate
from sim.config.sampling import SAMPLERS, SampleKeys, draw
from sim.config.yaml_nodes import KeyPath

ENGINE = "engine"
ALL = "all"  # sweep: {engine: all}
ZIP, LIST = "zip", "list"
FORMS = (ZIP, LIST, *SAMPLERS)
SWEEPABLE = (
    ENGINE,
    "allocator",
    "workload",
    "scheduler",
    "cost",
    "replicas",
    "kv_cache",
    "max_model_len",
    "model",
    "device",
    "gpu_memory_utilization",
    "activation_bytes",
    "non_torch_bytes",
    "tensor_parallel_size",
    "dtype",
    "kv_cache_dtype",
    "slo",
)


@dataclass(frozen=True, eq=False)  # values may be mappings, which have no hash
class Axis:
    """A swept key and its values. Axes of one form, but for "", take their values together."""

    key: str
    values: tuple[Any, ...]
    form: str = ""

    @property
    def path(self) -> KeyPath:
        """The key as a path; a number is a place in a list."""
        return tuple(int(part) if part.isdecimal() else part for part in self.key.split("."))

    def place(self, index: int) -> KeyPath:
        """Where the value of this index is written, or what it is drawn from."""
        if self.form == LIST:
            return ("sweep", LIST, index, self.key)
        if self.form in SAMPLERS:
            return ("sweep", self.form, "keys", self.key)
        return ("sweep", self.form, self.key, index) if self.form else ("sweep", self.key, index)


def dimensions(axes: Sequence[Axis]) -> list[list[Axis]]:
    """The axes, those together whose values go together."""
    found: dict[object, list[Axis]] = {}
    for axis in axes:
        found.setdefault(axis.form or axis, []).append(axis)
    return list(found.values())


def sampling_lines(axes: Sequence[Axis]) -> Iterator[str]:
    """What was drawn, in words."""
    for dimension in dimensions(axes):
        form = dimension[0].form
        if form in SAMPLERS:
            points = list(zip(*(axis.values for axis in dimension), strict=True))
            num_different = len({json.dumps(point, sort_keys=True) for point in points})
            same = "" if num_different == len(points) else f", {num_different:,} of them different"
            yield f"sweep         {form}: {len(points):,} points drawn{same}"


def read_axes(value: Any, report: Report) -> list[Axis]:
    """The sweep of an experiment; what is wrong with it is reported and left out.

    Of engines, "all" is every preset.
    """
    if value is None:
        return []
    if not isinstance(value, dict):
        report(("sweep",), "must be a mapping like {allocator.block_size: [8, 16]}")
        return []
    axes: list[Axis] = []
    for key, values in value.items():
        where = ("sweep", key)
        if key == ZIP:
            axes += _zipped(values, where, report)
        elif key == LIST:
            axes += _listed(values, where, report)
        elif key in SAMPLERS:
            axes += _sampled(key, values, where, report)
        elif _may_be_swept(key, where, report):
            axes += _grid(key, values, where, report)
    return _in_order(_once(axes, report), report)


def _grid(key: str, values: Any, where: KeyPath, report: Report) -> list[Axis]:
    if key == ENGINE and values == ALL:
        return [Axis(key, tuple(ENGINES))]
    if not _is_list(key, values, where, report):
        return []
    if len(set(map(_same, values))) < len(values):
        report(where, "has a value twice")
        return []
    return [Axis(key, tuple(values))]


def _once(axes: list[Axis], report: Report) -> list[Axis]:
    """The axes without those whose key another one has, which are reported."""
    first: dict[str, Axis] = {}
    for axis in axes:
        other = first.setdefault(axis.key, axis)
        if other is not axis:
            place = f"sweep.{other.form}" if other.form else "sweep"
            report(axis.place(0), f"is swept twice, also in {place}")
    return list(first.values())


def _in_order(axes: list[Axis], report: Report) -> list[Axis]:
    """The axes without those that a later one, of a key above theirs, would undo: reported."""
    undone = {
        axis.key: above.key
        for number, axis in enumerate(axes)
        for above in axes[number + 1 :]
        if axis.path[: len(above.path)] == above.path
    }
    for axis in axes:
        if axis.key in undone:
            report(axis.place(0), f"is undone by {undone[axis.key]} below it; write that one first")
    return [axis for axis in axes if axis.key not in undone]


def _may_be_swept(key: str, where: KeyPath, report: Report) -> bool:
    root = key.split(".", maxsplit=1)[0]
    if root not in SWEEPABLE:
        report(where, f"cannot be swept{guess(root, [*SWEEPABLE, *FORMS])}")
    elif root == ENGINE != key:
        report(where, "cannot be swept; accepted: engine, and keys of allocator and scheduler")
    elif key in {"allocator", "allocator.kind"}:
        report(where, "cannot be swept; accepted: a list of allocators")
    else:
        return True
    return False


def _is_list(key: str, values: Any, where: KeyPath, report: Report) -> bool:
    if isinstance(values, list) and values:
        return True
    or_all = ", or all" if key == ENGINE and len(where) == 2 else ""
    report(where, f"must be a list of at least one value{or_all}")
    return False


def _keys(values: Any, example: str, where: KeyPath, report: Report) -> dict[str, Any]:
    """The keys below one of the words that may be swept."""
    if not isinstance(values, dict) or not values:
        report(where, f"must be a mapping like {example}")
        return {}
    return {k: below for k, below in values.items() if _may_be_swept(k, (*where, k), report)}


def _zipped(values: Any, where: KeyPath, report: Report) -> list[Axis]:
    keys = _keys(
        values, "{workload.arrivals.rate: [1, 2], max_model_len: [64, 128]}", where, report
    )
    lists = {k: v for k, v in keys.items() if _is_list(k, v, (*where, k), report)}
    lengths = {key: len(values) for key, values in lists.items()}
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{key} {length}" for key, length in lengths.items())
        report(where, f"must have as many values of each key, got {counts}")
        return []
    return _distinct([Axis(key, tuple(values), ZIP) for key, values in lists.items()], report)


def _listed(values: Any, where: KeyPath, report: Report) -> list[Axis]:
    example = "[{workload.arrivals.rate: 1, max_model_len: 64}, …]"
    if not isinstance(values, list) or not values or not all(isinstance(p, dict) for p in values):
        report(where, f"must be a list of points like {example}")
        return []
    first = _keys(values[0], "{workload.arrivals.rate: 1}", (*where, 0), report)
    for number, point in enumerate(values[1:], 1):
        if point.keys() != values[0].keys():
            report((*where, number), f"must have the keys of the first: {', '.join(values[0])}")
            return []
    return _distinct([Axis(k, tuple(point[k] for point in values), LIST) for k in first], report)


def _distinct(axes: list[Axis], report: Report) -> list[Axis]:
    """The axes, unless they have a point twice, which is reported."""
    seen = set()
    for number, point in enumerate(zip(*(axis.values for axis in axes), strict=True)):
        if _same(point) in seen:
            path = axes[0].place(number)
            report(path[:-1] if axes[0].form == LIST else path, "is a point that was there before")
            return []
        seen.add(_same(point))
    return axes


def _same(value: Any) -> str:
    """Text that values have in common which are the same, as 1 and 1.0 are."""
    return json.dumps(_whole(value), sort_keys=True)


def _whole(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _whole(below) for key, below in value.items()}
    if isinstance(value, list | tuple):
        return [_whole(below) for below in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _sampled(form: str, values: Any, where: KeyPath, report: Report) -> list[Axis]:
    example = "{num_points: 20, keys: {workload.arrivals.rate: {min: 1, max: 8}}}"
    if not isinstance(values, dict):
        report(where, f"must be a mapping like {example}")
        return []
    sample = validate(SampleKeys, values, where, report)
    below = (*where, "keys")
    example = "{workload.arrivals.rate: {min: 1, max: 8}}"
    keys = _keys(values["keys"], example, below, report) if "keys" in values else {}
    if not isinstance(sample, SampleKeys):
        return []
    axes = []
    for key, spec in keys.items():
        drawn = draw((form, key), sample, spec, (*below, key), report)
        if drawn is not None:
            axes.append(Axis(key, tuple(drawn), form))
    return axes
