"""A recount of memory in a radix tree: the slow way, for `check` and for tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from sim.allocators.terms import ConservationError, KVUsage, row_terms
from sim.allocators.tree import Node, RadixTree, TopName
from sim.allocators.tree_keys import first_block
from sim.sequence import FINAL_TOKENS, NUM_COMPUTED, NUM_SLOTS, IntArray


class Holder(NamedTuple):
    """A row that holds memory: its node, its tokens in the tree, its own blocks, if it is done."""

    node: Node
    protected_len: int
    own: IntArray
    is_idle: bool


def require(condition: bool, sentence: str) -> None:
    if not condition:
        raise ConservationError(f"radix: {sentence}")


def check_tree(tree: RadixTree, holders: Iterable[Holder]) -> None:
    """Compare the tree with itself and with who holds it. Raises ConservationError."""
    locks: dict[Node, int] = {}
    idle: dict[Node, int] = {}
    for holder in holders:
        depth = 0
        for node in holder.node.path():
            locks[node] = locks.get(node, 0) + 1
            idle[node] = idle.get(node, 0) + holder.is_idle
            depth += node.length
        require(depth == holder.protected_len, f"a row holds {holder.protected_len} of {depth}")
    nodes = list(tree.nodes())
    for node in nodes:
        _check_node(tree, node)
        require(node.lock_ref == locks.pop(node, 0), "lock counts are wrong")
        require(node.idle_ref == idle.get(node, 0), "lock counts of done sequences are wrong")
    require(not locks, "a row holds a node that is not in the tree")
    sizes = (
        sum(node.length for node in nodes if node.lock_ref == 0),
        sum(node.length for node in nodes if node.lock_ref > 0),
        sum(node.length for node in nodes if 0 < node.lock_ref == node.idle_ref),
        len(nodes),
    )
    counted = tree.evictable, tree.protected, tree.idle, tree.num_nodes
    require(counted == sizes, f"the tree counts {counted}, a recount gives {sizes}")


def _check_node(tree: RadixTree, node: Node) -> None:
    size = tree.block_size
    require(node.length == sum(run[2] for run in node.runs), "a node has another length")
    require(node.length == len(node.blocks) * size > 0, "a node has too few blocks or too many")
    name = node.name.name if isinstance(node.name, TopName) else node.name
    require(name == first_block(node.runs, 0, 0, size), "a node has another's name")
    require(node.parent.children.get(node.name) is node, "a node is not its parent's")
    is_under = node.parent is tree.root or node.parent.lock_ref >= node.lock_ref
    require(is_under, "a node is locked more often than its parent")
    is_leaf = not node.children and node.lock_ref == 0
    require(not is_leaf or node.is_queued, "a leaf that nobody holds does not wait for eviction")


def recount_tree(
    sequences: IntArray, tree: RadixTree, holders: Mapping[int, Holder], free: IntArray
) -> KVUsage:
    """The terms, but for external, from the tree and the rows.

    Raises ConservationError if a block is in two places or in none.
    """
    in_tree = [node.blocks for node in tree.nodes()]
    everywhere = np.concatenate([free, *in_tree, *(holder.own for holder in holders.values())])
    once = np.arange(1, len(everywhere) + 1)
    require(np.array_equal(np.sort(everywhere), once), "a block is in two places or in none")
    totals = [tree.protected - tree.idle, 0, tree.idle]
    for row, holder in holders.items():
        computed, slots, final = sequences[row, [NUM_COMPUTED, NUM_SLOTS, FINAL_TOKENS]].tolist()
        require(computed <= slots, f"row {row} has written {computed} tokens in {slots} slots")
        held = holder.protected_len + len(holder.own) * tree.block_size
        require(held == slots, f"row {row} holds {held} slots, its sequence says {slots}")
        parts = list(row_terms(computed, slots, final))
        parts[2 if holder.is_idle else 0] -= holder.protected_len
        totals = [total + part for total, part in zip(totals, parts, strict=True)]
    written, reserved, internal = totals
    return KVUsage(written, reserved, internal, 0, tree.evictable, len(free) * tree.block_size)


def state_of_tree(tree: RadixTree) -> IntArray:
    """The clock, then of every node, depth first: children, counts, times, length and blocks."""
    cells: list[int] = [tree.clock]
    for node in tree.nodes():
        cells += (len(node.children), node.lock_ref, node.idle_ref, node.hit_count, node.priority)
        cells += (node.last_access, node.created, node.length, *node.blocks.tolist())
    return np.array(cells, np.int64)
