"""A radix tree of token runs, as SGLang's RadixCache keeps it.

A node is a stretch of content and the blocks that hold its KV. Nodes are split where contents part,
at whole blocks; a locked node is in use, and so is all above it; unlocked leaves are evicted whole.
The clock is a counter: every operation takes a tick, a new node two (last access, creation), so
that two trees that did the same have the same times. Source: SGLang 0.5.23,
srt/mem_cache/radix_cache.py and evict_policy.py.

Differs on purpose: content is compared run by run instead of token by token; victims come from one
heap that lives as long as the tree, instead of one that every eviction builds from all leaves.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from heapq import heapify, heappop, heappush
from typing import ClassVar, NamedTuple

import numpy as np

from sim.allocators.tree_keys import Key, common, cut, ends_of, first_block
from sim.allocators.tree_policies import EVICTION_POLICIES, EvictionKey
from sim.sequence import IntArray
from workloads.content import Run

NEVER, LOWEST = 1 << 62, -(1 << 62)  # for a walk that counts no hits, and one without a priority


class TopName(NamedTuple):
    """The name of a child of the root, where namespaces part."""

    namespace: int
    name: Hashable


class Node:
    """A stretch of content: the runs, their length in tokens, and the blocks that hold them.

    lock_ref counts the sequences that hold it or something below it, idle_ref those of them that
    are done and stay (in a static batch). name is its place among its parent's children.
    """

    __slots__ = (
        "blocks",
        "children",
        "created",
        "hit_count",
        "idle_ref",
        "is_queued",
        "last_access",
        "length",
        "lock_ref",
        "name",
        "parent",
        "priority",
        "runs",
    )

    def __init__(self, runs: list[Run], blocks: IntArray, length: int) -> None:
        self.runs, self.blocks, self.length = runs, blocks, length
        self.parent: Node = self
        self.name: Hashable = None
        self.children: dict[Hashable, Node] = {}
        self.lock_ref = self.idle_ref = self.hit_count = self.priority = 0
        self.last_access = self.created = 0
        self.is_queued = False

    def path(self) -> Iterator[Node]:
        """This node and all above it but the root, upwards."""
        node = self
        while node.parent is not node:
            yield node
            node = node.parent


class RadixTree:
    """What can be found, where it is, and which of it may go.

    evictable and protected are the tokens in unlocked and in locked nodes; idle is the part of
    protected that only finished sequences hold. refreshes_parts says whether a node that is known
    in part counts as used before it is split.
    """

    refreshes_parts: ClassVar[bool] = True

    def __init__(self, block_size: int, eviction_policy: str, protected_threshold: int) -> None:
        self.block_size = block_size
        policy = EVICTION_POLICIES[eviction_policy]
        self._eviction_key, self._falls = policy.key, policy.falls
        self._threshold = protected_threshold
        self.clock = 0
        self._pushed = 0
        self._heap: list[tuple[EvictionKey, int, Node]] = []
        self.evictable = self.protected = self.idle = 0
        self.num_nodes = 0
        self.root = self._new_node([], np.empty(0, np.int64), 0)
        self.root.lock_ref = 1

    def match(self, key: Key) -> tuple[Node, int]:
        """The deepest node of what is known of a key, and how many tokens are.

        Splits a node that is known in part, and refreshes all on the way.
        """
        if self._whole(key.length) == 0:
            return self.root, 0  # without a tick; an insert of nothing takes one
        return self._walk(key, NEVER, LOWEST)

    def peek(self, key: Key) -> tuple[int, int]:
        """The tokens that match would find, and how many of them nobody holds. Changes nothing."""
        matched = unlocked = index = used = 0
        node, length, size = self.root, self._whole(key.length), self.block_size
        while matched < length:
            child = node.children.get(self._name(node, key, index, used))
            if child is None:
                break
            count, index, used = common(child.runs, key, index, used)
            count = min(count, length - matched) // size * size
            matched += count
            if child.lock_ref == 0:
                unlocked += count
            if count < child.length:
                break
            node = child
        return matched, unlocked

    def insert(
        self, key: Key, blocks: IntArray, begin: int = 0, priority: int = 0, inserted_len: int = 0
    ) -> int:
        """Make a key known; return how many of its tokens were, which keep their own blocks.

        blocks hold its tokens from begin on; the array is kept. A node counts a hit if the walk
        through it goes beyond inserted_len, what this sequence has inserted before. A node's
        priority is the highest of all that were inserted through it.
        """
        return self.put(key, blocks, begin, priority, inserted_len)[1]

    def put(
        self, key: Key, blocks: IntArray, begin: int, priority: int = 0, inserted_len: int = 0
    ) -> tuple[Node, int]:
        """insert, and the node that the key ends with."""
        node, matched = self._walk(key, inserted_len, priority)
        length, size = self._whole(key.length), self.block_size
        if matched == length:
            return node, matched
        runs = cut(key.runs, key.ends, matched, length)
        first, last = (matched - begin) // size, (length - begin) // size
        leaf = self._new_node(runs, blocks[first:last], length - matched)
        leaf.priority, leaf.hit_count = priority, int(length > inserted_len)
        leaf.parent = node
        name = first_block(runs, 0, 0, size)
        leaf.name = TopName(key.namespace, name) if node is self.root else name
        node.children[leaf.name] = leaf
        self.num_nodes += 1
        self.evictable += leaf.length
        self._queue(leaf)
        return leaf, matched

    def lock(self, node: Node) -> int:
        """Protect a node and all above it; return by how much evictable has changed."""
        before = self.evictable
        for held in node.path():
            if held.lock_ref == 0:
                self.evictable -= held.length
                self.protected += held.length
            elif held.lock_ref == held.idle_ref:
                self.idle -= held.length
            held.lock_ref += 1
        return self.evictable - before

    def unlock(self, node: Node) -> int:
        """Take a lock back; return by how much evictable has changed."""
        before = self.evictable
        for held in node.path():
            held.lock_ref -= 1
            if held.lock_ref == 0:
                self.evictable += held.length
                self.protected -= held.length
            elif held.lock_ref == held.idle_ref:
                self.idle += held.length
        self._queue(node)
        return self.evictable - before

    def set_idle(self, node: Node, is_idle: bool) -> None:
        """The sequence that holds a lock on a node is done, and stays; or it is not, after all."""
        for held in node.path():
            self.idle -= held.length * (held.lock_ref == held.idle_ref)
            held.idle_ref += 1 if is_idle else -1
            self.idle += held.length * (held.lock_ref == held.idle_ref)

    def evict(self, num_tokens: int) -> list[IntArray]:
        """Remove unlocked leaves until num_tokens tokens are gone; return their blocks in order.

        A leaf goes as a whole, so more may go; its parent may be the next.
        """
        gone = []
        while num_tokens > 0 and (leaf := self._next_victim()) is not None:
            del leaf.parent.children[leaf.name]
            leaf.name = None
            self._queue(leaf.parent)
            self.num_nodes -= 1
            self.evictable -= leaf.length
            num_tokens -= leaf.length
            gone.append(leaf.blocks)
        return gone

    def nodes(self) -> Iterator[Node]:
        """All nodes but the root, depth first, children in the order of their parent's."""
        rest = [*reversed(self.root.children.values())]
        while rest:
            node = rest.pop()
            yield node
            rest += reversed(node.children.values())

    def _walk(self, key: Key, inserted_len: int, priority: int) -> tuple[Node, int]:
        """Go down as far as a key is known, splitting where it parts; as for match and insert."""
        node, matched, index, used = self.root, 0, 0, 0
        length, size = self._whole(key.length), self.block_size
        self.clock += 1
        now = self.clock
        while matched < length:
            child = node.children.get(self._name(node, key, index, used))
            if child is None:
                break
            count, index, used = common(child.runs, key, index, used)
            count = min(count, length - matched) // size * size
            matched += count
            is_part = count < child.length
            if self.refreshes_parts or not is_part:
                child.last_access = now
            node = self._split(child, count) if is_part else child
            node.priority = max(node.priority, priority)
            if matched > inserted_len:
                node.hit_count += 1
            if is_part:
                break
        if self._falls:
            self._queue(node)
        return node, matched

    def _split(self, node: Node, length: int) -> Node:
        """Cut a node behind length tokens; return the new upper half."""
        middle = length // self.block_size
        ends = ends_of(node.runs)
        lower_runs = cut(node.runs, ends, length, node.length)
        upper = self._new_node(cut(node.runs, ends, 0, length), node.blocks[:middle], length)
        upper.priority, upper.hit_count = node.priority, node.hit_count
        upper.lock_ref, upper.idle_ref = node.lock_ref, node.idle_ref
        upper.parent, upper.name = node.parent, node.name
        node.parent.children[node.name] = upper
        node.runs, node.blocks, node.length = lower_runs, node.blocks[middle:], node.length - length
        node.parent, node.name = upper, first_block(node.runs, 0, 0, self.block_size)
        upper.children[node.name] = node
        self.num_nodes += 1
        if self._falls:
            self._queue(node)
        return upper

    def _new_node(self, runs: list[Run], blocks: IntArray, length: int) -> Node:
        node = Node(runs, blocks, length)
        node.last_access, node.created = self.clock + 1, self.clock + 2
        self.clock += 2
        return node

    def _whole(self, length: int) -> int:
        """The tokens of whole blocks."""
        return length // self.block_size * self.block_size

    def _name(self, node: Node, key: Key, index: int, used: int) -> Hashable:
        """The name of the child of a node that a key goes on with; namespaces part at the root."""
        name = first_block(key.runs, index, used, self.block_size)
        return TopName(key.namespace, name) if node is self.root else name

    def _queue(self, node: Node) -> None:
        """A node may have become an unlocked leaf, or its key has fallen: it waits for eviction.

        A key that has grown stays as it is: the node is queued again when its turn comes.
        """
        if node.lock_ref or node.children or (node.is_queued and not self._falls):
            return
        if len(self._heap) > 2 * self.num_nodes + 64:
            self._heap = [entry for entry in self._heap if self._is_current(entry[0], entry[2])]
            heapify(self._heap)
        self._pushed += 1
        node.is_queued = True
        heappush(self._heap, (self._eviction_key(node, self._threshold), self._pushed, node))

    def _is_current(self, key: EvictionKey, node: Node) -> bool:
        """Whether a node is still an unlocked leaf with this key."""
        is_leaf = node.name is not None and not node.lock_ref and not node.children
        return is_leaf and key == self._eviction_key(node, self._threshold)

    def _next_victim(self) -> Node | None:
        """The unlocked leaf with the smallest key, taken from the heap; None without one."""
        while self._heap:
            key, _, node = heappop(self._heap)
            node.is_queued = False
            if self._is_current(key, node):
                return node
            if not self._falls and node.name is not None:
                self._queue(node)  # if it is a leaf, behind those that were used before it
        return None
