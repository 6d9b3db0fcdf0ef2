"""The radix tree of runs against a naive one of tokens, and what theory says of any such tree."""

import random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from naive_tree import NaiveMiniTree, NaiveTree, Words, key_of, look_at
from sim.allocators.tree import Node, RadixTree
from sim.allocators.tree_check import Holder, check_tree
from sim.allocators.tree_keys import common, cut, ends_of
from sim.allocators.tree_mini import MiniTree
from sim.allocators.tree_policies import EVICTION_POLICIES
from workloads.content import Run, merged

THRESHOLD = 2

words_of = st.lists(st.integers(0, 2), min_size=1, max_size=14).map(tuple)
namespaces = st.sampled_from([0, 0, 0, 1])
EASY = settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


class TreeMachine(RuleBasedStateMachine):
    """Random histories over three letters, so that many contents begin alike."""

    is_mini = False

    @initialize(size=st.sampled_from([1, 1, 2, 3]), policy=st.sampled_from([*EVICTION_POLICIES]))
    def plant(self, size: int, policy: str) -> None:
        if self.is_mini:
            self.tree: RadixTree = MiniTree(size)
            self.naive: NaiveTree = NaiveMiniTree(size, "lru", THRESHOLD)
        else:
            self.tree = RadixTree(size, policy, THRESHOLD)
            self.naive = NaiveTree(size, policy, THRESHOLD)
        self.held: list[tuple[Node, Words, int]] = []
        self.num_blocks = 0

    @rule(words=words_of, namespace=namespaces)
    def somebody_looks(self, words: Words, namespace: int) -> None:
        before = look_at(self.tree)
        peeked, unlocked = self.tree.peek(key_of(words, namespace))
        assert look_at(self.tree) == before
        node, found = self.tree.match(key_of(words, namespace))
        assert found == peeked == self.naive.match(words, namespace)
        assert unlocked == sum(above.length for above in node.path() if above.lock_ref == 0)
        self.last = node, words[:found], namespace

    @rule(
        words=words_of,
        namespace=namespaces,
        priority=st.integers(0, 2),
        inserted_len=st.integers(0, 4),
    )
    def content_is_inserted(
        self, words: Words, namespace: int, priority: int, inserted_len: int
    ) -> None:
        count = len(words) // self.tree.block_size
        blocks = np.arange(self.num_blocks, self.num_blocks + count)
        self.num_blocks += count
        more = priority, inserted_len
        known = self.tree.insert(key_of(words, namespace), blocks, 0, *more)
        assert known == self.naive.insert(words, namespace, blocks.tolist(), *more)

    @precondition(lambda self: hasattr(self, "last"))
    @rule()
    def what_was_found_is_locked(self) -> None:
        node, words, namespace = self.last
        if node.parent is node or any(node is known for known in self.tree.nodes()):
            self.tree.lock(node)
            self.naive.change_locks(words, namespace, 1)
            self.held.append(self.last)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def a_lock_is_taken_back(self, data: st.DataObject) -> None:
        node, words, namespace = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        self.tree.unlock(node)
        self.naive.change_locks(words, namespace, -1)

    @rule(num_tokens=st.integers(0, 9))
    def memory_is_short(self, num_tokens: int) -> None:
        gone = [blocks.tolist() for blocks in self.tree.evict(num_tokens)]
        assert gone == self.naive.evict(num_tokens)

    @invariant()
    def both_look_alike(self) -> None:
        if not hasattr(self, "naive"):
            return
        assert look_at(self.tree) == {node.look() for node in self.naive.nodes}
        assert self.tree.evictable == self.naive.tokens(is_locked=False)
        assert self.tree.protected == self.naive.tokens(is_locked=True)
        assert self.tree.clock == self.naive.clock
        none = np.empty(0, np.int64)
        check_tree(
            self.tree, [Holder(node, len(words), none, False) for node, words, _ in self.held]
        )


class MiniTreeMachine(TreeMachine):
    is_mini = True


@pytest.mark.timeout(600)
@pytest.mark.parametrize("machine", [TreeMachine, MiniTreeMachine])
def test_a_radix_tree_does_what_a_naive_one_does(machine: type[TreeMachine]) -> None:
    """SGLang's and mini-sglang's."""
    run_state_machine_as_test(
        machine, settings=settings(EASY, max_examples=200, stateful_step_count=40)
    )


