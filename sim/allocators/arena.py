"""Compiled operations of the arena family: one range of slots, holes in order of address.

holes[i] is (start, size) of the i-th hole; the first arena[NUM_HOLES] rows are in use. Holes
never touch each other: a freed range is merged with its neighbours.
"""

from __future__ import annotations

from sim.allocators.base import FREE, NUM_TERMS, RESERVED, TOKEN_STATES, BoolArray, resize_row
from sim.jit import compiled
from sim.sequence import (
    FINAL_TOKENS,
    MAX_FINAL_TOKENS,
    NUM_COMPUTED,
    NUM_SLOTS,
    PROMPT_TOKENS,
    IntArray,
)

# cells of the arena's state, after the conservation terms
NUM_HOLES, SIZE, GRANULARITY, RESERVATION, MAX_MODEL_LEN = range(NUM_TERMS, NUM_TERMS + 5)
NUM_CELLS = NUM_TERMS + 5

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
def first_fit(arena: IntArray, holes: IntArray, size: int) -> int:
    """Index of the lowest hole of at least size slots; -1 if there is none."""
    for i in range(arena[NUM_HOLES]):
        if holes[i, 1] >= size:
            return i
    return -1


@compiled
def admission(arena: IntArray, holes: IntArray, sequences: IntArray, row: int) -> int:
    """0 if the row's reservation fits into a hole, 1 if later, 2 if never."""
    size = reservation_slots(arena, sequences, row)
    if size > arena[SIZE]:
        return 2
    return 0 if first_fit(arena, holes, size) >= 0 else 1


@compiled
def exceed_arena(arena: IntArray, requests: IntArray, answer: BoolArray) -> None:
    """answer[i]: whether the reservation of requests[i] is larger than the whole arena."""
    for i in range(len(requests)):
        answer[i] = reservation_slots(arena, requests, i) > arena[SIZE]


@compiled
def is_fragmented(arena: IntArray, holes: IntArray, sequences: IntArray, row: int) -> bool:
    """Whether the holes together, but none of them alone, would hold the row's reservation."""
    size = reservation_slots(arena, sequences, row)
    return arena[FREE] >= size and first_fit(arena, holes, size) < 0


@compiled
def take(arena: IntArray, holes: IntArray, hole: int, size: int) -> int:
    """Cut size slots off the low end of a hole; return where they start."""
    start: int = holes[hole, 0]
    holes[hole, 0] += size
    holes[hole, 1] -= size
    if holes[hole, 1] == 0:
        arena[NUM_HOLES] -= 1
        for i in range(hole, arena[NUM_HOLES]):
            holes[i, 0] = holes[i + 1, 0]
            holes[i, 1] = holes[i + 1, 1]
    return start


@compiled
def give_back(arena: IntArray, holes: IntArray, start: int, size: int) -> None:
    """Make [start, start + size) a hole again, merged with the holes that touch it."""
    num_holes = arena[NUM_HOLES]
    low, high = 0, num_holes
    while low < high:
        middle = (low + high) // 2
        if holes[middle, 0] < start:
            low = middle + 1
        else:
            high = middle
    joins_left = low > 0 and holes[low - 1, 0] + holes[low - 1, 1] == start
    joins_right = low < num_holes and start + size == holes[low, 0]
    if joins_left and joins_right:
        holes[low - 1, 1] += size + holes[low, 1]
        for i in range(low, num_holes - 1):
            holes[i, 0] = holes[i + 1, 0]
            holes[i, 1] = holes[i + 1, 1]
        arena[NUM_HOLES] = num_holes - 1
    elif joins_left:
        holes[low - 1, 1] += size
    elif joins_right:
        holes[low, 0] = start
        holes[low, 1] += size
    else:
        for i in range(num_holes, low, -1):
            holes[i, 0] = holes[i - 1, 0]
            holes[i, 1] = holes[i - 1, 1]
        holes[low, 0] = start
        holes[low, 1] = size
        arena[NUM_HOLES] = num_holes + 1


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
            hole = first_fit(arena, holes, num_slots)
            if written > num_slots or hole < 0:
                return i
            starts[row] = take(arena, holes, hole, num_slots)
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
        for j in range(NUM_TERMS):
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
            give_back(arena, holes, starts[row], num_slots)
        resize_row(arena, sequences, row, 0, 0)
