"""What a scheduler asks of memory whose used blocks stay in a prefix tree, beside the contract.

A waiting row is matched, then held, which `release` undoes. extend takes slots for prompts and
chunks, checkpoint gives them to the tree when they have been computed; append and free are those of
every allocator.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from sim.allocators.base import Allocator
from sim.sequence import IntArray


class TreeSteps(Protocol):
    """Sizes and steps of a radix tree's memory; sizes in tokens."""

    block_size: int

    @property
    def num_blocks(self) -> int:
        """Blocks in the pool."""

    @property
    def available_size(self) -> int:
        """Tokens in free blocks."""

    @property
    def evictable_size(self) -> int:
        """Tokens in the tree that nobody holds."""

    def match(self, row: int, whole: bool = False) -> int:
        """Look for all but the last of a waiting row's tokens, or for all; tokens found.

        Refreshes what it finds, and may split a node.
        """

    def match_again(self, row: int, num_times: int) -> None:
        """match a row, matched before, so many times, while others decode."""

    def hold(self, row: int) -> None:
        """Lock what match has just found for a row."""

    def release(self, rows: Iterable[int]) -> None:
        """Rows lose what they hold, and the tree gets nothing."""

    def extend(self, rows: IntArray, counts: IntArray) -> int:
        """Take slots for counts[i] more tokens of rows[i], evicting; how many rows got them."""

    def checkpoint(self, rows: IntArray, num_tokens: IntArray) -> None:
        """Give the first num_tokens[i] tokens of rows[i] to the tree."""

    def make_room(self, rows: IntArray) -> bool:
        """Evict what is short for one more token of every row; whether all would fit."""

    def evict(self, num_tokens: int) -> int:
        """Evict leaves until num_tokens more tokens are free; how many are."""

    def repeats(self, rows: Sequence[int], least: int) -> list[bool]:
        """Which rows begin with least tokens or more that an earlier one begins with."""

    def depth_first_order(self, rows: Sequence[int]) -> list[int]:
        """The places of rows in the order in which a walk down the tree meets their matches."""


def lacks_tree(scheduler: str, allocator: Allocator) -> str:
    """Why a scheduler cannot run with an allocator that has no prefix tree; empty if it has one."""
    if allocator.has_prefix_tree:
        return ""
    return (
        f"{scheduler} admits by what a radix tree holds and could evict, which "
        f"{allocator.kind} cannot say; accepted with it: allocators mini_sglang and radix"
    )
