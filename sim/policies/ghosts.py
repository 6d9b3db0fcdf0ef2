"""Lists of blocks that are remembered after their eviction, oldest first, without their content."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sim.jit import compiled
from workloads.trace import IntColumn


class Ghosts(NamedTuple):
    """Doubly linked lists over block numbers; list k has its head at cell len(where) + k.

    where[b] is the list that remembers block b, -1 for none.
    """

    before: IntColumn
    after: IntColumn
    where: IntColumn
    sizes: IntColumn


def no_ghosts(num_blocks: int, num_lists: int) -> Ghosts:
    """Empty lists."""
    cells = np.arange(num_blocks + num_lists)
    return Ghosts(cells, cells.copy(), np.full(num_blocks, -1), np.zeros(num_lists, np.int64))


@compiled
def is_ghost(ghosts: Ghosts, block: int, which: int) -> bool:
    """Whether a list remembers the block."""
    return bool(ghosts.where[block] == which)


@compiled
def remember(ghosts: Ghosts, block: int, which: int) -> None:
    """Put a block that no list remembers at the newest end of one."""
    head = len(ghosts.where) + which
    newest = ghosts.before[head]
    ghosts.before[block], ghosts.after[block] = newest, head
    ghosts.after[newest], ghosts.before[head] = block, block
    ghosts.where[block] = which
    ghosts.sizes[which] += 1


@compiled
def forget(ghosts: Ghosts, block: int) -> None:
    """Remove a block from the list that remembers it, if there is one."""
    which = ghosts.where[block]
    if which < 0:
        return
    before, after = ghosts.before[block], ghosts.after[block]
    ghosts.after[before], ghosts.before[after] = after, before
    ghosts.where[block] = -1
    ghosts.sizes[which] -= 1


@compiled
def forget_oldest(ghosts: Ghosts, which: int) -> None:
    """Remove the oldest block of a list that is not empty."""
    forget(ghosts, ghosts.after[len(ghosts.where) + which])
