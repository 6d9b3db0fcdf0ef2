"""Allocators: how the slots of the KV pool are given to sequences. One file an allocator.

ALLOCATORS is the table of plug-ins; compiled operations of a family live in arena.py (contiguous),
blocks.py (paged), shared_blocks.py (paged_cow), cached_blocks.py (prefix, nano_vllm), tree_slots.py
(radix, mini_sglang) and mapped_pages.py (vattention).
"""

from sim.allocators.base import Admission, Allocator
from sim.allocators.contiguous import Contiguous
from sim.allocators.mini_sglang import MiniSglang
from sim.allocators.nano_vllm import NanoVllm
from sim.allocators.paged import Paged
from sim.allocators.paged_cow import PagedCow
from sim.allocators.prefix import Prefix
from sim.allocators.radix import Radix
from sim.allocators.terms import ConservationError, KVUsage
from sim.allocators.unbounded import Unbounded
from sim.allocators.vattention import VAttention

ALLOCATORS: dict[str, type[Allocator]] = {
    "contiguous": Contiguous,
    "mini_sglang": MiniSglang,
    "nano_vllm": NanoVllm,
    "paged": Paged,
    "paged_cow": PagedCow,
    "prefix": Prefix,
    "radix": Radix,
    "unbounded": Unbounded,
    "vattention": VAttention,
}

__all__ = ["ALLOCATORS", "Admission", "Allocator", "ConservationError", "KVUsage"]
