"""The orders in which SGLang looks at its queue, against sorts of plain token lists."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.allocators import Admission
from sim.allocators.checked import CheckedAllocator
from sim.allocators.radix import Radix
from sim.allocators.tree import Node
from sim.batch import NUM_DECODE_SEQS, PREFILL_TOKENS
from sim.costs.linear import Constant
from sim.engine.simulation import Memory, Options, simulate
from sim.schedulers.base import Scheduler
from sim.schedulers.sglang import Sglang
from sim.schedulers.sglang_orders import MANY, InBatch, PolicyName, WaitingOrder
from sim.sequence import NUM_SLOTS, PRIORITY, Limits, SequenceTable, new_requests
from sleep_examples import choose_sglang
from workloads.content import Run, token_runs
from workloads.sequences import SequenceContent

Words = tuple[int, ...]


class Tokens(SequenceContent):
    """Prompts in tokens, and an output of one token that nobody else has."""

    def __init__(self, prompts: Sequence[Words]) -> None:
        super().__init__()
        self.prompts = prompts

    def runs(self, request: int, prompt_tokens: int, num_tokens: int) -> list[Run]:
        words = (*self.prompts[request], *range(10_000 * (request + 1), 10_000 * (request + 1) + 9))
        found = token_runs(np.array(words[:num_tokens], np.int64)).tolist()
        return [(source, start, n) for source, start, n in found]


class Queue:
    """Prompts that have been computed once, and others that wait for their turn."""

    def __init__(self, known: Sequence[Words], waiting: Sequence[Words]) -> None:
        prompts = [*known, *waiting]
        lengths = np.array([len(words) for words in prompts])
        ones = np.ones(len(prompts), np.int64)
        self.max_new = 1 + np.arange(len(prompts)) * 7 % 5
        limits = Limits(10_000, self.max_new)
        self.requests = new_requests(0 * ones, lengths, ones, limits)
        self.memory, self.sequences = Radix(), SequenceTable()
        self.memory.bind(10_000, self.sequences, 10_000)
        self.memory.bind_content(Tokens(prompts))
        for request in range(len(known)):
            row = self.sequences.open(self.requests, request)
            missing = len(prompts[request]) - self.memory.lookup(row)
            assert self.memory.admit(row, missing) is Admission.OK
            self.memory.finish([row])
            self.sequences.close(row)
        self.waiting = list(range(len(known), len(prompts)))
        self._rows: dict[int, int] = {}

    def open(self, request: int) -> int:
        if request not in self._rows:
            self._rows[request] = self.sequences.open(self.requests, request)
        return self._rows[request]

    def sort(self, policy: PolicyName, in_batch: tuple[int, int] = (32, 32)) -> list[int]:
        order = WaitingOrder(policy, InBatch(*in_batch), seed=3)
        order.bind(self.memory, self.sequences, self.max_new, self.open)
        first = self.waiting[0]
        return [request - first for request in order.sort(self.waiting)]


def alike(one: Words, other: Words) -> int:
    """Tokens that both begin with."""
    count = 0
    while count < min(len(one), len(other)) and one[count] == other[count]:
        count += 1
    return count


def longest(words: Words, others: Sequence[Words]) -> int:
    return max((alike(words, other) for other in others), default=0)


def naive_lpm(
    known: Sequence[Words], waiting: Sequence[Words], check: int, deprioritize: int
) -> list[int]:
    """The same in lists of tokens."""
    keys: list[tuple[int, int]] = []
    firsts: list[Words] = []
    for i, words in enumerate(waiting):
        hit = longest(words, known)
        is_late = False
        if hit <= check:
            is_late = longest(words, firsts) >= deprioritize
            firsts += [] if is_late else [words]
        keys.append((1, 0) if is_late else (0, -min(hit, len(words) - 1)))
        assert i + 1 == len(keys)
    return [i for _, i in sorted((key, i) for i, key in enumerate(keys))]


words_lists = st.lists(
    st.lists(st.integers(0, 2), min_size=1, max_size=8).map(tuple), min_size=1, max_size=12
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(words_lists, words_lists, st.integers(-1, 4), st.integers(1, 5))
def test_longest_prefix_first_is_a_stable_sort_by_known_tokens_with_repeats_last(
    known: list[Words], waiting: list[Words], check: int, deprioritize: int
) -> None:
    found = Queue(known, waiting).sort("lpm", (check, deprioritize))
    assert found == naive_lpm(known, waiting, check, deprioritize)


def test_of_prompts_that_begin_alike_and_are_unknown_all_but_the_first_come_last() -> None:
    """40 common tokens, of which nothing is known: at most 32 are, and at least 32 are common."""
    alike_words, other = tuple(range(0, 80, 2)), tuple(range(100, 200, 2))
    waiting = [(*alike_words, 1), (*alike_words, 3), other]
    assert Queue([], waiting).sort("lpm") == [0, 2, 1]
    assert Queue([], waiting).sort("lpm", (32, 41)) == [0, 1, 2]
    assert Queue([], waiting).sort("lpm", (-1, 32)) == [0, 1, 2]
    known = [(*alike_words, 5)]
    assert Queue(known, waiting).sort("lpm") == [0, 1, 2]  # 40 are known to both


@pytest.mark.parametrize("policy", ["lpm", "dfs-weight"])
def test_orders_by_the_tree_refresh_what_is_known_of_everybody(policy: PolicyName) -> None:
    queue = Queue([(1, 2, 3)], [(1, 2, 9), (1, 5)])
    before = queue.memory.tree.clock
    queue.sort(policy)
    assert queue.memory.tree.num_nodes == 3  # 1 | 2 | 3, split twice
    assert queue.memory.tree.clock > before


def test_a_long_queue_is_left_as_it_is_and_looks_nothing_up() -> None:
    queue = Queue([(1, 2, 3)], [(i,) for i in range(MANY)] + [(1, 2, 3)])
    before = queue.memory.tree.clock
    assert queue.sort("lpm") == list(range(MANY + 1))
    assert queue.memory.tree.clock == before
    queue.waiting.pop(0)
    assert queue.sort("lpm")[0] == MANY - 1


@pytest.mark.parametrize("policy", ["fcfs", "lof", "random"])
def test_other_orders_look_nothing_up(policy: PolicyName) -> None:
    queue = Queue([(1, 2, 3)], [(1, 2, 9), (1, 5)] * 4)
    before = queue.memory.tree.clock
    assert sorted(queue.sort(policy)) == list(range(8))
    assert queue.memory.tree.clock == before


def test_most_max_tokens_first_and_equals_as_they_came() -> None:
    queue = Queue([], [(i,) for i in range(10)])
    expected = sorted(range(10), key=lambda i: -queue.max_new[i])
    assert queue.sort("lof") == expected != list(range(10))


def test_a_random_order_is_one_of_its_seed() -> None:
    queue = Queue([], [(i,) for i in range(10)])
    assert queue.sort("random") == queue.sort("random") != list(range(10))


def naive_depth_first(node: Node, holders: dict[Node, list[int]]) -> list[int]:
    """Recursively, and counting every subtree anew."""

    def weight(below: Node) -> int:
        return len(holders.get(below, [])) + sum(map(weight, below.children.values()))

    order: list[int] = []
    for child in sorted(node.children.values(), key=lambda child: -weight(child)):
        order += naive_depth_first(child, holders)
    return order + holders.get(node, [])


@settings(max_examples=200, deadline=None, derandomize=True)
@given(words_lists, words_lists)
def test_depth_first_goes_where_most_wait_and_keeps_together_who_shares(
    known: list[Words], waiting: list[Words]
) -> None:
    queue = Queue(known, waiting)
    found = queue.sort("dfs-weight")
    holders: dict[Node, list[int]] = {}
    for i, request in enumerate(queue.waiting):
        node, _ = queue.memory.tree.match(queue.memory.key(queue.open(request), len(waiting[i])))
        holders.setdefault(node, []).append(i)
    assert found == naive_depth_first(queue.memory.tree.root, holders)


def test_depth_first_worked_out_by_hand() -> None:
    """Two know of 1 2 and one of 1 3, below 1; two know of 7: 3 > 2; who knows nothing is last."""
    known = [(1, 2), (1, 3), (7,)]
    waiting = [(9, 9), (7, 0), (1, 3, 0), (1, 2, 0), (7, 5), (1, 2, 4), (1, 8)]
    assert Queue(known, waiting).sort("dfs-weight") == [3, 5, 2, 6, 1, 4, 0]


class Progress:
    """Every iteration computes something."""

    def __call__(self, now_ns: int, scheduler: Scheduler) -> None:
        batch = scheduler.batch
        assert batch.item(PREFILL_TOKENS) + batch.item(NUM_DECODE_SEQS) > 0
        assert scheduler.num_running > 0


@pytest.mark.parametrize("seed", range(60))
def test_tiny_pools_starve_nobody_and_are_whole_again(seed: int) -> None:
    """Every request has an outcome after fewer iterations than recomputing everything takes."""
    choose = random.Random(7000 + seed).randint
    num = choose(5, 40)
    arrivals = np.cumsum([choose(0, 4) * 1000 for _ in range(num)])
    prompts, outputs, extra = (np.array([choose(low, 20) for _ in range(num)]) for low in (1, 1, 0))
    knobs = {"max_num_seqs": choose(1, 12)} | choose_sglang(choose)
    requests = new_requests(arrivals, prompts, outputs, Limits(60, outputs + extra))
    requests[:, PRIORITY] = 0
    size = (1, 2, 4)[choose(0, 2)]
    memory = CheckedAllocator(Radix(size))
    num_slots = choose(12, 50)
    run = simulate(
        requests,
        Memory(num_slots, 60),
        memory,
        Sglang(**knobs),
        Constant(1e-6),
        Options(observe=Progress()),
    )
    assert run.status == "finished"
    assert run.scheduler.num_finished + len(run.scheduler.reasons) == num
    attempts = 1 + run.scheduler.num_preemptions
    assert run.recorder.num_iterations <= attempts * int((prompts + outputs).sum())
    assert not run.scheduler.sequences.rows[:, NUM_SLOTS].any()
    memory.check(np.empty(0, np.int64))
    inner = memory.inner
    assert isinstance(inner, Radix)
    inner.evict(num_slots)
    assert inner.available_size == num_slots // size * size
    assert inner.tree.num_nodes == 0
