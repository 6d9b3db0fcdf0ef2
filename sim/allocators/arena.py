"""Compiled operations of the arena family: sequences reserve one range each, cut out of holes.

Where a range goes, and how holes are kept, is sim.allocators.holes' business.
"""

from __future__ import annotations

from sim.allocators.base import BoolArray
from sim.allocators.holes import (
    LARGEST,
    NUM_HOLE_CELLS,
    NUM_HOLES,
    find_hole,
    give_back,
    piece_slots,
    take,
)
from sim.allocators.terms import EXTERNAL, FREE, NUM_RECORDED, RESERVED, TOKEN_STATES, resize_row
from sim.jit import compiled
from sim.sequence import (
    FINAL_TOKENS,
    MAX_FINAL_TOKENS,
    NUM_COMPUTED,
    NUM_SLOTS,
    PROMPT_TOKENS,
    IntArray,
)

# cells of the arena's state, after those of the holes
GRANULARITY = NUM_HOLE_CELLS
RESERVATION = NUM_HOLE_CELLS + 1
MAX_MODEL_LEN = NUM_HOLE_CELLS + 2
COMPACTS = NUM_HOLE_CELLS + 3  # whether ranges may be moved to make one hole of several
NUM_COMPACTIONS = NUM_HOLE_CELLS + 4
NUM_COPIED = NUM_HOLE_CELLS + 5  # tokens whose KV compaction has copied
NUM_CELLS = NUM_HOLE_CELLS + 6

# how much a sequence reserves
RESERVATIONS = {"max": 0, "pow2": 1, "oracle": 2, "max_tokens": 3}
_MAX, _POW2, _ORACLE, _MAX_TOKENS = range(4)


@compiled
def reservation_slots(arena: IntArray, sequences: IntArray, row: int) -> int:
    """Slots a row reserves, a multiple of the granularity.

    pow2 is the prompt and the next power of two of the output (Orca (Pow2) in the PagedAttention
    paper, §6.1); no reservation is longer than max_model_len.
    """
    rule = arena[RESERVATION]
    slots: int
    if rule == _MAX:
        slots = arena[MAX_MODEL_LEN]
    elif rule == _POW2:
        prompt = sequences[row, PROMPT_TOKENS]
        power = 1
        while power < sequences[row, FINAL_TOKENS] - prompt:
            power *= 2
        slots = min(prompt + power, arena[MAX_MODEL_LEN])
    elif rule == _ORACLE:
        slots = sequences[row, FINAL_TOKENS]
    else:
        slots = sequences[row, MAX_FINAL_TOKENS]
    granularity: int = arena[GRANULARITY]
    return (slots + granularity - 1) // granularity * granularity


@compiled
def has_room(arena: IntArray, holes: IntArray, size: int) -> bool:
    """Whether a range of size slots fits now, compaction permitting."""
    if arena[COMPACTS]:
        suffices: bool = arena[FREE] >= size
        return suffices
    return find_hole(arena, holes, piece_slots(arena, size)) >= 0


@compiled
def admission(arena: IntArray, holes: IntArray, sequences: IntArray, row: int) -> int:
    """0 if the row's reservation fits into a hole, 1 if later, 2 if never."""
    size = reservation_slots(arena, sequences, row)
    if piece_slots(arena, size) > arena[LARGEST]:
        return 2
    return 0 if has_room(arena, holes, size) else 1


@compiled
def exceed_arena(arena: IntArray, requests: IntArray, answer: BoolArray) -> None:
    """answer[i]: whether the reservation of requests[i] is larger than an empty arena can give."""
    for i in range(len(requests)):
        size = reservation_slots(arena, requests, i)
        answer[i] = piece_slots(arena, size) > arena[LARGEST]


@compiled
def is_fragmented(arena: IntArray, holes: IntArray, sequences: IntArray, row: int) -> bool:
    """Whether the holes together, but none of them alone, would hold the row's reservation."""
    size = reservation_slots(arena, sequences, row)
    return arena[FREE] >= size and not has_room(arena, holes, size)


