"""Behaviours that real systems got wrong (cases 18-22, 24), where the cache is a radix tree."""

import numpy as np
import pytest

from naive_tree import key_of
from sim.allocators import Admission
from sim.allocators.checked import CheckedAllocator
from sim.allocators.radix import Radix
from sim.allocators.tree import Node, RadixTree
from sim.allocators.tree_policies import EVICTION_POLICIES, EvictionKey
from sim.sequence import NUM_COMPUTED, NUM_TOKENS, Limits, SequenceTable, new_requests
from workloads import content as text
from workloads.content import ContentBuilder, own_output
from workloads.sequences import SequenceContent

Prompt = list[text.Run]

LONGEST = 4096


class Cache:
    """A radix cache of num_blocks blocks that sequences enter and leave one by one."""

    def __init__(self, num_blocks: int, prompts: list[Prompt], output: int, size: int = 1) -> None:
        self.inner = Radix(size)
        self.allocator, self.sequences = CheckedAllocator(self.inner), SequenceTable()
        builder = ContentBuilder()
        lengths = [sum(length for _, _, length in runs) for runs in prompts]
        for runs, length in zip(prompts, lengths, strict=True):
            builder.add(runs, length)
        self.allocator.bind(num_blocks * size, self.sequences, LONGEST)
        self.allocator.bind_content(SequenceContent(builder.build()))
        ones = np.ones(len(prompts), np.int64)
        limits = Limits(LONGEST, output * ones)
        self.requests = new_requests(0 * ones, np.array(lengths), output * ones, limits)

    def open(self, request: int) -> int:
        return self.sequences.open(self.requests, request)

    def enter(self, request: int, chunk: int = LONGEST) -> tuple[int, int]:
        """Admit a request with its whole prompt, in chunks; return its row and what it hit."""
        row = self.open(request)
        hit = self.allocator.lookup(row)
        missing = self.sequences.rows.item(row, NUM_TOKENS) - hit
        assert self.allocator.admit(row, min(chunk, missing)) is Admission.OK
        for begin in range(chunk, missing, chunk):
            count = min(chunk, missing - begin)
            assert self.allocator.append(np.array([row]), np.array([count])) == 1
        return row, hit

    def leave(self, row: int) -> None:
        """The sequence generates all its tokens, and ends."""
        cells = self.sequences.rows[row]
        count = self.inner._held[row].length - cells.item(NUM_COMPUTED)
        for _ in range(count):
            cells[NUM_TOKENS] += 1
            assert self.allocator.append(np.array([row]), np.array([1])) == 1
        cells[NUM_TOKENS] = cells.item(NUM_COMPUTED) + 1
        self.allocator.free(np.array([row]))
        self.sequences.close(row)

    def hit(self, request: int) -> int:
        row = self.open(request)
        found = self.allocator.lookup(row)
        self.sequences.close(row)
        return found


@pytest.mark.parametrize("size", [1, 4])
def test_within_a_chain_the_deepest_node_is_evicted_first(size: int) -> None:
    """Case 18: a cache of six blocks holds a chain of three nodes of two, one block is short."""
    prompts = [[(1, 0, 6 * size)], [(2, 0, size)], [(1, 0, 7 * size)]]
    cache = Cache(6, prompts, 1, size)
    cache.leave(cache.enter(0, chunk=2 * size)[0])
    assert cache.hit(2) == 6 * size
    cache.enter(1)
    assert cache.hit(2) == 4 * size


def test_a_leaf_is_evicted_as_a_whole() -> None:
    """Case 18: a prompt that was computed in one piece is one node, which is the policy's unit."""
    cache = Cache(6, [[(1, 0, 6)], [(2, 0, 1)], [(1, 0, 7)]], 1)
    cache.leave(cache.enter(0)[0])
    cache.enter(1)
    assert cache.hit(2) == 0


@pytest.mark.parametrize(("short", "gone"), [(1, 4), (4, 4), (5, 8), (9, 12), (100, 12)])
def test_eviction_frees_the_shortfall_in_whole_leaves_and_no_more(short: int, gone: int) -> None:
    """Case 19: three prompts of four tokens."""
    cache = Cache(20, [[(i, 0, 4)] for i in (1, 2, 3)], 1)
    for request in range(3):
        cache.leave(cache.enter(request)[0])
    assert cache.inner.available_size == 8
    assert cache.inner.evict(short) == gone
    assert cache.inner.available_size == 8 + gone


def test_an_admission_evicts_what_it_lacks_and_leaves_the_rest() -> None:
    """Case 19: six tokens, two of them free; one of the three leaves of four is enough."""
    cache = Cache(14, [[(i, 0, 4)] for i in (1, 2, 3)] + [[(4, 0, 6)]], 1)
    for request in range(3):
        cache.leave(cache.enter(request)[0])
    cache.enter(3)
    assert cache.inner.evictable_size == 8
    assert cache.inner.counters() == {"num_evicted_blocks": 4}


def test_every_node_that_nobody_holds_is_evictable_and_victims_are_leaves() -> None:
    """Case 20: three nodes, one above the two others; the lock of one is the lock of its parent."""
    tree = RadixTree(1, "lru", 2)
    for words in ((0, 1, 2, 3), (0, 1, 5, 6, 7)):
        tree.insert(key_of(words), np.array(words))
    assert (tree.num_nodes, tree.evictable, tree.protected) == (3, 7, 0)
    node, _ = tree.match(key_of((0, 1, 2, 3)))
    tree.lock(node)
    assert (tree.evictable, tree.protected) == (3, 4)
    assert [blocks.tolist() for blocks in tree.evict(100)] == [[5, 6, 7]]
    tree.unlock(node)
    assert [blocks.tolist() for blocks in tree.evict(100)] == [[2, 3], [0, 1]]
    assert (tree.num_nodes, tree.evictable, tree.protected) == (0, 0, 0)


