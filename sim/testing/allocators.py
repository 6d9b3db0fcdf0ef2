"""The allocator contract over random histories, with fixed seeds."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

from sim.allocators.base import Allocator
from sim.allocators.checked import require
from sim.testing.endings import check_as_new, check_check, check_exact_fits, check_failed_append
from sim.testing.families import Families
from sim.testing.history import History
from sim.testing.rules import made


def check_allocator(
    factory: Callable[[], Allocator], seeds: Iterable[int] = range(20), num_steps: int = 60
) -> None:
    """Run the allocator contract over random histories: arrivals, appends, decodes, frees.

    If it forks, of forks and swaps, too. What each slot holds is kept beside the allocator, so that
    its own `check` is not what it is judged by. factory makes an allocator that is not bound yet:
    the class itself, if it needs no parameters. A pool that its bind refuses is left out. Raises
    ConservationError with the rule that is broken; a note says after which steps. What is outside
    of it: a prefix tree's steps, and whether a policy is a good one.

    >>> import sim.testing
    >>> from sim.allocators import ALLOCATORS
    >>> sim.testing.check_allocator(lambda: ALLOCATORS["paged"](block_size=4), seeds=range(3))
    """
    made(factory, Allocator)
    num_taken = 0
    for seed in seeds:
        rng = random.Random(seed)
        try:
            history = History(factory, rng.choice([20, 61, 150, 400]), rng.choice([16, 40, 130]))
        except ValueError:
            continue
        num_taken += 1
        try:
            for _ in range(num_steps):
                random_step(history, rng)
            history.free_everything()
            history.arrive(history.max_model_len - 1, 20, 9, 1)  # the longest, in an empty pool
            history.free_everything()
            check_exact_fits(history)
            history.arrive(1, 1, 0, 1)
            history.bind_again()
            check_as_new(history)
            _check_families(factory, history, seed)
        except Exception as error:
            slots, longest = history.fast.num_slots, history.max_model_len
            error.add_note(f"seed {seed}: {slots} slots, sequences of at most {longest} tokens")
            error.add_note(f"in step {len(history.steps)}, the last of: {_last(history.steps)}")
            raise
    require(num_taken > 0, "bind refuses every pool of the suite, 20 to 400 slots")
    check_failed_append(factory)
    check_check(factory)


def _check_families(factory: Callable[[], Allocator], history: History, seed: int) -> None:
    """Forks and swaps, every fourth time: they take longer."""
    if history.fast.forks == "no" or seed % 4:
        return
    try:
        families = Families(factory, history.fast.num_slots, seed)
    except ValueError:  # its sequences are of another length
        return
    for _ in range(40):
        families.step()
    families.finish()


def _last(steps: list[str]) -> str:
    return ", ".join(steps[-4:])


def random_step(history: History, rng: random.Random) -> None:
    """One step: half of them arrivals."""
    rows = [row for row in history.running if history.room(row) > 0 and rng.random() < 0.8]
    step = rng.randrange(8)
    if step < 3:
        prompt = rng.randint(1, history.max_model_len - 1)
        if rng.random() < 0.5:
            prompt = min(prompt, 3)
        lengths = prompt, rng.randint(1, 20), rng.randint(0, 9), rng.randint(1, prompt)
        history.arrive(*lengths, (rng.randint(0, 2), rng.choice([0, 5, 12, 60])))
    elif step == 3 and rows:
        history.append(rows, [rng.randint(0, rng.choice([9, 40])) for _ in rows])
    elif step == 4 and rows:
        history.decode(rows, rng.randint(1, 20))
    elif step == 7:
        history.arrive_together([rng.randint(1, history.max_model_len - 1) for _ in range(3)])
    elif step == 6 and history.running:
        history.retire(rng.choice(history.running))
    elif step == 5 and history.running:
        count = rng.randint(1, len(history.running))
        history.free(rng.sample(history.running, count))
