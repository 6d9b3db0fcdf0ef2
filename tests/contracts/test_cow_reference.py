"""Copy-on-write blocks against naive ones, and no sequence sees what it has not written."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from naive_cow import Naive, NaiveCow, Token

from sim.allocators.checked import CheckedAllocator
from sim.allocators.paged_cow import PagedCow
from sim.allocators.terms import EXTERNAL, NUM_RECORDED
from sim.sequence import NUM_COMPUTED, NUM_TOKENS, Limits, SequenceTable, new_requests
from workloads.content import Run, own_prompt
from workloads.sequences import SequenceContent

LONGEST = 24
NUM_REQUESTS = 8


class Pool(NamedTuple):
    num_blocks: int
    size: int
    watermark: float
    num_host: int
    prefix_tokens: int
    window: int


POOLS = st.builds(
    Pool,
    num_blocks=st.integers(2, 16),
    size=st.sampled_from([1, 2, 3, 4]),
    watermark=st.sampled_from([0.0, 0.1, 0.3]),
    num_host=st.sampled_from([0, 3, 30]),
    prefix_tokens=st.sampled_from([0, 0, 1, 2, 5, 8]),
    window=st.sampled_from([0, 0, 0, 2, 3]),
)


class Beginnings(SequenceContent):
    """Prompts whose first tokens are of a source that others begin with, too."""

    def __init__(self, begins: Sequence[tuple[int, int, int]], prompts: Sequence[int]) -> None:
        super().__init__()
        self.begins, self.lengths = begins, prompts  # (namespace, source, tokens of it)

    def namespace(self, request: int) -> int:
        return self.begins[request][0]

    def prompts(self) -> Iterator[tuple[int, list[Run]]]:
        for request, (_, source, longest) in enumerate(self.begins):
            length = self.lengths[request]
            alike = min(longest, length)
            runs = [(source, 0, alike), (own_prompt(request), 0, length - alike)]
            yield request, [run for run in runs if run[2]]

    def words(self, request: int) -> list[Token]:
        """The prompt, token by token."""
        namespace, source, alike = self.begins[request]
        length = self.lengths[request]
        same = [(namespace, source, i) for i in range(min(alike, length))]
        return [*same, *((-1, request, i) for i in range(len(same), length))]

    def declared(self, count: int) -> dict[int, int]:
        """The number of the prefix of count tokens that a request's and another's prompt have."""
        firsts = [tuple(self.words(request)[:count]) for request in range(len(self.lengths))]
        twice = [f for f in firsts if count and len(f) == count and firsts.count(f) > 1]
        numbers = {first: number for number, first in enumerate(dict.fromkeys(twice))}
        return {i: numbers[first] for i, first in enumerate(firsts) if first in numbers}


class CowMachine(RuleBasedStateMachine):
    """Random requests of several sequences.

    memory is what a device would hold, if it did what the allocator logs and every sequence wrote
    its tokens where its table says.
    """

    @initialize(data=st.data(), pool=POOLS)
    def open_pool(self, data: st.DataObject, pool: Pool) -> None:
        size, num_blocks, prefix_tokens = pool.size, pool.num_blocks, pool.prefix_tokens
        window = 0 if prefix_tokens else pool.window
        begin = st.tuples(st.integers(0, 1), st.integers(1, 2), st.sampled_from([0, 2, 6, 9]))
        several = {"min_size": NUM_REQUESTS, "max_size": NUM_REQUESTS}
        begins = data.draw(st.lists(begin, **several))
        prompts = data.draw(st.lists(st.integers(1, 12), **several))
        outputs = data.draw(st.lists(st.integers(1, 12), **several))
        columns = [np.array(column) for column in ([0] * NUM_REQUESTS, prompts, outputs)]
        self.requests = new_requests(*columns, Limits(LONGEST, columns[2]))
        self.content = Beginnings(begins, prompts)
        self.allocator = CheckedAllocator(
            PagedCow(
                size,
                pool.watermark,
                num_cpu_blocks=pool.num_host,
                sliding_window=window * size or None,
                shared_prefix_tokens=prefix_tokens,
            )
        )
        self.sequences = SequenceTable(capacity=2)
        self.allocator.bind(num_blocks * size + size // 2, self.sequences, LONGEST)
        self.allocator.record_events(1 << 12)
        self.naive = NaiveCow(
            num_blocks, size, pool.num_host, int(pool.watermark * num_blocks), window
        )
        self.prefix_of = self.content.declared(prefix_tokens)
        self._pin(prefix_tokens)
        self.memory = copy.deepcopy(self.naive.content)
        self.groups: dict[int, list[int]] = {}  # rows by request
        self.num_words = 0
        hopeless = self.allocator.never_fits(self.requests).tolist()
        assert hopeless == [self._verdict(i, n) == "NEVER" for i, n in enumerate(prompts)]

    def _pin(self, count: int) -> None:
        firsts = {number: request for request, number in reversed(self.prefix_of.items())}
        need = len(firsts) * -(-count // self.naive.size)
        if need >= self.naive.num_blocks:
            with pytest.raises(ValueError, match=r"^shared_prefix_tokens: "):
                self.allocator.bind_content(self.content)
            assume(False)
        self.allocator.bind_content(self.content)
        for number in sorted(firsts):
            self.naive.pin(number, self.content.words(firsts[number])[:count])

    def _found(self, request: int, num_tokens: int) -> int:
        count = self.allocator.shared_prefix_tokens
        return count if request in self.prefix_of and num_tokens > count else 0

    def _verdict(self, request: int, num_tokens: int) -> str:
        return self.naive.admits(num_tokens, self._found(request, num_tokens))

    def _new_words(self, count: int) -> list[Token]:
        self.num_words += count
        return [("new", i) for i in range(self.num_words - count, self.num_words)]

    def running(self) -> list[int]:
        """Requests on the device none of whose sequences is done."""
        return [
            request
            for request, rows in self.groups.items()
            if not any(self.naive.rows[row].is_away | self.naive.rows[row].is_done for row in rows)
        ]

    def away(self) -> list[int]:
        return [request for request, (row, *_) in self.groups.items() if self._naive(row).is_away]

    def _naive(self, row: int) -> Naive:
        return self.naive.rows[row]

    @rule(data=st.data(), more=st.integers(0, 4), chunk=st.integers(1, 16))
    def a_request_is_admitted(self, data: st.DataObject, more: int, chunk: int) -> None:
        """Its first more generated tokens may be known already, as those of a preempted one."""
        idle = sorted(set(range(NUM_REQUESTS)) - set(self.groups))
        if not idle:
            return
        request = data.draw(st.sampled_from(idle))
        prompt, final = self.requests[request, :2].tolist()
        num_tokens = prompt + min(more, final - prompt - 1)
        row = self.sequences.open(self.requests, request)
        self.sequences.rows[row, NUM_TOKENS] = num_tokens
        found = self._found(request, num_tokens)
        assert self.allocator.lookup(row) == found
        count = min(chunk, num_tokens - found)
        expected = self._verdict(request, num_tokens)
        assert self.allocator.admit(row, count).name == expected
        if expected != "OK":
            if expected == "NEVER":
                assert "blocks of" in self.allocator.refusal(row)
            self.sequences.close(row)
            return
        words = [*self.content.words(request), *self._new_words(num_tokens - prompt)]
        words = words[found : found + count]
        prefix = self.prefix_of[request] if found else None
        self.naive.admit(row, Naive(request, final), prefix, words)
        self.groups[request] = [row]
        self._follow([row], [words])

    def _some_rows(self, data: st.DataObject, requests: Sequence[int]) -> list[int]:
        """Mostly all rows of some requests that have something to write, request by request."""
        chosen = data.draw(st.lists(st.sampled_from(requests), min_size=1, unique=True))
        rows = [row for request in chosen for row in self.groups[request]]
        if data.draw(st.integers(0, 4)) == 0:
            rows = [row for row in rows if data.draw(st.booleans())]
        return [row for row in rows if self._naive(row).room > 0]

    @precondition(lambda self: self.running())
    @rule(data=st.data(), is_decode=st.booleans())
    def rows_append(self, data: st.DataObject, is_decode: bool) -> None:
        rows = self._some_rows(data, self.running())
        rooms = [self._naive(row).room for row in rows]
        counts = [1 if is_decode else data.draw(st.integers(0, min(7, room))) for room in rooms]
        words = [self._new_words(count) for count in counts]
        self._know(rows, counts)
        served = self.allocator.append(np.array(rows, np.int64), np.array(counts, np.int64))
        assert served == self.naive.append(rows, words)
        self._follow(rows[:served], words)

    def _know(self, rows: Sequence[int], counts: Sequence[int]) -> None:
        """Sequences have sampled the tokens that they are about to write."""
        cells = self.sequences.rows
        for row, count in zip(rows, counts, strict=True):
            cells[row, NUM_TOKENS] = max(cells[row, NUM_TOKENS], cells[row, NUM_COMPUTED] + count)

    @precondition(lambda self: self.running())
    @rule(data=st.data(), num_iterations=st.integers(0, 12), goes_on=st.booleans())
    def rows_decode_ahead(self, data: st.DataObject, num_iterations: int, goes_on: bool) -> None:
        rows = self._some_rows(data, self.running())
        num_iterations = min([num_iterations, *(self._naive(row).room for row in rows)])
        array = np.array(rows, np.int64)
        promised = self.allocator.can_append(array, num_iterations)
        assert promised == self.naive.can_append(rows, num_iterations)
        promised = promised if goes_on else promised // 2
        log = np.full((promised, NUM_RECORDED), -1, np.int64)
        self._know(rows, [promised] * len(rows))
        self.allocator.append_ahead(array, promised, log)
        words: list[list[Token]] = [[] for _ in rows]
        for i in range(promised):
            fresh = [self._new_words(1) for _ in rows]
            assert self.naive.append(rows, fresh) == len(rows)
            assert log[i].tolist() == self._recorded()
            words = [[*mine, *word] for mine, word in zip(words, fresh, strict=True)]
        self._follow(rows, words)

    @precondition(lambda self: self.running() and self.allocator.forks == "shared")
    @rule(data=st.data())
    def a_request_forks(self, data: st.DataObject) -> None:
        """Some sequences get children, and some end, parents among them."""
        request = data.draw(st.sampled_from(self.running()))
        rows = self.groups[request]
        parents = data.draw(st.lists(st.sampled_from(rows), max_size=3))
        ending = data.draw(st.lists(st.sampled_from(rows), unique=True, max_size=3))
        if len(ending) == len(rows) and not parents:
            ending = ending[1:]
        children = [self.sequences.fork(parent) for parent in parents]
        arrays = (np.array(rows, np.int64) for rows in (parents, children, ending))
        assert self.allocator.fork(*arrays)
        self.naive.fork(parents, children)
        for row in ending:
            self.naive.release(row)
            self.sequences.close(row)
        self.groups[request] = [row for row in rows if row not in ending] + children
        self._follow([], [])

    @precondition(lambda self: self.groups.keys() - set(self.away()))
    @rule(data=st.data())
    def a_request_ends(self, data: st.DataObject) -> None:
        here = sorted(self.groups.keys() - set(self.away()))
        rows = self.groups.pop(data.draw(st.sampled_from(here)))
        self.allocator.free(np.array(rows))
        for row in rows:
            self.naive.release(row)
            self.sequences.close(row)
        self._follow([], [])

    @precondition(lambda self: self.running())
    @rule(data=st.data())
    def a_request_is_done_and_stays(self, data: st.DataObject) -> None:
        """As in a static batch; whoever forks does not stay."""
        alone = [request for request in self.running() if len(self.groups[request]) == 1]
        if alone:
            (row,) = self.groups[data.draw(st.sampled_from(alone))]
            self.allocator.retire(row)
            self._naive(row).is_done = True

    @precondition(lambda self: self.running())
    @rule(data=st.data())
    def a_request_leaves_for_the_host(self, data: st.DataObject) -> None:
        rows = self.groups[data.draw(st.sampled_from(self.running()))]
        has_room = self.allocator.can_swap_out(np.array(rows))
        assert has_room == self.naive.can_swap_out(rows)
        if has_room:
            self.allocator.swap_out(np.array(rows))
            self.naive.swap_out(rows)
            self._follow([], [])

    @precondition(lambda self: self.away())
    @rule(data=st.data())
    def a_request_comes_back(self, data: st.DataObject) -> None:
        rows = self.groups[data.draw(st.sampled_from(self.away()))]
        verdict = self.allocator.can_swap_in(np.array(rows)).name
        assert verdict == self.naive.can_swap_in(rows)
        if verdict == "OK":
            self.allocator.swap_in(np.array(rows))
            self.naive.swap_in(rows)
            self._follow([], [])

    @precondition(lambda self: self.away())
    @rule(data=st.data())
    def a_request_ends_on_the_host(self, data: st.DataObject) -> None:
        rows = self.groups.pop(data.draw(st.sampled_from(self.away())))
        self.allocator.drop_swapped(np.array(rows))
        for row in rows:
            self.naive.release(row)
            self.sequences.close(row)
        self._follow([], [])

    def _follow(self, rows: Sequence[int], words: Sequence[Sequence[Token]]) -> None:
        """Let memory take part in what the allocator has done: copies first, then tokens."""
        for _, block, new in self.allocator.events().tolist():
            self.memory[new] = list(self.memory[block])
        for row, mine in zip(rows, words, strict=False):
            end = int(self.sequences.rows[row, NUM_COMPUTED])
            table = self.allocator.block_table(row).tolist()
            for place, word in zip(range(end - len(mine), end), mine, strict=True):
                block = table[place // self.naive.size % len(table)]
                self.memory.setdefault(block, [None] * self.naive.size)
                self.memory[block][place % self.naive.size] = word
        held = self._held()
        self.memory = {block: tokens for block, tokens in self.memory.items() if block in held}

    def _held(self) -> set[int]:
        rows = [row for rows in self.groups.values() for row in rows]
        tables = [self.allocator.block_table(row).tolist() for row in rows]
        return set().union(*tables, *self.naive.pinned.values())

    def _recorded(self) -> list[int]:
        terms = self.naive.terms()
        terms[EXTERNAL] = self.naive.size // 2  # the remainder of the pool
        return [*terms, *self.naive.held()]

    @invariant()
    def both_look_alike(self) -> None:
        if not hasattr(self, "groups"):
            return
        allocator, naive = self.allocator, self.naive
        assert allocator.free_list()[::-1].tolist() == naive.free
        assert allocator.host_free_list()[::-1].tolist() == naive.host_free
        counts = allocator.ref_counts()
        assert counts.tolist() == [naive.holders(block) for block in range(len(counts))]
        assert allocator.recorded.tolist() == self._recorded()
        assert allocator.counters()["num_copied_blocks"] == naive.num_copied
        assert allocator.copied_tokens() == naive.num_copied * naive.size
        assert allocator.num_swapped_blocks() == (naive.num_out + naive.num_in, naive.size)
        for row, mine in naive.rows.items():
            assert allocator.block_table(row).tolist() == mine.table
            if not mine.is_done:
                assert self.sequences.rows[row, NUM_COMPUTED] == len(mine.words)

    @invariant()
    def every_sequence_sees_its_own_tokens(self) -> None:
        if not hasattr(self, "groups"):
            return
        size = self.naive.size
        for row, naive in self.naive.rows.items():
            table = self.allocator.block_table(row).tolist()
            here = range(len(naive.words))[-len(table) * size :] if table else range(0)
            seen = [self.memory[table[i // size % len(table)]][i % size] for i in here]
            assert seen == naive.words[len(naive.words) - len(seen) :] == self.naive.seen_by(row)
            assert self.naive.window or len(seen) == len(naive.words)

    def teardown(self) -> None:
        if not hasattr(self, "groups"):
            return
        for request in list(self.groups):
            rows = np.array(self.groups.pop(request))
            is_away = self._naive(rows.item(0)).is_away
            (self.allocator.drop_swapped if is_away else self.allocator.free)(rows)
        free = [*self.allocator.free_list().tolist(), *self.allocator.host_free_list().tolist()]
        assert len(free) == len(self.allocator.ref_counts()) - self.naive.num_pinned()
        assert not self.allocator.ref_counts().any()
        assert self.allocator.terms[0] == 0


@pytest.mark.timeout(600)
def test_copy_on_write_blocks_do_what_naive_ones_do() -> None:
    run_state_machine_as_test(
        CowMachine,
        settings=settings(
            max_examples=50,
            stateful_step_count=35,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