@pytest.mark.parametrize(("size", "hit"), [(1, 149), (4, 148), (16, 144), (64, 128)])
def test_generated_tokens_are_found_too(size: int, hit: int) -> None:
    """Case 21: 100 + 50 tokens, the last of which is never written, in whole blocks."""
    first = [(1, 0, 100)]
    follow = [*first, (own_output(0), 0, 50), (2, 0, 50)]
    cache = Cache(-(-400 // size), [first, follow], 50, size)
    cache.leave(cache.enter(0)[0])
    assert cache.hit(1) == hit


def test_what_is_hit_is_not_evicted_for_the_rest_of_the_same_request() -> None:
    """Case 22: the hit is what was used longest ago, and the others must go for the rest."""
    cache = Cache(12, [[(1, 0, 6)], [(2, 0, 6)], [(1, 0, 12)]], 1)
    cache.leave(cache.enter(0)[0])
    cache.leave(cache.enter(1)[0])
    row, hit = cache.enter(2)
    assert hit == 6
    assert cache.inner.block_table(row).tolist() == list(range(1, 13))


def test_hits_that_nobody_holds_count_against_what_can_be_evicted() -> None:
    """Case 22: six of the hit and one that is free are too few for seven beyond the hit."""
    cache = Cache(12, [[(1, 0, 6)], [(2, 0, 5)], [(1, 0, 8)]], 1)
    cache.leave(cache.enter(0)[0])
    cache.enter(1)
    row = cache.open(2)
    assert cache.allocator.lookup(row) == 6
    assert cache.allocator.admit(row, 2) is Admission.LATER


def test_a_hit_that_is_held_and_let_go_again_leaves_what_can_be_evicted_as_it_was() -> None:
    """Case 22: a scheduler looks at what is left with the hit locked, and refuses."""
    cache = Cache(12, [[(1, 0, 6)], [(1, 0, 4), (2, 0, 5)]], 1)
    cache.leave(cache.enter(0)[0])
    row, memory = cache.open(1), cache.inner
    before = memory.usage()
    assert memory.match(row) == 4
    assert (memory.evictable_size, memory.available_size) == (6, 6)
    memory.hold(row)
    assert (memory.evictable_size, memory.protected_size) == (2, 4)
    assert memory.usage().token_states == 4
    memory.release([row])
    assert (memory.evictable_size, memory.protected_size) == (6, 0)
    assert memory.usage() == before


def test_a_request_that_loses_its_memory_leaves_only_what_its_prompt_gave() -> None:
    """Case 25, as SGLang retracts: the tokens that it generated are computed again."""
    cache = Cache(40, [[(1, 0, 10)]], 8)
    row, _ = cache.enter(0)
    cells = cache.sequences.rows[row]
    for _ in range(5):
        cells[NUM_TOKENS] += 1
        cache.allocator.append(np.array([row]), np.array([1]))
    cache.allocator.free(np.array([row]))
    assert cells[NUM_TOKENS] == 15
    assert cache.allocator.lookup(row) == 10
    assert cache.inner.usage().cached == 10


def test_policy_priority_evicts_the_least_urgent_requests_leaf_first() -> None:
    sequences, memory = SequenceTable(), Radix(eviction_policy="priority")
    memory.bind(20, sequences, LONGEST)
    ones = np.ones(3, np.int64)
    requests = new_requests(0 * ones, 4 * ones, ones, Limits(LONGEST, ones))
    for request, priority in enumerate((5, 1, 3)):
        row = sequences.open(requests, request)
        memory.set_priority(row, priority)
        assert memory.admit(row, 4) is Admission.OK
        memory.finish([row])
        sequences.close(row)
    order = [blocks.tolist() for blocks in memory.tree.evict(12)]
    assert order == [[5, 6, 7, 8], [9, 10, 11, 12], [1, 2, 3, 4]]


@pytest.mark.parametrize("policy", EVICTION_POLICIES)
def test_an_eviction_does_not_look_at_all_leaves(policy: str) -> None:
    """Case 24: 1,000 of 10,000 leaves go; policies are asked a few times for each, not 10,000."""
    tree = RadixTree(1, policy, 2)
    for i in range(10_000):
        tree.insert(key_of((7, 2 * i)), np.array([0, i]))
    for i in range(0, 10_000, 100):
        tree.match(key_of((7, 2 * i)))
    asked, key = 0, tree._eviction_key

    def count(leaf: Node, threshold: int) -> EvictionKey:
        nonlocal asked
        asked += 1
        return key(leaf, threshold)

    tree._eviction_key = count
    for _ in range(1000):
        assert len(tree.evict(1)) == 1
    assert asked <= 4 * 1000


@pytest.mark.parametrize("policy", EVICTION_POLICIES)
def test_a_leaf_that_is_hit_again_and_again_does_not_fill_the_heap(policy: str) -> None:
    """Case 24: what waits for eviction is in proportion to the leaves, whatever happened."""
    tree = RadixTree(1, policy, 2)
    for i in range(100):
        tree.insert(key_of((2 * i,)), np.array([i]))
    for i in range(5000):
        tree.match(key_of((2 * (i % 100),)))
    assert len(tree._heap) <= 2 * 100 + 65
    assert len(tree.evict(1000)) == 100
