"""A recorded history of SGLang's tree alone, gone through again; the first thing that differs."""

from __future__ import annotations

from typing import Any

import numpy as np

from recorded import Record
from recorded_tree import (
    Difference,
    Namespaces,
    TreeCase,
    first_difference,
    runs_of,
    slots_of,
    tokens_of,
)
from sim.allocators.tree import Node, RadixTree
from sim.allocators.tree_keys import Key

DEFAULT_THRESHOLD = 2


def tree_of(case: TreeCase) -> RadixTree:
    config = case.config
    threshold = config.get("eviction_policy_config", {}).get("protected_threshold")
    policy = config.get("eviction_policy", "lru")
    return RadixTree(config["page_size"], policy, threshold or DEFAULT_THRESHOLD)


def state_of(tree: RadixTree, names: Namespaces, shows_priority: bool) -> Record:
    """The tree as the recordings show it."""

    def look_at(node: Node, namespace: int) -> Record:
        view = {
            "key": tokens_of(node.runs),
            "value": slots_of(node.blocks, tree.block_size),
            "lock_ref": node.lock_ref,
            "hit_count": node.hit_count,
            "t": node.last_access,
            "created": node.created,
            "children": [look_at(child, namespace) for child in node.children.values()],
        }
        if namespace:
            view["extra_key"] = names.name(namespace)
        if shows_priority:
            view["priority"] = node.priority
        return view

    return {
        "evictable": tree.evictable,
        "protected": tree.protected,
        "total": tree.evictable + tree.protected,
        "nodes": tree.num_nodes,
        "tree": [look_at(child, child.name[0]) for child in tree.root.children.values()],
    }


class TreeReplay:
    """The engine's values are slots from its own counter; ours are their blocks."""

    def __init__(self, case: TreeCase, tree: RadixTree) -> None:
        self.case, self.tree, self.names = case, tree, Namespaces()
        self.held: dict[str, Node] = {}
        self.shows_priority = case.config.get("eviction_policy") == "priority"

    def first_difference(self) -> Difference | None:
        for index, (op, record) in enumerate(zip(self.case.ops, self.case.records, strict=True)):
            gone: list[Any] = []
            ours = getattr(self, "_" + op["op"])(op, record, gone)
            ours |= {"i": index, "op": op["op"], **self._state(gone)}
            found = first_difference(record, ours, index, op["op"])
            if found is not None:
                return found
        return None

    def _state(self, gone: list[Any]) -> Record:
        return {
            "evicted": [slots_of(blocks, self.tree.block_size) for blocks in gone],
            "state": state_of(self.tree, self.names, self.shows_priority),
        }

    def _key(self, op: Record) -> Key:
        tokens = op["key"]
        namespace = self.names.number(op.get("extra_key"))
        return Key.of(runs_of(tokens), op.get("limit", len(tokens)), namespace)

    def _insert(self, op: Record, record: Record, gone: list[Any]) -> Record:
        """The slots are given; they must be those of whole pages, but for the last."""
        key, size, given = self._key(op), self.tree.block_size, record["value"]
        blocks = np.array(given)[::size] // size
        found = self.tree.insert(key, blocks, priority=op.get("priority", 0))
        return {"prefix_len": found, "value": slots_of(blocks, size)[: len(given)]}

    def _match(self, op: Record, record: Record, gone: list[Any]) -> Record:
        node, hit = self.tree.match(self._key(op))
        if "name" in op:
            self.held[op["name"]] = node
        blocks = [held.blocks for held in node.path()]
        slots = slots_of(
            np.concatenate([np.empty(0, np.int64), *reversed(blocks)]), self.tree.block_size
        )
        return {"hit": hit, "indices": slots}

    def _lock(self, op: Record, record: Record, gone: list[Any]) -> Record:
        return {"delta": self.tree.lock(self.held[op["name"]])}

    def _unlock(self, op: Record, record: Record, gone: list[Any]) -> Record:
        return {"delta": self.tree.unlock(self.held[op["name"]])}

    def _evict(self, op: Record, record: Record, gone: list[Any]) -> Record:
        before = self.tree.evictable
        gone += self.tree.evict(op["n"])
        return {"num_evicted": before - self.tree.evictable}
