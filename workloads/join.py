"""Several traces as one: columns joined, and nothing of one taken for something of another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from workloads.content import (
    TOKEN_IDS,
    Content,
    IntColumn,
    RunColumns,
    Runs,
    own_output,
    own_prompt,
)
from workloads.rows import Rows
from workloads.trace import COLUMNS, Trace, TraceError

# what a column says of requests whose trace has none, where that is known
UNSAID = {"parent": -1, "think_ns": 0, "num_samples": 1, "beam_width": 1, "priority": 0}


def rows_of(trace: Trace) -> Rows:
    """A trace as rows that can be taken, cut and ordered. Raises TraceError as `join` does."""
    _refuse_recorded(trace)
    columns = {name: getattr(trace, name) for name in COLUMNS}
    return Rows(
        source=trace.source,
        fields={name: values for name, values in columns.items() if values is not None},
        numbers=np.arange(len(trace)),
        place="request",
        notes=Counter(trace.notes),
        content=trace.content,
        has_output_identity=trace.has_output_identity,
        whole="workload",
    )


def join(traces: Sequence[Trace], source: str, content: str = "distinct") -> Rows:
    """The rows of one trace after those of another, in no order of time.

    Parents are renumbered; sessions and namespaces of different traces are different. content
    is "distinct" if traces have no content in common but token ids, "named" if they have in
    common what is named but not what is a request's own, or "same" if sources are left alone.
    What some traces do not say is filled in where that is known; else it is left out, which
    notes count. Prompts of a trace without content share nothing, if another trace has content.
    Raises TraceError if a trace has recorded beam searches: they belong to numbers of requests.
    """
    notes: Counter[str] = Counter()
    for trace in traces:
        _refuse_recorded(trace)
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
    known_parts = [trace for trace in traces if trace.content is not None]
    unknown = sum(len(trace) for trace in traces if trace.content is None)
    if known_parts and unknown:
        notes["requests whose prompts nobody knows"] += unknown
    contents = [trace.content or unknown_content(trace.prompt_tokens) for trace in traces]
    return Rows(
        source=source,
        fields=fields,
        numbers=np.arange(firsts[-1]),
        place="request",
        notes=notes,
        content=join_content(contents, content) if known_parts else None,
        has_output_identity=bool(known_parts)
        and all(trace.has_output_identity for trace in known_parts),
    )


def _refuse_recorded(trace: Trace) -> None:
    if trace.beam_parents:
        raise TraceError(
            f"{trace.source}: the beams of request {min(trace.beam_parents)} are recorded; "
            "accepted in a workload of its own, not in one that is made of others"
        )


def unknown_content(prompt_tokens: IntColumn) -> Content:
    """Prompts of which nothing is known: each is the request's own, whole."""
    rows = np.arange(len(prompt_tokens))
    first_run = np.arange(len(prompt_tokens) + 1)
    return Content(
        first_run, own_prompt(rows), np.zeros_like(rows), prompt_tokens, own_output(rows)
    )


def _joined(name: str, traces: Sequence[Trace], firsts: IntColumn) -> IntColumn:
    """One column of all traces."""
    parts, shift = [], 0
    think_is_known = any(trace.think_ns is not None for trace in traces)
    for trace, first in zip(traces, firsts.tolist(), strict=False):
        values: IntColumn | None = getattr(trace, name)
        if name == "parent" and think_is_known and trace.think_ns is None:
            values = None  # its turns keep their own times beside others that wait for a parent
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
        above, below = (highest if how == "distinct" else 0), (0 if how == "same" else lowest)
        moved.append(_moved(content, above, below))
        sources = np.concatenate([moved[-1].source, moved[-1].output_source])
        if (outputs := moved[-1].outputs) is not None:
            sources = np.concatenate([sources, outputs.source])
        highest, lowest = max(highest, int(sources.max())), min(lowest, int(sources.min()))
    joined_outputs = None
    if any(content.outputs is not None for content in moved):
        joined_outputs = Runs(*_joined_runs([c.outputs or _nothing(len(c)) for c in moved]))
    output_source = np.concatenate([content.output_source for content in moved])
    return Content(*_joined_runs(moved), output_source, joined_outputs)


def _nothing(count: int) -> Runs:
    """No runs, of so many requests."""
    empty = np.empty(0, np.int64)
    return Runs(np.zeros(count + 1, np.int64), empty, empty, empty)


def _joined_runs(lists: Sequence[Runs]) -> RunColumns:
    counts = np.concatenate([np.diff(runs.first_run) for runs in lists])
    return (
        np.concatenate([[0], np.cumsum(counts)]),
        np.concatenate([runs.source for runs in lists]),
        np.concatenate([runs.start for runs in lists]),
        np.concatenate([runs.length for runs in lists]),
    )


def _moved(content: Content, above: int, below: int) -> Content:
    """Content with sources above 0 moved up and those below 0 moved down; token ids stay."""

    def move(source: IntColumn) -> IntColumn:
        up = np.where(source > TOKEN_IDS, above, 0)
        shift: IntColumn = up + np.where(source < TOKEN_IDS, below, 0)
        return source + shift

    outputs = content.outputs
    return Content(
        content.first_run,
        move(content.source),
        content.start,
        content.length,
        move(content.output_source),
        outputs and replace(outputs, source=move(outputs.source)),
    )
