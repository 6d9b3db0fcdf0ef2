"""Workloads made of workloads: several at once, one several times, a part of one."""

# annotations stay objects here, as in tracefile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from workloads import checks
from workloads.arrivals import ARRIVALS
from workloads.base import WORKLOADS, Workload
from workloads.join import join, rows_of
from workloads.rows import Rows
from workloads.rules import MAX_S
from workloads.streams import STREAMS, stream
from workloads.trace import MAX_NS, MAX_TOKENS, NANOSECONDS, IntColumn, Trace, TraceError

MAX_COPIES = 100_000


@dataclass(frozen=True)
class Mix(Workload):
    """Requests of several workloads, at their own times or drawn by weight.

    workloads is a list of workloads, each {kind: …}. The seeds of generators in it are made from
    the run's and their place, so that equal ones draw different requests.
    weights, one for each, draw the next request, with all that follow it, from one of them by
    chance, until one has no more; then the times are those of arrivals, {kind: …} (kvsim list
    arrivals). Without weights there are all requests, at the times they have.
    Requests of different workloads have no content in common, except for token ids. Prompts of
    a workload that does not say what they share are each their own, and are counted.
    """

    workloads: Sequence[Mapping[str, object]]
    weights: Sequence[float] | None = None
    arrivals: Mapping[str, object] | None = None

    kind: ClassVar[str] = "mix"
    uses_seed: ClassVar[bool] = True
    nested: ClassVar[Mapping[str, Mapping[str, type]]] = {"arrivals": ARRIVALS}
    nested_lists: ClassVar[Mapping[str, Mapping[str, type]]] = {"workloads": WORKLOADS}

    def __post_init__(self) -> None:
        if not self._parts():
            raise ValueError("workloads: must be a list of at least one workload, got []")
        if self.weights is not None:
            checks.weights("weights", self.weights, "workloads", len(self.workloads))
        if (self.weights is None) != (self.arrivals is None):
            raise ValueError("arrivals: must be given with weights, and not without them")
        if self.arrivals is not None:
            checks.build("arrivals", self.arrivals, ARRIVALS)

    def _parts(self) -> list[Workload]:
        return checks.build_list("workloads", self.workloads, WORKLOADS)

    def load(self, seed: int) -> Trace:
        """The requests. Raises TraceError if a workload cannot be loaded, or none is drawn."""
        traces = [part.load(part_seed(seed, i)) for i, part in enumerate(self._parts())]
        rows = join(traces, self.kind)
        if self.weights is not None:
            owner = np.repeat(np.arange(len(traces)), [len(trace) for trace in traces])
            self._draw(rows, owner, seed)
        rows.take(np.argsort(rows.fields["arrival_ns"], kind="stable"))
        return rows.to_trace()

    def _draw(self, rows: Rows, owner: IntColumn, seed: int) -> None:
        """Keep the requests that are drawn, at their new times; owner is whose each is."""
        assert self.weights is not None
        roots = first_turns(rows.fields.get("parent"), len(rows))
        queues = [np.unique(roots[owner == i]) for i in range(len(self.weights))]
        ends = np.cumsum(self.weights)
        uniform = stream(seed, "combined").random(sum(map(len, queues)) + 1)
        which = np.searchsorted(ends[:-1], uniform * ends[-1], side="right")
        turn = np.full(len(rows), -1)  # of each first turn: when it is drawn
        end = len(which)
        for number, queue in enumerate(queues):
            end = min([end, *np.flatnonzero(which == number)[len(queue) :][:1].tolist()])
        for number, queue in enumerate(queues):
            places = np.flatnonzero(which[:end] == number)
            turn[queue[: len(places)]] = places
        if end == 0:
            raise TraceError("mix: no request was drawn before a workload ran out")
        process = checks.build("arrivals", self.arrivals, ARRIVALS)
        times = process.times_ns(end, stream(seed, "arrivals"))
        turns = turn[roots]
        rows.fields["arrival_ns"] = times[turns]
        rows.notes["cut: left over when one workload ran out"] += int((turns < 0).sum())
        rows.notes = +rows.notes
        order = np.argsort(turns, kind="stable")
        rows.take(order[turns[order] >= 0])


