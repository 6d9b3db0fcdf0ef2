"""The scheduler contract: what every iteration keeps, how requests end, sleep that is unseen."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from sim.allocators import ALLOCATORS, Allocator
from sim.allocators.terms import CACHED, FREE
from sim.batch import NUM_DECODE_SEQS, NUM_SEQS, PREFILL_TOKENS
from sim.costs.linear import Linear
from sim.engine.simulation import Memory, Options, Run, simulate
from sim.schedulers.base import NOTHING, Scheduler
from sim.sequence import (
    ARRIVAL_NS,
    FAILED,
    FINAL_TOKENS,
    FINISH_NS,
    FINISHED,
    FIRST_SCHEDULED_NS,
    FIRST_TOKEN_NS,
    NUM_COMPUTED,
    NUM_GENERATED,
    NUM_PLACEHOLDERS,
    NUM_SLOTS,
    NUM_TOKENS,
    PENDING,
    PRIORITY,
    PROMPT_TOKENS,
    REJECTED,
    STATUS,
    IntArray,
    Limits,
    SequenceTable,
    new_requests,
)
from sim.testing.rules import ContractError, made, require

MEMORY = Memory(60, 80)  # so small that the requests below wait for it, and are preempted
# memory of every kind in that pool; a scheduler is run with all that it does not object to
ALLOCATOR_PARAMETERS: Mapping[str, Mapping[str, Any]] = {
    "paged": {"block_size": 4, "watermark": 0.1},
    "contiguous": {"reservation": "pow2"},
    "mini_sglang": {"block_size": 4},
    "nano_vllm": {"block_size": 4},
    "paged_cow": {"block_size": 4, "num_cpu_blocks": 100},
    "prefix": {"block_size": 4, "watermark": 0.1},
    "vattention": {"block_size": 4},
}


def check_scheduler(factory: Callable[[], Scheduler], seeds: Iterable[int] = range(3)) -> None:
    """Run the scheduler contract over random requests, with every allocator it can run with.

    factory makes a scheduler that is not bound yet: the class itself, if it needs no parameters.
    Every iteration and every request's life is looked at, and a run that sleeps is compared with
    one that goes step by step. Raises ContractError with the rule that is broken.

    >>> import sim.testing
    >>> from sim.schedulers import SCHEDULERS
    >>> sim.testing.check_scheduler(SCHEDULERS["fcfs"], seeds=range(1))
    """
    made(factory, Scheduler)
    seeds, kinds = list(seeds), [kind for kind in ALLOCATORS if not _objects(factory(), kind)]
    require(len(kinds) > 0, factory(), f"objects to every allocator: {', '.join(ALLOCATORS)}")
    for kind in kinds:
        for seed in seeds:
            try:
                stepped = _run(factory(), kind, seed, is_watched=True)
                check_lives(stepped)
                check_pool(stepped, kind)
                check_unseen_sleep(_slept(factory(), kind, seed), stepped)
            except Exception as error:
                error.add_note(f"with memory of kind {kind}, requests of seed {seed}")
                raise


def _objects(scheduler: Scheduler, kind: str) -> bool:
    """Whether a scheduler cannot run with a kind of memory."""
    if scheduler.objection(memory_of(kind)):
        return True
    try:
        memory = memory_of(kind)
        memory.bind(MEMORY.num_slots, SequenceTable(), MEMORY.max_model_len)
        scheduler.bind(random_requests(0), memory.sequences, memory)
    except ValueError:
        return True
    return False


def _run(scheduler: Scheduler, kind: str, seed: int, is_watched: bool) -> Run:
    """A run that goes step by step and is looked at, or one that sleeps."""
    requests = random_requests(seed)
    limits = [getattr(scheduler, name, None) for name in ("max_num_batched_tokens", "max_num_seqs")]
    watch = Watch(limits[0], limits[1] or len(requests)) if is_watched else None
    cost = Linear(1e-6, 1e-8, 1e-9, 1e-9)
    memory = memory_of(kind)
    return simulate(requests, MEMORY, memory, scheduler, cost, Options(is_watched, watch))


def _slept(scheduler: Scheduler, kind: str, seed: int) -> Run:
    """A run that sleeps, of a scheduler that runs well step by step."""
    try:
        return _run(scheduler, kind, seed, is_watched=False)
    except Exception as error:
        rule = f"max_sleep: a run that sleeps raises {type(error).__name__}: {error}"
        raise ContractError(f"{scheduler.kind}: {rule}, single steps do not") from error


def memory_of(kind: str) -> Allocator:
    """Memory of a kind that fits the pool."""
    return ALLOCATORS[kind](**ALLOCATOR_PARAMETERS.get(kind, {}))


def random_requests(seed: int) -> IntArray:
    """Forty requests, some of which no pool of 60 slots can hold."""
    rng = random.Random(seed)
    arrivals = sorted(rng.randrange(0, 40_000, 500) for _ in range(40))
    lengths = [(rng.randint(1, 20), rng.randint(1, 20)) for _ in arrivals]
    lengths[7] = (70, 3)
    prompts, outputs = np.array(lengths, np.int64).T
    requests = new_requests(np.array(arrivals), prompts, outputs, Limits(80, outputs))
    requests[:, PRIORITY] = [rng.randint(0, 2) for _ in arrivals]
    return requests


class Watch:
    """Looks at a scheduler after every schedule(); raises ContractError for what is forbidden."""

    def __init__(self, limit: int | None, max_num_seqs: int = 512) -> None:
        self.limit, self.max_num_seqs = limit, max_num_seqs
        self.reasons_to_wait: set[int] = set()

    def __call__(self, now_ns: int, scheduler: Scheduler) -> None:
        """Look at the iteration that begins."""
        rows = scheduler.running[: scheduler.num_running]
        self.reasons_to_wait.add(scheduler.blocked)
        _check_rows(rows, scheduler)
        waits, has_reason = scheduler.num_waiting > 0, scheduler.blocked != NOTHING
        require(has_reason or not waits, scheduler, "requests wait, and blocked says no reason")
        require(waits or not has_reason, scheduler, "blocked says a reason, and nobody waits")
        self._check_batch(scheduler)

    def _check_batch(self, scheduler: Scheduler) -> None:
        batch = scheduler.batch
        tokens, num_seqs = batch.item(PREFILL_TOKENS) + batch.item(NUM_DECODE_SEQS), batch[NUM_SEQS]
        require(tokens > 0, scheduler, "schedule() made an iteration that computes nothing")
        most = self.max_num_seqs
        require(num_seqs <= most, scheduler, f"{num_seqs} sequences run, max_num_seqs is {most}")
        limit = self.limit
        is_within = limit is None or tokens <= limit
        require(is_within, scheduler, f"{tokens} tokens, max_num_batched_tokens is {limit}")


def _check_rows(rows: IntArray, scheduler: Scheduler) -> None:
    """Check who runs, and that nobody else holds memory."""
    sequences = scheduler.sequences.rows[rows]
    require(scheduler.num_running > 0, scheduler, "schedule() made an iteration of no sequences")
    require(len(set(rows.tolist())) == len(rows), scheduler, "a row runs twice")
    known = sequences[:, NUM_TOKENS] + sequences[:, NUM_PLACEHOLDERS]
    is_written = sequences[:, NUM_COMPUTED] <= known
    require(bool(is_written.all()), scheduler, "a token is computed before it is known")
    is_open = sequences[:, NUM_TOKENS] < sequences[:, FINAL_TOKENS]
    require(bool(is_open.all()), scheduler, "a finished sequence runs")
    held = set(np.flatnonzero(scheduler.sequences.rows[:, NUM_SLOTS]).tolist())
    in_service = set(rows.tolist()) | set(scheduler.padding)
    away = in_service.union(*scheduler.swapped().values())
    require(held <= away, scheduler, "a row that does not run holds memory")
    is_apart = len(in_service) == len(rows) + len(scheduler.padding)
    require(is_apart, scheduler, "a row of padding runs")


def check_lives(run: Run) -> None:
    """Each request has one outcome, its times in order, and a reason where it did not finish."""
    requests, scheduler = run.requests, run.scheduler
    status = requests[:, STATUS]
    require(run.status == "finished", scheduler, f"the run stalls: {run.reason}")
    require(not (status == PENDING).any(), scheduler, "a request never ends")
    done = requests[status == FINISHED]
    counts = scheduler.num_finished, len(done)
    require(counts[0] == counts[1], scheduler, "num_finished is {}, {} have".format(*counts))
    require(len(done) > 0, scheduler, "not one request finishes")
    times = done[:, [ARRIVAL_NS, FIRST_SCHEDULED_NS, FIRST_TOKEN_NS, FINISH_NS]]
    in_order = (np.diff(times, axis=1) >= 0).all() and (times[:, 1] < times[:, 2]).all()
    rule = "times are not in order: arrival, first scheduled, first token, finish"
    require(bool(in_order), scheduler, rule)
    outputs = done[:, FINAL_TOKENS] - done[:, PROMPT_TOKENS]
    is_whole = np.array_equal(done[:, NUM_GENERATED], outputs)
    require(is_whole, scheduler, "a request finishes with more or fewer tokens than its output")
    ended = set(np.flatnonzero((status == REJECTED) | (status == FAILED)).tolist())
    rule = "reasons are not those of the requests that were rejected or failed"
    require(set(scheduler.reasons) == ended and all(scheduler.reasons.values()), scheduler, rule)
    is_empty = scheduler.num_running == scheduler.num_waiting == 0
    require(is_empty, scheduler, "num_running or num_waiting is not 0 at the end")


def check_pool(run: Run, kind: str) -> None:
    """After a run nobody holds memory, and the pool is as at first."""
    scheduler, used, fresh = run.scheduler, run.allocator, memory_of(kind)
    fresh.bind(MEMORY.num_slots, SequenceTable(), MEMORY.max_model_len)
    terms = used.terms.copy()
    terms[FREE] += terms[CACHED]
    terms[CACHED] = 0
    is_whole = np.array_equal(terms, fresh.terms)
    require(is_whole, scheduler, f"memory is not whole again after a run: {used.usage()}")
    is_unheld = not scheduler.sequences.rows[:, NUM_SLOTS].any()
    require(is_unheld, scheduler, "a sequence holds memory after the run")
    used.check(np.empty(0, np.int64))


def check_unseen_sleep(slept: Run, stepped: Run) -> None:
    """Iterations that max_sleep took together leave what single ones leave."""
    for what, one, other in (
        ("requests", slept.requests, stepped.requests),
        ("terms", slept.allocator.terms, stepped.allocator.terms),
    ):
        differ = np.flatnonzero((one != other).reshape(len(one), -1).any(axis=1)).tolist()
        rule = f"max_sleep: {what} {differ[:5]} differ between a run that sleeps and single steps"
        require(not differ, slept.scheduler, rule)
    same = slept.recorder.timeline() == stepped.recorder.timeline()
    rule = "max_sleep: the timeline differs between a run that sleeps and single steps"
    require(same, slept.scheduler, rule)
