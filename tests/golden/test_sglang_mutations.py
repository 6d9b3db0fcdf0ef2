"""The recorded cases tell SGLang's rules apart: each of these mistakes is found by some of them."""

from typing import Any

import pytest

from recorded_tree import ENGINE, Difference, TreeCase, case_paths, is_of_requests, read_case
from replay_requests import RequestReplay, allocator_of
from replay_tree import TreeReplay, tree_of
from sim.allocators.radix import Radix
from sim.allocators.tree import Node, RadixTree
from sim.allocators.tree_keys import Key
from sim.sequence import NUM_TOKENS, IntArray

ENOUGH = 50

CASES = [read_case(path) for path in case_paths()]

pytestmark = pytest.mark.skipif(
    len(CASES) < ENOUGH, reason=f"fewer than {ENOUGH} cases of {ENGINE}: not all rules occur"
)


class SplitsKeepTheTime(RadixTree):
    """The upper half of a split node was last used when its lower half was."""

    def _split(self, node: Node, length: int) -> Node:
        upper = super()._split(node, length)
        upper.last_access = node.last_access
        return upper


class CountsHitsOfMatches(RadixTree):
    """A match counts as a hit, where only an insert does."""

    def match(self, key: Key) -> tuple[Node, int]:
        node, matched = super().match(key)
        for found in node.path():
            found.hit_count += 1
        return node, matched


class LocksWhatIsBelowOnly(RadixTree):
    """A lock protects a node, and not what it continues."""

    def lock(self, node: Node) -> int:
        before = self.evictable
        if node is not self.root and node.lock_ref == 0:
            self.evictable -= node.length
            self.protected += node.length
        node.lock_ref += 1
        return self.evictable - before


class EvictsInOrderOfCreation(RadixTree):
    """Forgets that a match refreshes what it finds."""

    def match(self, key: Key) -> tuple[Node, int]:
        before = {node: node.last_access for node in self.nodes()}
        found = super().match(key)
        for node, last_access in before.items():
            node.last_access = last_access
        return found


class HitsWholePrompts(Radix):
    """A prompt that is known is found in full."""

    def match(self, row: int) -> int:
        self._rows[row, NUM_TOKENS] += 1
        found = super().match(row)
        self._rows[row, NUM_TOKENS] -= 1
        return found


class LeavesPromptsAndOutputsTogether(Radix):
    """Does not split where the prompt ends, as 0.5.3."""

    def bind(self, *given: Any) -> None:
        self.split_at_prompt = False
        super().bind(*given)


class FreesBlocksBackwards(Radix):
    """Freed blocks are handed out again in the opposite order."""

    def _free_blocks(self, freed: IntArray) -> None:
        super()._free_blocks(freed[::-1])


class CountsEveryChunk(Radix):
    """A request counts a hit with every chunk of its prompt."""

    def _checkpoint(self, row: int, num_tokens: int) -> None:
        self._held[row].inserted_len = 0
        super()._checkpoint(row, num_tokens)


class KeepsDuplicates(Radix):
    """What the tree has already is freed when the request ends, not at once."""

    def _checkpoint(self, row: int, num_tokens: int) -> None:
        if self.tree.peek(self.key(row, num_tokens))[0] <= self._held[row].protected_len:
            super()._checkpoint(row, num_tokens)


class EvictsJustWhatIsNeeded(Radix):
    """Makes no room for a block a sequence that may not need one."""

    def append(self, rows: IntArray, counts: IntArray) -> int:
        if self.block_size == 1 or len(rows) == 1:
            return super().append(rows, counts)
        return self._append_chunks(rows, counts)


class RetractedRequestsStay(Radix):
    """A request that loses its memory leaves it to the tree."""

    def release(self, rows: Any) -> None:
        self.finish(rows)


OF_THE_TREE = [
    SplitsKeepTheTime,
    CountsHitsOfMatches,
    LocksWhatIsBelowOnly,
    EvictsInOrderOfCreation,
]
OF_REQUESTS = [
    HitsWholePrompts,
    LeavesPromptsAndOutputsTogether,
    FreesBlocksBackwards,
    CountsEveryChunk,
    KeepsDuplicates,
    EvictsJustWhatIsNeeded,
    RetractedRequestsStay,
]


def difference_with(case: TreeCase, mutation: type | None) -> Difference | str | None:
    """The first difference when the mutation takes the place of what it is derived from."""
    try:
        if not is_of_requests(case):
            tree = tree_of(case)
            if mutation in OF_THE_TREE:
                tree.__class__ = mutation
            return TreeReplay(case, tree).first_difference()
        allocator = allocator_of(case)
        if mutation in OF_REQUESTS:
            allocator.__class__ = mutation
        replay = RequestReplay(case, allocator, is_checked=False)
        if mutation in OF_THE_TREE:
            allocator.tree.__class__ = mutation
        return replay.first_difference()
    except AssertionError as wrong:  # what was refused is a difference, too
        return str(wrong) or "refused"


@pytest.mark.parametrize("mutation", [*OF_THE_TREE, *OF_REQUESTS])
def test_a_mistake_in_a_rule_differs_from_what_the_engine_did(mutation: type) -> None:
    first = next((case for case in CASES if difference_with(case, mutation)), None)
    assert first is not None, f"no case notices: {mutation.__doc__}"
    assert difference_with(first, None) is None


@pytest.mark.parametrize("ticks", [-1, 1])
def test_one_tick_more_or_less_is_noticed(ticks: int) -> None:
    case = next((case for case in CASES if not is_of_requests(case)), None)
    if case is None:
        pytest.skip("no case of the tree alone")
    replay = TreeReplay(case, tree_of(case))
    replay.tree.clock += ticks
    assert "state.tree" in str(replay.first_difference())
