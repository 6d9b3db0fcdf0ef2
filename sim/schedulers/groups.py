"""Requests of several sequences: which rows they are, and how they fork and end.

A request that never forks is one row, and costs nothing here. Others have a Group. The order in
which rows are freed and forked is that of vLLM v0 (0.2.7): request by request as they run, and
within one as sim.branching.Step says.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sim.allocators.base import Allocator
from sim.batch import count_tokens
from sim.beam_search import Step
from sim.branching import Branches
from sim.jit import direct
from sim.schedulers.queues import QueueScheduler
from sim.sequence import (
    FINAL_TOKENS,
    FINISH_NS,
    FINISHED,
    NUM_COMPUTED,
    NUM_GENERATED,
    NUM_TOKENS,
    PROMPT_TOKENS,
    REQUEST,
    STATUS,
    IntArray,
    SequenceTable,
)


@dataclass
class Group:
    """A request that may be several sequences.

    rows are those that have not ended, in the engine's order; width is how many run at most.
    num_sequences counts those that ended by themselves, too.
    """

    request: int
    rows: list[int]
    width: int
    is_search: bool
    num_sequences: int = 1
    is_running: bool = False
    is_at_prompt: bool = False  # its first token comes next, and forks it

    @property
    def max_running(self) -> int:
        """vLLM v0's get_max_num_running_seqs: how many sequences it may still run at once."""
        if self.is_search or self.width > self.num_sequences:
            return self.width
        return len(self.rows)