@dataclass(frozen=True)
class Repeat(Workload):
    """A workload several times over: copies of its requests, shifted in time.

    workload is the one that is repeated, {kind: …}.
    copies is how many times the load is wanted.
    shift_s: each copy but the first begins later, by a time drawn evenly between 0 and this many
    seconds. So the load rises within shift_s at the start, and falls as long at the end.
    content is "distinct" if copies have nothing in common but token ids, "named" if they have in
    common what the workload names, such as system prompts, documents and a file's blocks, but not
    what is a request's own, or "same" if each copy of a prompt is equal to it.
    """

    workload: Mapping[str, object]
    copies: int
    shift_s: float
    content: Literal["distinct", "named", "same"] = "distinct"

    kind: ClassVar[str] = "repeat"
    uses_seed: ClassVar[bool] = True
    nested: ClassVar[Mapping[str, Mapping[str, type]]] = {"workload": WORKLOADS}

    def __post_init__(self) -> None:
        checks.build("workload", self.workload, WORKLOADS)
        checks.whole("copies", self.copies, 1, MAX_COPIES)
        checks.number("shift_s", self.shift_s, high=MAX_S)
        checks.one_of("content", self.content, ["distinct", "named", "same"])

    def load(self, seed: int) -> Trace:
        """The requests. Raises TraceError if the workload cannot be loaded."""
        trace = checks.build("workload", self.workload, WORKLOADS).load(seed)
        shifts = stream(seed, "combined").random(self.copies) * (self.shift_s * NANOSECONDS)
        shifts[0] = 0
        rows = join([trace] * self.copies, self.kind, self.content)
        rows.fields["arrival_ns"] = rows.fields["arrival_ns"] + np.repeat(
            np.rint(shifts).astype(np.int64), len(trace)
        )
        rows.take(np.argsort(rows.fields["arrival_ns"], kind="stable"))
        return rows.to_trace()


@dataclass(frozen=True)
class Filter(Workload):
    """The requests of a workload that lie within limits; all others are counted.

    workload is the one that is filtered, {kind: …}.
    min_prompt_tokens, max_prompt_tokens, min_output_tokens and max_output_tokens are limits that
    are within.
    start_s and duration_s keep the arrivals from start_s up to start_s + duration_s, in seconds;
    time then begins at the first of them, if start_s is not 0.
    limit keeps the first requests of what is left.
    A follow-up whose turn before is not kept arrives at its own time, and is counted.
    """

    workload: Mapping[str, object]
    min_prompt_tokens: int = 1
    max_prompt_tokens: int | None = None
    min_output_tokens: int = 1
    max_output_tokens: int | None = None
    start_s: float = 0.0
    duration_s: float | None = None
    limit: int | None = None

    kind: ClassVar[str] = "filter"
    nested: ClassVar[Mapping[str, Mapping[str, type]]] = {"workload": WORKLOADS}

    def __post_init__(self) -> None:
        checks.build("workload", self.workload, WORKLOADS)
        for what, (low, high) in self._limits().items():
            checks.whole(f"min_{what}", low, 1, MAX_TOKENS)
            if high is not None:
                checks.whole(f"max_{what}", high, low, MAX_TOKENS)
        checks.number("start_s", self.start_s, high=MAX_S)
        if self.duration_s is not None:
            checks.number("duration_s", self.duration_s, high=MAX_S, above=True)
        if self.limit is not None:
            checks.whole("limit", self.limit)

    def _limits(self) -> dict[str, tuple[int, int | None]]:
        return {
            "prompt_tokens": (self.min_prompt_tokens, self.max_prompt_tokens),
            "output_tokens": (self.min_output_tokens, self.max_output_tokens),
        }

    def load(self, seed: int) -> Trace:
        """The requests that are left. Raises TraceError if there are none."""
        rows = rows_of(checks.build("workload", self.workload, WORKLOADS).load(seed))
        for what, (low, high) in self._limits().items():
            tokens = rows.fields[what]
            within = (tokens >= low) & (tokens <= (MAX_TOKENS if high is None else high))
            dropped = int(np.count_nonzero(~within))
            if dropped == len(rows):
                raise TraceError(
                    f"{rows.source}: no request has {what} within the limits; "
                    f"found: {tokens.min()} to {tokens.max()}"
                )
            if dropped:
                rows.notes[f"dropped: {what} beyond the limits"] += dropped
                rows.take(within)
        start_ns = round(self.start_s * NANOSECONDS)
        if start_ns or self.duration_s is not None:
            end_ns = MAX_NS + 1
            if self.duration_s is not None:
                end_ns = start_ns + round(self.duration_s * NANOSECONDS)
            rows.cut(start_ns, end_ns)
        if start_ns:
            rows.rebase()
        rows.limit(self.limit)
        return rows.to_trace()


def first_turns(parent: IntColumn | None, count: int) -> IntColumn:
    """The first turn of the conversation of each request: a row."""
    rows = np.arange(count)
    roots = rows if parent is None else np.where(parent < 0, rows, parent)
    while not np.array_equal(above := roots[roots], roots):
        roots = above
    return roots


def part_seed(seed: int, number: int) -> int:
    """A seed for a numbered part of a workload."""
    sequence = np.random.SeedSequence(seed, spawn_key=(STREAMS["combined"], number))
    return int(sequence.generate_state(1, np.uint64)[0] >> 1)
