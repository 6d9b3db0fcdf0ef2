"""The rules of SGLang's radix tree in lists of tokens: every step looks at every node."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from sim.allocators.tree import Node, RadixTree
from sim.allocators.tree_keys import Key
from sim.allocators.tree_policies import EVICTION_POLICIES
from workloads.content import token_runs

Words = tuple[int, ...]


def key_of(words: Words, namespace: int = 0) -> Key:
    runs = token_runs(np.array(words, np.int64)).tolist()
    return Key.of([(source, start, n) for source, start, n in runs], len(words), namespace)


@dataclass(eq=False)
class NaiveNode:
    """A node knows all tokens from the root to its end; its own begin at begin."""

    namespace: int
    words: Words
    begin: int
    blocks: list[int]
    last_access: int
    created: int
    hit_count: int = 0
    priority: int = 0
    lock_ref: int = 0

    def look(self) -> tuple[object, ...]:
        """Everything, for a comparison."""
        place = self.namespace, self.words, self.begin, tuple(self.blocks)
        counts = self.lock_ref, self.hit_count, self.priority
        return *place, *counts, self.last_access, self.created


@dataclass
class NaiveTree:
    """RadixTree, but for names: keys are words, and what is locked is said in words."""

    size: int
    policy: str
    threshold: int
    clock: int = 2
    nodes: list[NaiveNode] = field(default_factory=list)
    refreshes_parts: ClassVar[bool] = True

    def whole(self, words: Words) -> Words:
        return words[: len(words) // self.size * self.size]

    def match(self, words: Words, namespace: int) -> int:
        words = self.whole(words)
        return len(self._walk(words, namespace)) if words else 0

    def insert(
        self, words: Words, namespace: int, blocks: list[int], priority: int, inserted_len: int
    ) -> int:
        words = self.whole(words)
        known = self._walk(words, namespace, inserted_len, priority)
        if len(known) < len(words):
            rest = blocks[len(known) // self.size : len(words) // self.size]
            leaf = NaiveNode(namespace, words, len(known), rest, *self._new_times())
            leaf.priority, leaf.hit_count = priority, int(len(words) > inserted_len)
            self.nodes.append(leaf)
        return len(known)

    def change_locks(self, words: Words, namespace: int, by: int) -> None:
        for node in self.nodes:
            if self._is_above(node, words, namespace):
                node.lock_ref += by

    def evict(self, num_tokens: int) -> list[list[int]]:
        gone = []
        while num_tokens > 0:
            leaves = [node for node in self.nodes if node.lock_ref == 0 and self._is_leaf(node)]
            if not leaves:
                break
            key = EVICTION_POLICIES[self.policy].key
            victim = min(leaves, key=lambda node: key(node, self.threshold))
            self.nodes.remove(victim)
            num_tokens -= len(victim.blocks) * self.size
            gone.append(victim.blocks)
        return gone

    def tokens(self, is_locked: bool) -> int:
        return sum(
            len(node.blocks) * self.size for node in self.nodes if (node.lock_ref > 0) == is_locked
        )

    def _walk(
        self, words: Words, namespace: int, inserted_len: int = 1 << 60, priority: int = -1
    ) -> Words:
        """What is known of words, block by block; the node it ends in is cut there."""
        self.clock += 1
        now, place = self.clock, 0
        while place < len(words):
            child = self._child(words, namespace, place)
            if child is None:
                break
            end = place
            while end < len(child.words) and self._is_same_block(child.words, words, end):
                end += self.size
            if self.refreshes_parts or end == len(child.words):
                child.last_access = now
            node = child if end == len(child.words) else self._cut(child, end)
            node.priority = max(node.priority, priority)
            node.hit_count += end > inserted_len
            place = end
            if node is not child:
                break
        return words[:place]

    def _is_same_block(self, known: Words, words: Words, begin: int) -> bool:
        end = begin + self.size
        return end <= len(words) and known[begin:end] == words[begin:end]

    def _child(self, words: Words, namespace: int, place: int) -> NaiveNode | None:
        for node in self.nodes:
            is_here = node.namespace == namespace and node.begin == place
            if is_here and node.words[: place + self.size] == words[: place + self.size]:
                return node
        return None

    def _cut(self, node: NaiveNode, end: int) -> NaiveNode:
        middle = (end - node.begin) // self.size
        times = self._times_of_part(node)
        upper = NaiveNode(
            node.namespace, node.words[:end], node.begin, node.blocks[:middle], *times
        )
        upper.hit_count, upper.priority = node.hit_count, node.priority
        upper.lock_ref = node.lock_ref
        node.begin, node.blocks = end, node.blocks[middle:]
        self.nodes.append(upper)
        return upper

    def _new_times(self) -> tuple[int, int]:
        """Last access and creation of a new node."""
        self.clock += 2
        return self.clock - 1, self.clock

    def _times_of_part(self, node: NaiveNode) -> tuple[int, int]:
        """Those of the upper half of a node."""
        return self._new_times()

    def _is_above(self, node: NaiveNode, words: Words, namespace: int) -> bool:
        return node.namespace == namespace and node.words == words[: len(node.words)]

    def _is_leaf(self, node: NaiveNode) -> bool:
        return not any(
            other.begin == len(node.words) and self._is_above(node, other.words, other.namespace)
            for other in self.nodes
        )


@dataclass
class NaiveMiniTree(NaiveTree):
    """MiniTree: one time a node, which only a walk through all of it refreshes."""

    clock: int = 1
    refreshes_parts: ClassVar[bool] = False

    def match(self, words: Words, namespace: int) -> int:
        return len(self._walk(self.whole(words), namespace))

    def _new_times(self) -> tuple[int, int]:
        self.clock += 1
        return self.clock, self.clock

    def _times_of_part(self, node: NaiveNode) -> tuple[int, int]:
        return node.last_access, node.last_access


def look_at(tree: RadixTree) -> set[tuple[object, ...]]:
    """Every node of a radix tree as a naive node shows itself."""

    def words_to(node: Node) -> Words:
        parts = [tokens_of(above) for above in node.path()]
        return tuple(token for part in reversed(parts) for token in part)

    found = set()
    for node in tree.nodes():
        top = [*node.path()][-1]
        words = words_to(node)
        place = top.name.namespace, words, len(words) - node.length, tuple(node.blocks.tolist())
        counts = node.lock_ref, node.hit_count, node.priority
        found.add((*place, *counts, node.last_access, node.created))
    return found


def tokens_of(node: Node) -> list[int]:
    return [start + i for _, start, length in node.runs for i in range(length)]