class GroupScheduler(QueueScheduler):
    """A scheduler whose running list holds the rows of one request side by side.

    A subclass sets is_running and is_at_prompt of groups where it admits and preempts, and adds
    the rows to the running list.
    """

    _branches: Branches | None = None

    def bind_branches(self, branches: Branches) -> None:
        self._branches = branches

    def bind(self, requests: IntArray, sequences: SequenceTable, allocator: Allocator) -> None:
        super().bind(requests, sequences, allocator)
        if allocator.forks == "no":
            self._branches = None
        self._groups: dict[int, Group] = {}  # of the requests in service that may fork
        self._is_described = True  # whether batch describes the next iteration, if all decode
        self._count_tokens = direct(
            count_tokens, sequences.rows, requests, self._finished, 0, self.gaps
        )

    def widths(self) -> IntArray:
        if self._branches is None:
            return super().widths()
        return np.array([self._branches.width(i) for i in range(len(self.requests))], np.int64)

    def _group(self, request: int, row: int) -> Group | None:
        """The group of a request that is about to be admitted; None if it never forks."""
        if self._branches is None or request in self._groups:
            return self._groups.get(request)
        width = self._branches.width(request)
        if width > 1:
            is_search = self._branches.is_search(request)
            self._groups[request] = Group(request, [row], width, is_search)
        return self._groups.get(request)

    def _max_running(self, request: int) -> int:
        group = self._groups.get(request)
        return 1 if group is None else group.max_running

    def _num_current(self) -> int:
        """The sequences that the running requests may have at once."""
        running = [group for group in self._groups.values() if group.is_running]
        rows = sum(len(group.rows) for group in running)
        return self.num_running - rows + sum(group.max_running for group in running)

    @property
    def num_in_service(self) -> int:
        groups = self._groups.values()
        return self.num_running - sum(len(group.rows) - 1 for group in groups if group.is_running)

    def _may_branch(self) -> bool:
        """Whether the end of the next iteration may fork or end somebody of a group."""
        return any(self._asks(group) for group in self._groups.values())

    def _branching(self) -> dict[int, Group]:
        """The groups that may fork or end somebody at the end of this iteration, by request."""
        rows, found = self.sequences.rows, {}
        for request, group in self._groups.items():
            first = rows[group.rows[0]]
            has_computed = first.item(NUM_COMPUTED) == first.item(NUM_TOKENS)
            if has_computed and self._asks(group):
                found[request] = group
        return found

    def _asks(self, group: Group) -> bool:
        """Whether branches must say what becomes of the group at its next token."""
        branches = self._branches
        asks = group.is_at_prompt or (branches is not None and branches.asks_always(group.request))
        return group.is_running and asks

    def complete(self, boundaries: IntArray, num_iterations: int) -> None:
        branching = self._branching()
        self._is_described = not branching
        if not branching:
            super().complete(boundaries, num_iterations)
            return
        self._let_find()
        running = self.running[: self.num_running].copy()
        requests = self.sequences.rows[running, REQUEST]
        is_plain = np.isin(requests, list(branching), invert=True)
        finished = self._sample_plain(running[is_plain], boundaries)
        self.num_running = 0
        visited = set()
        for row, request in zip(running.tolist(), requests.tolist(), strict=True):
            if row in finished:
                self._leave(np.array([row]))
            elif request not in branching:
                self.run_row(row)
            elif request not in visited:
                visited.add(request)
                self._branch(branching[request], boundaries.item(1))
                for mine in branching[request].rows:
                    self.run_row(mine)

    def _sample_plain(self, rows: IntArray, boundaries: IntArray) -> set[int]:
        """Let rows that never fork here have their tokens; return those that finished."""
        state = self.sequences.rows, self.requests, rows, len(rows), self._finished
        count = self._sample_tokens(*state, boundaries, 1, self.gaps, self.batch)
        return set(self._finished[:count].tolist())

    def _branch(self, group: Group, end_ns: int) -> None:
        """Let a group's sequences have their tokens, fork and end."""
        assert self._branches is not None
        rows = self.sequences.rows
        self._count_tokens(rows, self.requests, np.array(group.rows), end_ns, self.gaps)
        first = rows[group.rows[0]]
        num_tokens, final = first.item(NUM_TOKENS), first.item(FINAL_TOKENS)
        prompt, is_last = first.item(PROMPT_TOKENS), num_tokens == final
        step = self._branches.step(group.request, group.is_at_prompt, is_last)
        if group.is_at_prompt and len(group.rows) > 1 and not is_last:
            step = Step()  # all there will be were copied when it was admitted
        elif step is None:
            step = Step(ended=range(len(group.rows)) if is_last else ())
        group.is_at_prompt = False
        self._apply(group, step)
        if not group.rows:
            self.requests[group.request, [FINISH_NS, STATUS]] = end_ns, FINISHED
            self.requests[group.request, NUM_GENERATED] = num_tokens - prompt
            self._end_group(group)

    def _apply(self, group: Group, step: Step) -> None:
        """Drop, fork and free, in this order."""
        old = np.array(group.rows)
        dropped, ended = old[list(step.dropped)], old[list(step.ended)]
        self.allocator.free(dropped)
        parents = old[list(step.forked)]
        children = [self.sequences.fork(parent) for parent in parents.tolist()]
        if not self.allocator.fork(parents, np.array(children, np.int64), ended):
            raise MemoryError(f"{self.allocator.kind}: no room for a fork of a running request")
        gone = {*dropped.tolist(), *ended.tolist()}
        group.rows = [row for row in group.rows if row not in gone] + children
        group.num_sequences += len(children) - len(dropped)
        self.sequences.close_all(np.concatenate([dropped, ended]))

    def _end_group(self, group: Group) -> None:
        del self._groups[group.request]
        self.num_finished += 1
        if self.notes_ends:
            self.ended.append(group.request)

    def _leave(self, rows: IntArray) -> None:
        if not self._groups:
            super()._leave(rows)
            return
        requests = self.sequences.rows[rows, REQUEST].tolist()
        self.allocator.free(rows)
        self.sequences.close_all(rows)
        for row, request in zip(rows.tolist(), requests, strict=True):
            group = self._groups.get(request)
            if group is None:
                self.num_finished += 1
                if self.notes_ends:
                    self.ended.append(request)
                continue
            group.rows.remove(row)
            if not group.rows:
                self._end_group(group)
