"""What no history of an allocator may show: waste beyond a block, free slots of no use."""

from __future__ import annotations

import random

from sim.allocators.base import Admission, Allocator
from sim.allocators.contiguous import Contiguous
from sim.allocators.paged import Paged
from sim.allocators.terms import FREE
from sim.claims.probes.pools import Pool
from sim.sequence import FINAL_TOKENS, NUM_COMPUTED, NUM_SLOTS

NUM_STEPS = 120  # of a history
NUM_SEEDS = 2
LONGEST_IN_POOL = 4  # sequences of the longest kind that the pool would hold


def largest_waste(
    block_sizes: list[int], max_model_lens: list[int], allocator: str = "paged"
) -> dict[str, int]:
    """Most slots that any sequence holds and has not written, by block size, over histories."""
    worst = {}
    for block_size in block_sizes:
        found = 0
        for longest in max_model_lens:
            for seed in range(NUM_SEEDS):
                history = History(allocator, block_size, longest, seed)
                for _ in range(NUM_STEPS):
                    history.step()
                    found = max(found, history.waste())
        worst[str(block_size)] = found
    return worst


def waste_is_below_a_block(
    block_sizes: list[int], max_model_lens: list[int], allocator: str = "paged"
) -> dict[str, bool]:
    """Whether largest_waste is at most a block less one slot, by block size."""
    worst = largest_waste(block_sizes, max_model_lens, allocator)
    return {size: waste <= int(size) - 1 for size, waste in worst.items()}


def unusable_free_slots(
    allocator: str = "paged", block_size: int = 16, max_model_len: int = 2048
) -> int:
    """Most free slots at a refusal that would have been enough, over histories.

    External fragmentation (PagedAttention paper, §3.1): a request is refused although as many
    slots are free as it takes in an empty pool.
    """
    found = 0
    for seed in range(NUM_SEEDS):
        history = History(allocator, block_size, max_model_len, seed)
        for _ in range(NUM_STEPS):
            history.step()
            found = max(found, history.unusable)
    return found


class History:
    """Requests of random lengths come, write and go in a pool that somebody always waits for.

    allocator is paged, or contiguous: the true lengths, in the first hole that fits. running are
    the rows in service; unusable is how many free slots the last refusal left that would have
    been enough.
    """

    def __init__(self, allocator: str, block_size: int, max_model_len: int, seed: int) -> None:
        self._rng = random.Random(seed)
        num_slots = LONGEST_IN_POOL * max_model_len // block_size * block_size
        self.pool = Pool(_made(allocator, block_size), num_slots, max_model_len)
        self._empty = Pool(_made(allocator, block_size), num_slots, max_model_len)
        self.running: list[int] = []
        self.unusable = 0

    def step(self) -> None:
        """Somebody asks for memory; all that run write a token; who is done leaves."""
        half = self.pool.max_model_len // 2
        prompt, output = (1 + int(half * self._rng.random() ** 3) for _ in range(2))
        self._arrive(prompt, output + 1)
        for row in list(self.running):
            if not self.pool.write_each([row]):
                self._leave(row)
        cells = self.pool.rows
        for row in list(self.running):
            if cells[row, NUM_COMPUTED] >= cells[row, FINAL_TOKENS] - 1:
                self._leave(row)

    def waste(self) -> int:
        """Most slots that a running sequence holds and has not written."""
        cells = self.pool.rows[self.running]
        return int((cells[:, NUM_SLOTS] - cells[:, NUM_COMPUTED]).max(initial=0))

    def _arrive(self, prompt: int, output: int) -> None:
        row = self.pool.open(prompt, output)
        free = int(self.pool.allocator.terms[FREE])
        self.unusable = 0
        if self.pool.admit(row) is Admission.OK:
            self.running.append(row)
            return
        self.pool.sequences.close(row)
        if free >= self._needs(prompt, output):
            self.unusable = free
        self._leave(self._rng.choice(self.running))

    def _needs(self, prompt: int, output: int) -> int:
        """Slots that a request takes when it is admitted to an empty pool."""
        row = self._empty.open(prompt, output)
        self._empty.admit(row)
        slots = int(self._empty.rows[row, NUM_SLOTS])
        self._empty.leave(row)
        return slots

    def _leave(self, row: int) -> None:
        self.pool.leave(row)
        self.running.remove(row)


def _made(name: str, block_size: int) -> Allocator:
    """An allocator of a name. Raises ValueError."""
    if name == "paged":
        return Paged(block_size)
    if name == "contiguous":
        return Contiguous("oracle", "first_fit")
    raise ValueError(f"unknown allocator {name!r}; accepted: paged, contiguous")
