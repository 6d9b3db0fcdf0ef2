"""Several traces as one: columns joined, and nothing of one taken for something of another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from workloads.content import TOKEN_IDS, Content, IntColumn
from workloads.rows import Rows
from workloads.trace import COLUMNS, Trace

# what a column says of requests whose trace has none, where that is known
UNSAID = {"parent": -1, "think_ns": 0, "num_samples": 1, "beam_width": 1}


def rows_of(trace: Trace) -> Rows:
    """A trace as rows that can be taken, cut and ordered."""
    columns = {name: getattr(trace, name) for name in COLUMNS}
    return Rows(
        source=trace.source,
        fields={name: values for name, values in columns.items() if values is not None},
        numbers=np.arange(len(trace)),
        place="request",
        notes=Counter(trace.notes),
        content=trace.content,
        has_output_identity=trace.has_output_identity,
    )


def join(traces: Sequence[Trace], source: str, content: str = "distinct") -> Rows:
    """The rows of one trace after those of another, in no order of time.

    Parents are renumbered; sessions and namespaces of different traces are different. content
    is "distinct" if traces have no content in common but token ids, "named" if they have in
    common what is named but not what is a request's own, or "same" if sources are left alone.
    What some traces do not say is filled in where that is known; else it is left out, which
    notes count.
    """
    notes: Counter[str] = Counter()
    for trace in traces:
        notes.update(trace.notes)
    firsts = np.cumsum([0, *(len(trace) for trace in traces)])
    fields = {}
    for name in COLUMNS:
        known = [getattr(trace, name) is not None for trace in traces]
        if not any(known):
            continue
        if not all(known) and name == "max_tokens":
            notes["ignored: max_tokens, which not all workloads have"] += int(firsts[-1])
            continue
        fields[name] = _joined(name, traces, firsts)
    contents = [trace.content for trace in traces if trace.content is not None]
    if 0 < len(contents) < len(traces):
        notes["ignored: content, which not all workloads have"] += int(firsts[-1])
    has_content = len(contents) == len(traces)
    return Rows(
        source=source,
        fields=fields,
        numbers=np.arange(firsts[-1]),
        place="request",
        notes=notes,
        content=join_content(contents, content) if has_content else None,
        has_output_identity=has_content and all(trace.has_output_identity for trace in traces),
    )


def _joined(name: str, traces: Sequence[Trace], firsts: IntColumn) -> IntColumn:
    """One column of all traces."""
    parts, shift = [], 0
    for trace, first in zip(traces, firsts.tolist(), strict=False):
        values: IntColumn | None = getattr(trace, name)
        if name == "session":
            values = np.arange(len(trace)) if values is None else values
        elif name == "namespace":
            values = np.zeros(len(trace), np.int64) if values is None else values
        elif values is None:
            values = np.full(len(trace), UNSAID[name])
        if name in {"session", "namespace"}:
            values = values + shift
            shift = int(values.max()) + 1
        elif name == "parent":
            values = np.where(values < 0, -1, values + first)
        parts.append(values)
    return np.concatenate(parts)


def join_content(contents: Sequence[Content], how: str) -> Content:
    """The prompts of one after those of another; how is as `join` says."""
    highest = lowest = 0
    moved = []
    for content in contents:
        columns = [content.source, content.output_source]
        if how != "same":
            above, below = (0, lowest) if how == "named" else (highest, lowest)
            columns = [_moved(sources, above, below) for sources in columns]
        highest = max(highest, *(int(sources.max(initial=0)) for sources in columns))
        lowest = min(lowest, *(int(sources.min(initial=0)) for sources in columns))
        moved.append(columns)
    counts = np.concatenate([np.diff(content.first_run) for content in contents])
    return Content(
        first_run=np.concatenate([[0], np.cumsum(counts)]),
        source=np.concatenate([sources for sources, _ in moved]),
        start=np.concatenate([content.start for content in contents]),
        length=np.concatenate([content.length for content in contents]),
        output_source=np.concatenate([outputs for _, outputs in moved]),
    )


def _moved(sources: IntColumn, above: int, below: int) -> IntColumn:
    """Sources with those above 0 moved up and those below 0 moved down; token ids stay."""
    moved: IntColumn = sources + np.where(sources > TOKEN_IDS, above, 0)
    return moved + np.where(sources < TOKEN_IDS, below, 0)
