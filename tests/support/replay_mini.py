"""A recorded history of mini-sglang's radix tree gone through again; what differs first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from recorded import Record
from recorded import case_paths as paths_of
from recorded_tree import TreeCase, read_case, slots_of, tokens_of
from replay_tree import TreeReplay
from sim.allocators.mini_sglang import MiniSglang
from sim.allocators.tree import Node, RadixTree
from sim.config.plugin_keys import build_part
from sim.sequence import SequenceTable

ENGINE = "mini_sglang"

__all__ = ["ENGINE", "MiniReplay", "case_paths", "read_case", "tree_of"]


def case_paths() -> list[Path]:
    return paths_of(ENGINE)


def tree_of(case: TreeCase) -> RadixTree:
    """The tree of the allocator that an experiment with the case's settings builds."""
    part = {"kind": ENGINE, "block_size": case.config["page_size"]}
    allocator: MiniSglang = build_part("allocator", part, Path())
    allocator.bind(1 << 16, SequenceTable(), 1 << 16)
    return allocator.tree


class MiniReplay(TreeReplay):
    """The engine shows less of a node than SGLang, and sizes beside the tree, not in a state."""

    def _state(self, gone: list[Any]) -> Record:
        tree = self.tree
        return {
            "evicted": [slot for blocks in gone for slot in slots_of(blocks, tree.block_size)],
            "evictable": tree.evictable,
            "protected": tree.protected,
            "tree": [self._look_at(child) for child in tree.root.children.values()],
        }

    def _evict(self, op: Record, record: Record, gone: list[Any]) -> Record:
        """The engine refuses to evict more than there is; the recording asks for no more."""
        count = min(op["n"], self.tree.evictable)
        gone += self.tree.evict(count)
        return {"n": count}

    def _look_at(self, node: Node) -> Record:
        return {
            "key": tokens_of(node.runs),
            "value": slots_of(node.blocks, self.tree.block_size),
            "ref": node.lock_ref,
            "t": node.last_access,
            "children": [self._look_at(child) for child in node.children.values()],
        }
