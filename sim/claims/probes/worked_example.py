"""Three requests in a small pool, and what contiguous and paged memory make of them.

The blog post's example: lengths of 25, 47 and 12 tokens, a longest sequence of 2,048, blocks of 16.
Every number is read from the allocators that experiments run with.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sim.allocators import Admission
from sim.claims.probes.pools import Pool, histories, made, made_of
from sim.claims.probes.results import Vacuous

Lengths = list[int]


def _entered(pool: Pool, lengths: Lengths) -> list[int]:
    """The rows of requests with these prompts. Raises ValueError if one does not fit."""
    rows = [pool.enter(length) for length in lengths]
    if None in rows:
        raise ValueError(f"lengths: {lengths} do not all fit into the pool")
    return [row for row in rows if row is not None]


def _contiguous(lengths: Lengths, max_len: int) -> Pool:
    """As many reservations of the longest sequence as there are requests."""
    pool = Pool(made("contiguous", reservation="max"), len(lengths) * max_len, max_len)
    _entered(pool, lengths)
    return pool


def _paged(lengths: Lengths, block_size: int, pool_blocks: int) -> Pool:
    pool = Pool(made("paged", block_size=block_size), block_size * pool_blocks, 2048)
    _entered(pool, lengths)
    return pool


def never_filled_slots(lengths: Lengths, max_len: int) -> int:
    """Slots reserved for the longest sequence that their holders will never write."""
    return _contiguous(lengths, max_len).allocator.usage().internal


def reserved_and_filled(lengths: Lengths, max_len: int) -> dict[str, int]:
    """Slots that reservations of the longest sequence take, and tokens in them."""
    pool = _contiguous(lengths, max_len)
    reserved = sum(pool.num_slots(row) for row in pool.held)
    return {"reserved": reserved, "filled": pool.allocator.usage().token_states}


def contiguous_beside_paged(lengths: Lengths, max_len: int, block_size: int) -> dict[str, float]:
    """Slots held by reservations of the longest sequence and by blocks, and their ratio."""
    reserved = reserved_and_filled(lengths, max_len)
    paged = _paged(lengths, block_size, 64)
    held = sum(paged.num_slots(row) for row in paged.held)
    return {
        "contiguous": reserved["reserved"],
        "tokens": paged.allocator.usage().token_states,
        "paged": held,
        "ratio": reserved["reserved"] / held,
    }


def wasted_percent(lengths: Lengths, max_len: int) -> float:
    """Share of the reserved slots that hold no token."""
    found = reserved_and_filled(lengths, max_len)
    return 100 * (1 - found["filled"] / found["reserved"])


def blocks_and_padding(lengths: Lengths, block_size: int, pool_blocks: int) -> dict[str, Any]:
    """Length of each block table, slots without a token behind each, and their share."""
    pool = _paged(lengths, block_size, pool_blocks)
    padding = [pool.waste(row) for row in pool.held]
    held = sum(pool.num_slots(row) for row in pool.held)
    return {
        "blocks": [len(pool.allocator.held_ranges(row)) for row in pool.held],
        "padding": padding,
        "waste": sum(padding),
        "waste_frac": sum(padding) / held,
    }


def free_blocks(lengths: Lengths, block_size: int, pool_blocks: int) -> int:
    """Blocks that are left when all of the requests are in."""
    return _paged(lengths, block_size, pool_blocks).allocator.usage().free // block_size


def admitted_beside(lengths: Lengths, block_size: int, pool_blocks: int, length: int) -> int:
    """Further requests of one length that fit beside the others."""
    pool = _paged(lengths, block_size, pool_blocks)
    while pool.enter(length) is not None:
        pass
    return len(pool.held) - len(lengths)


def reservations_that_fit(pool_slots: int, max_len: int) -> int | Vacuous:
    """Reservations of the longest sequence in an empty pool; vacuous if it is below one."""
    pool = Pool(made("contiguous", reservation="max"), pool_slots, max_len)
    if pool.allocator.can_allocate(pool.open(1, 1)) == Admission.NEVER:
        why = f"a pool of {pool_slots:,} slots never has room for {max_len:,}, full or empty"
        return Vacuous(0, why)
    while pool.enter(1) is not None:
        pass
    return len(pool.held)


def blocks_after_growth(length: int, extra: int, block_size: int) -> int:
    """Blocks of a request after extra generated tokens have been written behind its prompt."""
    pool = Pool(made("paged", block_size=block_size), 64 * block_size, 2048)
    row = pool.enter(length, extra + 1)
    if row is None or not all(pool.write(row, 1) for _ in range(extra)):
        raise ValueError(f"length: {length} + {extra} tokens do not fit")
    return len(pool.allocator.held_ranges(row))


def lookups_and_waste(length: int, block_sizes: list[int]) -> dict[str, list[int]]:
    """Entries of the block table of a request, and its unfilled slots, by block size."""
    found = {}
    for size in block_sizes:
        pool = _paged([length], size, 64)
        row = pool.held[0]
        found[str(size)] = [len(pool.allocator.held_ranges(row)), pool.waste(row)]
    return found


def is_admitted_between(holes: list[int], request: int, placement: str = "first_fit") -> bool:
    """Whether a request is admitted where these holes are all that is free.

    Neighbours are kept apart by requests of 100 slots that stay.
    """
    knobs = {"reservation": "oracle", "placement": placement}
    pool = Pool(made("contiguous", **knobs), sum(holes) + 100 * len(holes), request)
    gone = []
    for hole in holes:
        gone += _entered(pool, [hole - 1])  # the reservation has a slot for the output, too
        _entered(pool, [99])
    for row in gone:
        pool.leave(row)
    if pool.allocator.usage().free != sum(holes):
        raise ValueError(f"holes: {holes} are not what is free")
    return pool.enter(request - 1) is not None


def worst_hole_slots(
    num_slots: int, max_len: int, allocator: Mapping[str, Any], seeds: int = 5, steps: int = 400
) -> int:
    """The most slots in holes that no whole reservation of max_len fits into, ever.

    Without the remainder of the pool, which makes no reservation wherever it lies. Requests of
    random lengths come and go.
    """
    worst = 0
    for rng, left in histories(seeds, steps):
        pool = Pool(made_of(allocator), num_slots, max_len)
        for _ in range(left):
            if pool.held and rng.random() < 0.45:
                pool.leave(rng.choice(pool.held))
            else:
                prompt = rng.randint(1, max_len - 2)
                pool.enter(prompt, rng.randint(1, max_len - prompt))
            lost = sum(size % max_len for _, size in pool.allocator.holes().tolist())  # type: ignore[attr-defined]
            worst = max(worst, lost - num_slots % max_len)
        pool.check()
    return worst


def worst_padding(
    block_size: int, max_lens: list[int], allocator: str = "paged", seeds: int = 5
) -> dict[str, int]:
    """The most slots that a sequence ever holds without a token, by the longest sequence.

    Sequences come, grow token by token and in chunks, and go at random.
    """
    found = {}
    for max_len in max_lens:
        worst = 0
        for rng, steps in histories(seeds, 300):
            pool = Pool(_sized(allocator, block_size), 8 * max_len, max_len)
            for _ in range(steps):
                _live(pool, rng.random(), rng.randint(1, max_len // 2), max_len)
                worst = max([worst, *(pool.waste(row) for row in pool.held)])
            pool.check()
        found[f"longest {max_len}"] = worst
    return found


def _sized(kind: str, block_size: int) -> Any:
    return made(kind) if kind == "contiguous" else made(kind, block_size=block_size)


def _live(pool: Pool, choice: float, count: int, max_len: int) -> None:
    """One step of a random history: a request comes, grows or goes."""
    if not pool.held or choice < 0.4:
        pool.enter(count, max_len - count)
        return
    row = pool.held[int(choice * 1e6) % len(pool.held)]
    room = max_len - 1 - pool.num_tokens(row)
    if choice < 0.85 and room > 0:
        pool.write(row, min(count if choice < 0.6 else 1, room))
    else:
        pool.leave(row)