@compiled
def compact(
    arena: IntArray, sequences: IntArray, holes: IntArray, starts: IntArray, size: int
) -> None:
    """Slide the lowest ranges down until the holes between them are one of at least size slots.

    The holes together must suffice. What is written in a range that moves is copied.
    """
    gathered = 0
    last = -1
    while gathered < size:
        last += 1
        gathered += holes[last, 1]
    for row in range(len(starts)):
        if sequences[row, NUM_SLOTS] == 0 or starts[row] >= holes[last, 0]:
            continue
        shift = 0
        for i in range(last):
            if holes[i, 0] < starts[row]:
                shift += holes[i, 1]
        if shift > 0:
            starts[row] -= shift
            arena[NUM_COPIED] += sequences[row, NUM_COMPUTED]
    holes[0, 0] = holes[last, 0] + holes[last, 1] - gathered
    holes[0, 1] = gathered
    for i in range(1, arena[NUM_HOLES] - last):
        holes[i, 0] = holes[last + i, 0]
        holes[i, 1] = holes[last + i, 1]
    arena[NUM_HOLES] -= last
    arena[NUM_COMPACTIONS] += 1


@compiled
def place(
    arena: IntArray, sequences: IntArray, holes: IntArray, starts: IntArray, row: int, size: int
) -> bool:
    """Give the row a range of size slots; False, and nothing changed, if there is no room.

    What a buddy system rounds up is nobody's to use: external.
    """
    piece = piece_slots(arena, size)
    hole = find_hole(arena, holes, piece)
    if hole < 0:
        if not arena[COMPACTS] or arena[FREE] < piece:
            return False
        compact(arena, sequences, holes, starts, piece)
        hole = find_hole(arena, holes, piece)
    starts[row] = take(arena, holes, hole, piece)
    arena[EXTERNAL] += piece - size
    arena[FREE] -= piece - size
    return True


@compiled
def append(
    arena: IntArray,
    sequences: IntArray,
    holes: IntArray,
    starts: IntArray,
    rows: IntArray,
    counts: IntArray,
) -> int:
    """Write counts[i] tokens for rows[i]; a row that holds nothing takes its reservation first.

    Returns how many rows were served before one found no hole, or had no slot left in its
    reservation: a reservation does not grow.
    """
    for i in range(len(rows)):
        row = rows[i]
        written = sequences[row, NUM_COMPUTED] + counts[i]
        num_slots = sequences[row, NUM_SLOTS]
        if num_slots == 0 and written > 0:
            num_slots = reservation_slots(arena, sequences, row)
            if written > num_slots or not place(arena, sequences, holes, starts, row, num_slots):
                return i
        elif written > num_slots:
            return i
        resize_row(arena, sequences, row, written, num_slots)
    return len(rows)


@compiled
def can_append(sequences: IntArray, rows: IntArray, num_iterations: int) -> int:
    """How many of num_iterations iterations stay within every row's reservation."""
    for i in range(len(rows)):
        row = rows[i]
        room = sequences[row, NUM_SLOTS] - sequences[row, NUM_COMPUTED]
        num_iterations = min(num_iterations, room)
    return num_iterations


@compiled
def append_ahead(
    arena: IntArray, sequences: IntArray, rows: IntArray, num_iterations: int, log: IntArray
) -> None:
    """num_iterations iterations of one token a row, within the reservations.

    A sequence that decodes has its next token reserved, so a token only changes its column.
    """
    num_rows = len(rows)
    for k in range(num_rows):
        sequences[rows[k], NUM_COMPUTED] += num_iterations
    for i in range(num_iterations):
        arena[TOKEN_STATES] += num_rows
        arena[RESERVED] -= num_rows
        for j in range(NUM_RECORDED):
            log[i, j] = arena[j]


@compiled
def free(
    arena: IntArray,
    sequences: IntArray,
    holes: IntArray,
    starts: IntArray,
    rows: IntArray,
) -> None:
    """Return the rows' reservations to the arena."""
    for i in range(len(rows)):
        row = rows[i]
        num_slots = sequences[row, NUM_SLOTS]
        if num_slots > 0:
            piece = piece_slots(arena, num_slots)
            give_back(arena, holes, starts[row], piece)
            arena[EXTERNAL] -= piece - num_slots
            arena[FREE] += piece - num_slots
        resize_row(arena, sequences, row, 0, 0)
