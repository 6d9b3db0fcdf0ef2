"""Operation for operation and tick for tick what mini-sglang's radix tree did, in every case.

The cases are not part of this repository: $KVSIM_GOLDEN_DIR or $KVSIM_SHARED/golden says where
they are.
"""

from pathlib import Path

import pytest

from recorded_tree import Difference, TreeCase, read_case
from replay_mini import ENGINE, MiniReplay, case_paths, tree_of
from sim.allocators.tree import Node, RadixTree
from sim.allocators.tree_keys import Key
from sim.allocators.tree_mini import MiniTree

ENOUGH = 20  # cases in which every rule occurs

CASES = case_paths()
missing = pytest.mark.skip(f"no cases of {ENGINE}: set KVSIM_GOLDEN_DIR or KVSIM_SHARED")


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, id=path.name) for path in CASES]
    or [pytest.param(None, id="absent", marks=missing)],
)
def test_every_operation_of_a_recorded_case_does_what_the_engine_did(path: Path) -> None:
    case = read_case(path)
    difference = MiniReplay(case, tree_of(case)).first_difference()
    assert difference is None, f"{case.name}: {difference}"


def test_a_difference_says_operation_field_and_both_values() -> None:
    if not CASES:
        pytest.skip(f"no cases of {ENGINE}")
    case = read_case(CASES[0])
    evictable = case.records[1]["evictable"]
    case.records[1]["evictable"] += 1
    found = MiniReplay(case, tree_of(case)).first_difference()
    name = case.ops[1]["op"]
    assert str(found) == f"op 1 ({name}), evictable: recorded {evictable + 1}, ours {evictable}"


class RefreshesParts(MiniTree):
    """A node that is known in part counts as used, as in SGLang."""

    refreshes_parts = True


class SplitsAreNew(MiniTree):
    """The upper half of a split node has just been used."""

    def _split(self, node: Node, length: int) -> Node:
        upper = super()._split(node, length)
        upper.last_access = self.clock
        return upper


class MatchesNothingInNoTime(MiniTree):
    """A match of an empty key takes no tick."""

    def match(self, key: Key) -> tuple[Node, int]:
        return RadixTree.match(self, key)


class ForgetsMatches(MiniTree):
    """Only an insert refreshes what it finds."""

    def match(self, key: Key) -> tuple[Node, int]:
        before = {node: node.last_access for node in self.nodes()}
        found = super().match(key)
        for node, last_access in before.items():
            node.last_access = last_access
        return found


class EvictsTheNewest(MiniTree):
    """What was used last goes first."""

    def __init__(self, block_size: int) -> None:
        RadixTree.__init__(self, block_size, "mru", 1)


class LocksWhatIsBelowOnly(MiniTree):
    """A lock protects a node, and not what it continues."""

    def lock(self, node: Node) -> int:
        before = self.evictable
        if node is not self.root and node.lock_ref == 0:
            self.evictable -= node.length
            self.protected += node.length
        node.lock_ref += 1
        return self.evictable - before


MUTATIONS: list[type[MiniTree]] = [
    RefreshesParts,
    SplitsAreNew,
    MatchesNothingInNoTime,
    ForgetsMatches,
    EvictsTheNewest,
    LocksWhatIsBelowOnly,
]


def difference_with(case: TreeCase, tree: RadixTree) -> Difference | str | None:
    """The first difference, or what the tree refused."""
    try:
        return MiniReplay(case, tree).first_difference()
    except AssertionError as wrong:
        return str(wrong) or "refused"


@pytest.mark.skipif(len(CASES) < ENOUGH, reason=f"fewer than {ENOUGH} cases of {ENGINE}")
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_mistake_in_a_rule_differs_from_what_the_engine_did(mutation: type[MiniTree]) -> None:
    cases = [read_case(path) for path in CASES]
    found = [difference_with(case, mutation(case.config["page_size"])) for case in cases]
    assert any(found), mutation.__doc__


@pytest.mark.skipif(not CASES, reason=f"no cases of {ENGINE}")
def test_sglang_s_own_tree_is_another_one() -> None:
    cases = [read_case(path) for path in CASES]
    trees = [RadixTree(case.config["page_size"], "lru", 2) for case in cases]
    assert all(map(difference_with, cases, trees))
