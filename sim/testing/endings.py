"""What must hold of an allocator after a history, and of its `check`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sim.allocators.base import Admission, Allocator
from sim.allocators.checked import require
from sim.allocators.terms import FREE, RESERVED, ConservationError
from sim.sequence import NUM_SLOTS, NUM_TOKENS, Limits, SequenceTable, new_requests
from sim.testing.history import History

MOST = 450  # requests that fill a pool


def check_as_new(history: History) -> None:
    """An emptied pool takes as many requests as one that was never used; so does one bound anew."""
    kind = history.fast.kind
    if history.fast.num_blocks is None:
        return  # how many fit depends on where the holes are
    history.fast.free(np.array(history.running))
    new = filled(history.unused)
    for number in range(MOST):
        history.contents[0].begin(0, 0, request=number)  # what nobody has asked for before
    used = filled(history.fast.inner)
    require(used == new, f"{kind}: an emptied pool takes {used} requests, an unused one {new}")
    history.slow.bind(history.fast.num_slots, SequenceTable(), history.max_model_len)
    again = filled(history.slow.inner)
    require(again == new, f"{kind}: bound again, a pool takes {again} requests, at first {new}")


def filled(allocator: Allocator) -> int:
    """How many short requests an empty pool takes until one does not fit."""
    lengths = 1 + 7 * np.arange(MOST) % 5
    outputs = np.ones(MOST, np.int64)
    limits = Limits(allocator.max_model_len, outputs)
    requests = new_requests(np.zeros(MOST, np.int64), lengths, outputs, limits)
    for number, length in enumerate(lengths.tolist()):
        row = allocator.sequences.open(requests, number)
        if allocator.admit(row, length - allocator.lookup(row)) is not Admission.OK:
            return number
    return MOST


def check_exact_fits(history: History) -> None:
    """Requests about as long as the pool, one by one: none of them waits in an empty one."""
    longest = min(history.fast.num_slots + 1, history.max_model_len - 1)
    for prompt in range(max(1, history.fast.num_slots - 5), longest + 1):
        history.arrive(prompt, 1, 0, prompt)
        history.free_everything()


def check_failed_append(factory: Callable[[], Allocator]) -> None:
    """An append that finds too little memory takes none of it: others find all that there was."""
    allocator = factory()
    try:
        allocator.bind(150, SequenceTable(), 130)
    except ValueError:
        return
    lengths, outputs = np.ones(MOST, np.int64), np.full(MOST, 120)
    requests = new_requests(0 * lengths, lengths, outputs, Limits(130, outputs))
    rows: list[int] = []
    for number in range(MOST):
        rows.append(allocator.sequences.open(requests, number))
        if allocator.admit(rows[-1], 1) is not Admission.OK:
            break
    *rows, waiting = rows
    if len(rows) < 2:
        return  # all is taken at admission
    allocator.free(np.array(rows[-1:]))
    before = allocator.can_allocate(waiting)
    allocator.sequences.rows[rows[0], NUM_TOKENS] += 100
    if allocator.append(np.array(rows[:1]), np.array([100])) == 0:
        after = allocator.can_allocate(waiting)
        rule = "a failed append of 100 tokens keeps memory: can_allocate answers"
        require(before == after, f"{allocator.kind}: {rule} {before!r} before, {after!r} after")


def check_check(factory: Callable[[], Allocator]) -> None:
    """`check` raises for terms that are wrong, and for a row that it is not told of."""
    try:
        history = History(factory, 150, 40)
    except ValueError:
        return
    for prompt in (7, 5):
        history.arrive(prompt, 3, 0, prompt)
    allocator = history.fast.inner
    rows = np.flatnonzero(allocator.sequences.rows[:, NUM_SLOTS])
    allocator.terms[[FREE, RESERVED]] += [-1, 1]
    is_found = _finds(allocator, rows)
    allocator.terms[[FREE, RESERVED]] -= [-1, 1]
    require(is_found, f"{allocator.kind}: check says nothing when a slot is counted elsewhere")
    is_found = len(rows) == 0 or _finds(allocator, rows[:-1])
    require(is_found, f"{allocator.kind}: check says nothing when it is not told of a row")


def _finds(allocator: Allocator, rows: np.ndarray) -> bool:
    try:
        allocator.check(rows)
    except ConservationError:
        return True
    return False