pieces = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(1, 3)), min_size=1, max_size=20
)


def tokens(runs: list[Run]) -> list[tuple[int, int]]:
    return [(source, start + i) for source, start, length in runs for i in range(length)]


def form(runs: list[Run]) -> list[Run]:
    """The one form of a content."""
    cells = merged(np.array(runs, np.int64))
    return [(source, start, length) for source, start, length in cells.tolist()]


@settings(EASY, max_examples=500)
@given(pieces, st.data())
def test_cutting_and_comparing_runs_is_cutting_and_comparing_tokens(
    drawn: list[Run], data: st.DataObject
) -> None:
    runs = form(drawn)
    all_tokens = tokens(runs)
    begin = data.draw(st.integers(0, len(all_tokens) - 1))
    end = data.draw(st.integers(begin + 1, len(all_tokens)))
    part = cut(runs, ends_of(runs), begin, end)
    assert tokens(part) == all_tokens[begin:end]
    other = form([*part, *data.draw(pieces)])
    position = next(i for i, last in enumerate(ends_of(runs)) if last > begin)
    used = begin - (ends_of(runs)[position - 1] if position else 0)
    key = key_of((0,))._replace(runs=runs, ends=ends_of(runs), length=len(all_tokens))
    matched, index, used = common(other, key, position, used)
    pairs = zip(all_tokens[begin:], tokens(other), strict=False)
    alike = next((i for i, (mine, its) in enumerate(pairs) if mine != its), None)
    expected = min(len(all_tokens) - begin, len(tokens(other))) if alike is None else alike
    assert matched == expected
    behind = ends_of(runs)[index - 1] + used if index else used
    assert behind == begin + matched


def computed_tokens(prompts: list[Words], capacity: int, chunk: int = 1 << 30) -> int:
    """Tokens that prompts compute, one after the other, in a tree of at most capacity tokens.

    A prompt is inserted in chunks, each of them a node.
    """
    tree, computed = RadixTree(1, "lru", THRESHOLD), 0
    for words in prompts:
        node, found = tree.match(key_of(words))
        tree.lock(node)
        missing = len(words) - found
        tree.evict(missing - (capacity - tree.evictable - tree.protected))
        tree.unlock(node)
        for end in range(found + min(chunk, missing), len(words), chunk):
            tree.insert(key_of(words[:end]), np.zeros(end, np.int64))
        tree.insert(key_of(words), np.zeros(len(words), np.int64))
        assert tree.evictable <= capacity
        computed += missing
    return computed


prompt_lists = st.lists(words_of, min_size=1, max_size=25)


@settings(EASY, max_examples=300)
@given(prompt_lists, st.integers(0, 20))
def test_in_depth_first_order_every_token_is_computed_once(
    prompts: list[Words], spare: int
) -> None:
    """SGLang paper, section 3, theorem 3.1: if the longest prompt fits, no order computes less."""
    distinct = {words[:end] for words in prompts for end in range(1, len(words) + 1)}
    capacity = max(len(words) for words in prompts) + spare
    assert computed_tokens(sorted(prompts), capacity) == len(distinct)


def test_another_order_computes_tokens_again() -> None:
    prompts = [(0, 0, 0, first, *[second] * 4) for second in (0, 1) for first in (0, 1)]
    assert computed_tokens(sorted(prompts), 9) < computed_tokens(prompts, 9)


@settings(EASY, max_examples=300)
@given(prompt_lists, st.integers(0, 8), st.integers(1, 12))
def test_a_larger_cache_of_nodes_of_one_block_never_hits_less(
    prompts: list[Words], spare: int, more: int
) -> None:
    """LRU's inclusion: the smaller cache is always a part of the larger one."""
    capacity = max(len(words) for words in prompts) + spare
    small, large = (computed_tokens(prompts, size, 1) for size in (capacity, capacity + more))
    assert large <= small


def test_a_larger_cache_of_larger_nodes_may_hit_less() -> None:
    """Leaves go as a whole: what a smaller cache has evicted may leave a better one alone."""
    rng, found = random.Random(1), 0
    for _ in range(3000):
        prompts = [tuple(rng.randint(0, 1) for _ in range(rng.randint(1, 8))) for _ in range(10)]
        found += computed_tokens(prompts, 9) > computed_tokens(prompts, 8)
    assert found > 0
