"""What allocators do with a request or two: the small figures of the PagedAttention paper."""

from __future__ import annotations

from collections import Counter
from typing import Literal

from sim.allocators.base import Admission
from sim.allocators.contiguous import Contiguous
from sim.allocators.paged import Paged
from sim.allocators.paged_cow import PagedCow
from sim.claims.probes.pools import Pool


def reservation(chunk: int, prompt: int, generated: int, future: int) -> dict[str, int]:
    """Where the slots of a reservation are after some of its tokens have been generated.

    A request that may become chunk tokens long writes prompt and generated tokens now and future
    ones later (PagedAttention paper, Fig. 3). The last token of a request is never written.
    """
    pool = Pool(Contiguous("max_tokens"), chunk, chunk)
    row = pool.open(prompt, generated + future + 1, chunk - prompt)
    pool.admit(row)
    for _ in range(generated):
        pool.write_each([row])
    usage = pool.allocator.usage()
    return {
        "used": usage.token_states,
        "reserved": usage.reserved,
        "internal": usage.internal,
    }


def blocks_after(prompt: int, block_size: int, decode_steps: int) -> dict[str, list[int]]:
    """How many blocks a sequence holds after its prompt, and after each decode step (Fig. 6)."""
    pool = Pool(Paged(block_size), 16 * block_size, 16 * block_size)
    row = pool.open(prompt, decode_steps + 1)
    pool.admit(row)
    counts = [len(pool.block_table(row))]
    for _ in range(decode_steps):
        pool.write_each([row])
        counts.append(len(pool.block_table(row)))
    return {"blocks_after": counts}


def samples(n: int, prompt: int, block_size: int) -> dict[str, int]:
    """Blocks copied, and held at last, when n samples of a prompt write a token each (Fig. 8)."""
    pool = Pool(PagedCow(block_size, watermark=0, num_cpu_blocks=0), 64 * block_size, 512)
    first = pool.open(prompt, 8)
    pool.admit(first)
    rows = [first, *pool.fork(first, n - 1)]
    pool.write_each(rows)
    held = {block for row in rows for block in pool.block_table(row)}
    copies = pool.allocator.counters()["num_copied_blocks"]
    return {"block_copies": copies, "final_blocks": len(held)}


def beam_step(beam: int, parents: list[list[int]], block_size: int = 1) -> dict[str, int]:
    """The last step of a beam search: blocks freed, then allocated, and shared by all (Fig. 9).

    parents has for each step the beam that each of the new ones continues. Blocks are full when a
    step ends: every beam writes block_size tokens between two steps.
    """
    pool = Pool(PagedCow(block_size, watermark=0, num_cpu_blocks=0), 256 * block_size, 1024)
    first = pool.open(block_size, 256)
    pool.admit(first)
    rows = [first]
    for step in parents:
        before = _holders(pool, rows)
        rows = _continued(pool, rows, step)
        after = _holders(pool, rows)
        for _ in range(block_size):
            pool.write_each(rows)
        last = _holders(pool, rows)
    return {
        "freed": len(before.keys() - after.keys()),
        "allocated": len(last.keys() - after.keys()),
        "shared_by_all": sum(count == beam for count in last.values()),
    }


def _continued(pool: Pool, rows: list[int], step: list[int]) -> list[int]:
    """The rows of the next beams: the first to continue a row stays in it, the others fork."""
    stays: dict[int, int] = {}
    for beam, parent in enumerate(step):
        stays.setdefault(parent, beam)
    forked = [beam for beam, parent in enumerate(step) if stays[parent] != beam]
    dropped = [row for place, row in enumerate(rows) if place not in stays]
    children = pool.fork_each([rows[step[beam]] for beam in forked], dropped)
    at = {beam: rows[parent] for parent, beam in stays.items()} | dict(
        zip(forked, children, strict=True)
    )
    return [at[beam] for beam in range(len(step))]


def _holders(pool: Pool, rows: list[int]) -> Counter[int]:
    """How many of the rows hold each block."""
    return Counter(block for row in rows for block in pool.block_table(row))


def external_of_full_pool(
    num_slots: int, max_model_len: int, reservation: Literal["max", "pow2", "oracle"] = "max"
) -> float:
    """Percent of a buddy system's pool that stays outside of reservations when no more fit."""
    pool = Pool(Contiguous(reservation, "buddy"), num_slots, max_model_len)
    while pool.admit(pool.open(1, max_model_len - 1)) is Admission.OK:
        pass
    usage = pool.allocator.usage()
    return 100 * (usage.external + usage.free) / num_slots
