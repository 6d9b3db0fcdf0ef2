"""mini-sglang's scheduler and memory, step by step: the numbers are worked out by hand."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from sim.allocators import ALLOCATORS, Admission
from sim.allocators.checked import CheckedAllocator
from sim.allocators.mini_sglang import MiniSglang
from sim.allocators.radix import Radix
from sim.costs.linear import Constant
from sim.engine.simulation import Memory, Options, Run, simulate
from sim.schedulers import SCHEDULERS, Scheduler
from sim.schedulers.base import MAX_NUM_SEQS, MEMORY, NOTHING, TOKEN_BUDGET
from sim.sequence import NUM_COMPUTED, NUM_TOKENS, REQUEST, Limits, SequenceTable, new_requests
from workloads.content import ContentBuilder
from workloads.content import Run as TextRun
from workloads.sequences import SequenceContent

NS = 1000  # an iteration

Cells = list[tuple[int, int, int, int]]

both_trees = pytest.mark.parametrize("kind", ["mini_sglang", "radix"])


class Step(NamedTuple):
    """After a schedule(): what each running request has computed; free and evictable tokens."""

    computed: dict[int, int]
    sizes: tuple[int, int]
    blocked: int


class Steps:
    """Notes every iteration."""

    def __init__(self, memory: Radix) -> None:
        self.memory = memory
        self.all: list[Step] = []

    def __call__(self, now_ns: int, scheduler: Scheduler) -> None:
        rows = scheduler.running[: scheduler.num_running]
        cells = scheduler.sequences.rows[rows][:, [REQUEST, NUM_COMPUTED]].tolist()
        sizes = self.memory.available_size, self.memory.evictable_size
        self.all.append(Step(dict(cells), sizes, scheduler.blocked))


def run(
    cells: Cells,
    num_slots: int,
    texts: list[list[TextRun]] | None = None,
    kind: str = "mini_sglang",
    **knobs: Any,
) -> tuple[list[Step], Run]:
    """Requests of (arrival in iterations, prompt, output, max_tokens), blocks of one token."""
    content = None
    if texts is not None:
        builder = ContentBuilder()
        for runs, (_, prompt, _, _) in zip(texts, cells, strict=True):
            builder.add(runs, prompt)
        content = SequenceContent(builder.build())
    arrivals, prompts, outputs, most = np.array(cells, np.int64).T
    memory = ALLOCATORS[kind]()
    assert isinstance(memory, Radix)
    steps = Steps(memory)
    done = simulate(
        new_requests(arrivals * NS, prompts, outputs, Limits(100, most)),
        Memory(num_slots, 100),
        CheckedAllocator(memory),
        SCHEDULERS["mini_sglang"](**knobs),
        Constant(NS * 1e-9),
        Options(observe=steps, content=content),
    )
    return steps.all, done


@both_trees
def test_a_request_waits_until_all_that_it_may_become_has_room(kind: str) -> None:
    """20 slots. A: 5 tokens, 3 out of at most 10; B: 4 tokens, 2 of 4; C: 1 token, 1 of 1."""
    steps, done = run([(0, 5, 3, 10), (0, 4, 2, 4), (0, 1, 1, 1)], 20, kind=kind)
    a, b, c = range(3)
    assert steps == [
        # A may become 15 tokens long; 15 + 4 + 4 are more than 20
        ({a: 5}, (15, 0), MEMORY),
        # A has 6 of its 15; 9 + 8 are more than the 15 that are free, and 8 + 8 than 14
        ({a: 6}, (14, 0), MEMORY),
        ({a: 7}, (13, 0), MEMORY),
        # A has left its 7 tokens in the tree: 8 of 20 for B, and 2 for C, which are taken now
        ({b: 4, c: 1}, (8, 7), NOTHING),
        # C has left one more
        ({b: 5}, (7, 8), NOTHING),
    ]
    assert done.scheduler.num_finished == 3
    assert done.scheduler.num_preemptions == 0


@both_trees
def test_a_prompt_is_computed_in_chunks_and_the_queue_goes_on_behind_it(kind: str) -> None:
    """6 tokens of prompts an iteration. A: 10 tokens, 2 out; B: 3 tokens, 1 out."""
    a, b = range(2)
    steps, _ = run([(0, 10, 2, 2), (0, 3, 1, 1)], 40, kind=kind, max_num_batched_tokens=6)
    assert [step.computed for step in steps] == [
        {a: 6},
        {a: 10, b: 2},
        {a: 10, b: 3},  # A has its first token, and waits for the prompt of B
        {a: 11},
    ]
    assert [step.blocked for step in steps] == [TOKEN_BUDGET, NOTHING, NOTHING, NOTHING]


@both_trees
def test_no_more_than_max_num_seqs_run(kind: str) -> None:
    steps, _ = run([(0, 2, 2, 2)] * 3, 40, kind=kind, max_num_seqs=2)
    running = [[*step.computed] for step in steps]
    assert running == [[0, 1], [0, 1], [2], [2]]
    assert [step.blocked for step in steps] == [MAX_NUM_SEQS, MAX_NUM_SEQS, NOTHING, NOTHING]


@both_trees
def test_a_prompt_is_found_when_it_is_complete_and_no_sooner(kind: str) -> None:
    """Two of 8 equal tokens: of the second one 2 are computed when the first one has 5 of them."""
    text: list[TextRun] = [(1, 0, 8)]
    cells = [(0, 8, 3, 3), (0, 8, 3, 3), (2, 8, 3, 3)]
    steps, done = run(cells, 60, [text] * 3, kind, max_num_batched_tokens=5)
    assert [step.computed for step in steps[:4]] == [
        {0: 5},
        {0: 8, 1: 2},  # nothing of the 5 is found
        {0: 8, 1: 7},
        {0: 8, 1: 8, 2: 8},  # the third one has found 7, and computes its last token
    ]
    assert done.scheduler.counters()["num_hit_tokens"] == 7


@both_trees
def test_who_computes_the_same_in_one_iteration_computes_it_twice_and_frees_one(kind: str) -> None:
    text: list[TextRun] = [(1, 0, 6)]
    steps, done = run([(0, 6, 4, 4)] * 2, 40, [text] * 2, kind)
    assert steps[0] == ({0: 6, 1: 6}, (28, 0), NOTHING)
    assert steps[1] == ({0: 7, 1: 7}, (40 - 6 - 2, 0), NOTHING)
    assert done.scheduler.counters()["num_hit_tokens"] == 0


@both_trees
def test_what_a_request_hits_is_no_room_for_the_rest_of_it(kind: str) -> None:
    """20 slots, of which A has left 8 in the tree; B runs when C comes, which hits 5 of them."""
    cells = [(0, 8, 1, 1), (1, 3, 4, 5), (2, 7, 1, 8)]
    texts: list[list[TextRun]] = [[(1, 0, 8)], [(2, 0, 3)], [(1, 0, 5), (3, 0, 2)]]
    steps, _ = run(cells, 20, texts, kind)
    assert steps[1] == ({1: 3}, (9, 8), NOTHING)
    # B has 4 of its 8, C needs 2 + 8: 14 of 17 free or evictable ones, of 12 with its hit locked
    assert steps[2] == ({1: 4}, (8, 8), MEMORY)
    assert [[*step.computed] for step in steps[3:]] == [[1], [1], [2]]


def test_what_could_never_be_admitted_is_refused_on_arrival() -> None:
    _, done = run([(0, 5, 3, 36), (0, 100, 1, 1), (0, 5, 3, 35)], 40)
    assert done.scheduler.reasons == {
        0: "may become 41 tokens long, 41 blocks of 1, the pool has 40",
        1: "has a prompt of 100 tokens, max_model_len is 100",
    }
    assert done.scheduler.num_finished == 1


class Pool:
    """Sequences of 4 tokens and 9 more, in a pool of 6 blocks of 4; others have left 3 blocks."""

    def __init__(self, memory: Radix) -> None:
        self.memory, self.sequences = memory, SequenceTable()
        self.memory.bind(24, self.sequences, 100)
        many = np.ones(5, np.int64)
        prompts = np.array([4, 4, 4, 2, 2])
        self.requests = new_requests(0 * many, prompts, 9 * many, Limits(100, 9 * many))
        for request in range(3):
            row = self.enter(request)
            self.memory.finish([row])
            self.sequences.close(row)
        assert (memory.available_size, memory.evictable_size) == (12, 12)

    def enter(self, request: int) -> int:
        row = self.sequences.open(self.requests, request)
        count = self.sequences.rows.item(row, NUM_TOKENS)
        assert self.memory.admit(row, count) is Admission.OK
        return row

    def decode(self, rows: list[int]) -> None:
        self.sequences.rows[rows, NUM_TOKENS] += 1
        assert self.memory.append(np.array(rows), np.ones(len(rows), np.int64)) == len(rows)


def test_a_decode_evicts_for_those_that_need_a_block_where_sglang_does_for_all() -> None:
    """One block is free; two decode, whose blocks have room for two more tokens each."""
    for memory, evictable in ((MiniSglang(4), [12, 12, 8]), (Radix(4), [8, 8, 8])):
        pool = Pool(memory)
        rows = [pool.enter(3), pool.enter(4)]
        assert (memory.available_size, memory.evictable_size) == (4, 12)
        seen = []
        for _ in range(3):
            pool.decode(rows)
            seen.append(memory.evictable_size)
        assert seen == evictable


def test_freed_blocks_go_behind_the_others_where_sglang_puts_pages_in_front() -> None:
    for memory, order in ((MiniSglang(4), [5, 6, 1, 2, 4]), (Radix(4), [4, 2, 1, 5, 6])):
        pool = Pool(memory)
        row = pool.enter(3)
        assert memory.block_table(row).tolist() == [4]
        assert memory.evict(8) == 8
        memory.release([row])
        assert memory.free_blocks().tolist() == order
