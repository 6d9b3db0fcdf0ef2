"""Compiled operations of page-backed virtual memory: pages stay mapped to the seats of a batch.

A seat is a place in the batch dimension of the virtual tensors, which has addresses for the longest
sequence. A block is one page of each tensor, mapped together at the same offset of a seat.

seats[seat]   the row that sits there, the blocks that it needs, the blocks that are mapped
pages[seat]   ids of the mapped blocks, in order of address; needed ones come first
seat_of[row]  the row's seat
unmapped      a stack, whose first pool[NUM_UNMAPPED] entries are the blocks that nobody maps

What is mapped and not needed is free: it is taken from seats when somebody lacks blocks, the last
seat first. pool[NUM_FREE] counts it, too.
"""

from __future__ import annotations

from sim.allocators.blocks import BLOCK_SIZE, NUM_FREE, BlockIds, admission, blocks_for
from sim.allocators.blocks import NUM_CELLS as NUM_BLOCK_CELLS
from sim.allocators.terms import NUM_RECORDED, resize_row
from sim.jit import compiled
from sim.sequence import NUM_COMPUTED, NUM_SLOTS, NUM_TOKENS, IntArray

# cells of the pool's state, after those of every block pool
NUM_UNMAPPED, DEFERS, MAPS_AHEAD = range(NUM_BLOCK_CELLS, NUM_BLOCK_CELLS + 3)
NUM_TAKEN, NUM_MAPS, NUM_MAPS_AHEAD, NUM_UNMAPS = range(NUM_BLOCK_CELLS + 3, NUM_BLOCK_CELLS + 7)
NUM_CELLS = NUM_BLOCK_CELLS + 7

# columns of seats
ROW, NEEDED, MAPPED = range(3)
NUM_COLUMNS = 3
NOBODY = -1


@compiled
def find_seat(seats: IntArray, need: int) -> int:
    """The empty seat for a row that needs so many blocks at first.

    The first one, unless a later one has enough blocks and fewer than it (alloc_new_batch_idx).
    """
    best = NOBODY
    for seat in range(len(seats)):
        if seats[seat, ROW] != NOBODY:
            continue
        mapped = seats[seat, MAPPED]
        if best == NOBODY or need <= mapped < seats[best, MAPPED]:
            best = seat
    return best


@compiled
def unmap_surplus(
    pool: IntArray, seats: IntArray, pages: BlockIds, unmapped: BlockIds, seat: int
) -> None:
    """Unmap all blocks of a seat that its row does not need, the last one first."""
    while seats[seat, MAPPED] > seats[seat, NEEDED]:
        seats[seat, MAPPED] -= 1
        unmapped[pool[NUM_UNMAPPED]] = pages[seat, seats[seat, MAPPED]]
        pool[NUM_UNMAPPED] += 1
        pool[NUM_UNMAPS] += 1


@compiled
def map_block(
    pool: IntArray, seats: IntArray, pages: BlockIds, unmapped: BlockIds, seat: int
) -> None:
    """Map one block more to a seat; there is one that nobody maps."""
    pool[NUM_UNMAPPED] -= 1
    pages[seat, seats[seat, MAPPED]] = unmapped[pool[NUM_UNMAPPED]]
    seats[seat, MAPPED] += 1
    pool[NUM_MAPS] += 1


@compiled
def take(
    pool: IntArray, seats: IntArray, pages: BlockIds, unmapped: BlockIds, seat: int, count: int
) -> None:
    """Let the row of a seat need count blocks more; pool[NUM_FREE] says that there are so many."""
    seats[seat, NEEDED] += count
    pool[NUM_FREE] -= count
    pool[NUM_TAKEN] += count
    lacks = seats[seat, NEEDED] - seats[seat, MAPPED]
    other = len(seats) - 1
    while pool[NUM_UNMAPPED] < lacks:
        unmap_surplus(pool, seats, pages, unmapped, other)
        other -= 1
    for _ in range(lacks):
        map_block(pool, seats, pages, unmapped, seat)


@compiled
def write(
    pool: IntArray,
    sequences: IntArray,
    seat_of: IntArray,
    seats: IntArray,
    pages: BlockIds,
    unmapped: BlockIds,
    row: int,
    count: int,
) -> bool:
    """Write count tokens for a row; False, and nothing changed, if there are too few blocks.

    The block of the token after them is mapped already, if nobody else maps one.
    """
    size = pool[BLOCK_SIZE]
    written = sequences[row, NUM_COMPUTED] + count
    held = sequences[row, NUM_SLOTS] // size
    need = max(blocks_for(written, size), held)
    if need - held > pool[NUM_FREE]:
        return False
    if held == 0 and need > 0:
        seat_of[row] = find_seat(seats, need)
        seats[seat_of[row], ROW] = row
    if need > held:
        take(pool, seats, pages, unmapped, seat_of[row], need - held)
    resize_row(pool, sequences, row, written, need * size)
    if pool[MAPS_AHEAD] and count > 0 and written == need * size and pool[NUM_UNMAPPED] > 0:
        seat = seat_of[row]
        if seats[seat, MAPPED] == need and need < pages.shape[1]:
            map_block(pool, seats, pages, unmapped, seat)
            pool[NUM_MAPS_AHEAD] += 1
    return True


@compiled
def admit(
    pool: IntArray,
    sequences: IntArray,
    seat_of: IntArray,
    seats: IntArray,
    pages: BlockIds,
    unmapped: BlockIds,
    row: int,
    count: int,
) -> int:
    """admission for all of the row's tokens and, if they fit, write count of them."""
    verdict = admission(pool, sequences[row, NUM_TOKENS])
    if verdict == 0:
        write(pool, sequences, seat_of, seats, pages, unmapped, row, count)
    return verdict


@compiled
def append(
    pool: IntArray,
    sequences: IntArray,
    seat_of: IntArray,
    seats: IntArray,
    pages: BlockIds,
    unmapped: BlockIds,
    rows: IntArray,
    counts: IntArray,
) -> int:
    """Write counts[i] tokens for rows[i] in order; return how many rows got their blocks."""
    for i in range(len(rows)):
        if not write(pool, sequences, seat_of, seats, pages, unmapped, rows[i], counts[i]):
            return i
    return len(rows)


@compiled
def append_ahead(
    pool: IntArray,
    sequences: IntArray,
    seat_of: IntArray,
    seats: IntArray,
    pages: BlockIds,
    unmapped: BlockIds,
    rows: IntArray,
    num_iterations: int,
    log: IntArray,
) -> None:
    """num_iterations iterations of one token a row, known to succeed."""
    for i in range(num_iterations):
        for k in range(len(rows)):
            write(pool, sequences, seat_of, seats, pages, unmapped, rows[k], 1)
        for j in range(NUM_RECORDED):
            log[i, j] = pool[j]


@compiled
def free(
    pool: IntArray,
    sequences: IntArray,
    seat_of: IntArray,
    seats: IntArray,
    pages: BlockIds,
    unmapped: BlockIds,
    rows: IntArray,
) -> None:
    """The rows leave their seats. Their blocks stay mapped there, unless reclaimed at once."""
    for i in range(len(rows)):
        row = rows[i]
        held = sequences[row, NUM_SLOTS] // pool[BLOCK_SIZE]
        if held > 0:
            seat = seat_of[row]
            seats[seat, ROW], seats[seat, NEEDED] = NOBODY, 0
            pool[NUM_FREE] += held
            if not pool[DEFERS]:
                unmap_surplus(pool, seats, pages, unmapped, seat)
        resize_row(pool, sequences, row, 0, 0)
