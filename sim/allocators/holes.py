"""Compiled operations on the holes of an arena: finding one, cutting it, giving a range back.

holes[i] is (start, size) of the i-th hole in order of address; the first arena[NUM_HOLES] rows
are in use. Without a buddy system holes never touch each other: a freed range is merged with its
neighbours. In a buddy system every hole is a power of two, aligned to its size, and only the two
halves of one block are merged.

Placements, after Knuth (The Art of Computer Programming, volume 1, section 2.5): first_fit takes
the lowest hole that is large enough, best_fit the smallest (the lowest of equals), next_fit the
first one behind the place where it last placed something, and from the bottom if there is none
above. buddy is best fit among powers of two, halving what is too large.
"""

from __future__ import annotations

from sim.allocators.terms import NUM_RECORDED
from sim.jit import compiled
from sim.sequence import IntArray

# cells of the arena's state, after what is recorded
NUM_HOLES = NUM_RECORDED
SIZE = NUM_RECORDED + 1  # slots that can be given away at all
LARGEST = NUM_RECORDED + 2  # the largest range that an empty arena can give
PLACEMENT = NUM_RECORDED + 3
ROVER = NUM_RECORDED + 4  # where the last placed range ends: next_fit goes on from there
MIN_BLOCK = NUM_RECORDED + 5  # slots of a buddy system's smallest block
NUM_PLACED = NUM_RECORDED + 6
NUM_INSPECTED = NUM_RECORDED + 7  # holes looked at for the placed ones
NUM_HOLE_CELLS = NUM_RECORDED + 8

PLACEMENTS = {"buddy": 0, "first_fit": 1, "best_fit": 2, "next_fit": 3}
_BUDDY, _FIRST_FIT, _BEST_FIT, _NEXT_FIT = range(4)


@compiled
def piece_slots(arena: IntArray, size: int) -> int:
    """Slots that leave the holes for a range of size slots: all of its block in a buddy system."""
    if arena[PLACEMENT] != _BUDDY:
        return size
    block: int = arena[MIN_BLOCK]
    while block < size:
        block *= 2
    return block


@compiled
def _behind_rover(arena: IntArray, holes: IntArray) -> int:
    """Index of the first hole that ends behind the rover; 0 if there is none."""
    for i in range(arena[NUM_HOLES]):
        if holes[i, 0] + holes[i, 1] > arena[ROVER]:
            return i
    return 0


@compiled
def find_hole(arena: IntArray, holes: IntArray, piece: int) -> int:
    """Index of the hole that the placement chooses for piece slots; -1 if none is large enough."""
    num_holes = arena[NUM_HOLES]
    placement = arena[PLACEMENT]
    if placement in (_FIRST_FIT, _NEXT_FIT):
        first = _behind_rover(arena, holes) if placement == _NEXT_FIT else 0
        for k in range(num_holes):
            i: int = (first + k) % num_holes
            if holes[i, 1] >= piece:
                return i
        return -1
    best = -1
    for i in range(num_holes):
        if holes[i, 1] >= piece and (best < 0 or holes[i, 1] < holes[best, 1]):
            best = i
    return best


@compiled
def num_inspected(arena: IntArray, holes: IntArray, hole: int, piece: int) -> int:
    """Holes that the search for piece slots looks at until it has found hole.

    A buddy system keeps a list for every power of two and looks at lists, from the one of the
    block's own size up.
    """
    num_holes: int = arena[NUM_HOLES]
    placement = arena[PLACEMENT]
    if placement == _FIRST_FIT:
        return hole + 1
    if placement == _BEST_FIT:
        return num_holes
    if placement == _NEXT_FIT:
        return (hole - _behind_rover(arena, holes)) % num_holes + 1
    lists = 1
    while piece < holes[hole, 1]:
        piece *= 2
        lists += 1
    return lists


@compiled
def _remove(arena: IntArray, holes: IntArray, hole: int) -> None:
    arena[NUM_HOLES] -= 1
    for i in range(hole, arena[NUM_HOLES]):
        holes[i, 0] = holes[i + 1, 0]
        holes[i, 1] = holes[i + 1, 1]


@compiled
def _insert(arena: IntArray, holes: IntArray, hole: int, start: int, size: int) -> None:
    for i in range(arena[NUM_HOLES], hole, -1):
        holes[i, 0] = holes[i - 1, 0]
        holes[i, 1] = holes[i - 1, 1]
    holes[hole, 0] = start
    holes[hole, 1] = size
    arena[NUM_HOLES] += 1


@compiled
def take(arena: IntArray, holes: IntArray, hole: int, piece: int) -> int:
    """Cut piece slots off the low end of a hole; return where they start."""
    arena[NUM_PLACED] += 1
    arena[NUM_INSPECTED] += num_inspected(arena, holes, hole, piece)
    start: int = holes[hole, 0]
    if arena[PLACEMENT] == _BUDDY:
        while holes[hole, 1] > piece:  # halve it; the upper half stays
            holes[hole, 1] //= 2
            _insert(arena, holes, hole + 1, start + holes[hole, 1], holes[hole, 1])
    holes[hole, 0] += piece
    holes[hole, 1] -= piece
    arena[ROVER] = holes[hole, 0]
    if holes[hole, 1] == 0:
        _remove(arena, holes, hole)
    return start


@compiled
def give_back(arena: IntArray, holes: IntArray, start: int, piece: int) -> None:
    """Make [start, start + piece) a hole again, and merge it with what it may merge with."""
    low, high = 0, arena[NUM_HOLES]
    while low < high:
        middle = (low + high) // 2
        if holes[middle, 0] < start:
            low = middle + 1
        else:
            high = middle
    _insert(arena, holes, low, start, piece)
    if arena[PLACEMENT] == _BUDDY:
        _merge_buddies(arena, holes, low)
        return
    for left in (low, low - 1):
        right = left + 1
        if left < 0 or right >= arena[NUM_HOLES]:
            continue
        if holes[left, 0] + holes[left, 1] == holes[right, 0]:
            holes[left, 1] += holes[right, 1]
            _remove(arena, holes, right)


@compiled
def _merge_buddies(arena: IntArray, holes: IntArray, hole: int) -> None:
    """Join a hole with the other half of its block as long as that one is free, too."""
    while holes[hole, 1] < arena[LARGEST]:
        size = holes[hole, 1]
        is_upper = holes[hole, 0] // size % 2 == 1
        lower = hole - 1 if is_upper else hole
        upper = lower + 1
        if lower < 0 or upper >= arena[NUM_HOLES]:
            return
        if holes[lower, 1] != holes[upper, 1] or holes[lower, 0] + size != holes[upper, 0]:
            return
        holes[lower, 1] = 2 * size
        _remove(arena, holes, upper)
        hole = lower
