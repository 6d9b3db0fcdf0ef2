"""Allocators: how the slots of the KV pool are given to sequences. One file an allocator.

ALLOCATORS is the table of plug-ins; compiled operations of a family live in arena.py (contiguous)
and blocks.py (paged).
"""

from sim.allocators.base import Admission, Allocator, ConservationError, KVUsage
from sim.allocators.contiguous import Contiguous
from sim.allocators.paged import Paged
from sim.allocators.unbounded import Unbounded

ALLOCATORS: dict[str, type[Allocator]] = {
    "contiguous": Contiguous,
    "paged": Paged,
    "unbounded": Unbounded,
}

__all__ = ["ALLOCATORS", "Admission", "Allocator", "ConservationError", "KVUsage"]
