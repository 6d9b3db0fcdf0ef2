"""SGLang's scheduler against a naive one: who is admitted, hits, gives way, and what is left."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from naive_sglang import Knobs, NaiveSglang, Request, Step, played
from naive_tree import NaiveTree, Words
from sim.allocators.checked import CheckedAllocator
from sim.allocators.radix import Radix
from sim.costs.linear import Constant
from sim.engine.simulation import Memory, Options, Run, simulate
from sim.schedulers import Scheduler
from sim.schedulers.sglang import Sglang
from sim.sequence import FAILED, REJECTED, REQUEST, STATUS, Limits, new_requests
from workloads.content import Run as TextRun
from workloads.content import token_runs
from workloads.sequences import SequenceContent

NS = 1000  # an iteration
LONGEST = 1000
POLICIES = ("lru", "lru", "lfu", "fifo", "mru", "filo", "slru")
EXAMPLES = 200


class Texts(SequenceContent):
    """Prompts and outputs in tokens."""

    def __init__(self, words: list[Words]) -> None:
        super().__init__()
        self._words = words

    def runs(self, request: int, prompt_tokens: int, num_tokens: int) -> list[TextRun]:
        ids = np.array(self._words[request][:num_tokens], np.int64)
        return [(source, start, n) for source, start, n in token_runs(ids).tolist()]


class Example:
    """Requests that begin alike or repeat another's output, in a pool that is often too small."""

    def __init__(self, seed: int) -> None:
        pick = random.Random(seed)
        self.size = pick.choice([1, 1, 2, 3, 8])
        self.policy = pick.choice(POLICIES)
        self.num_slots = pick.choice([24, 30, 40, 60, 90, 150]) + pick.choice([0, 3 * self.size])
        chunk = pick.choice([8192, None, 4, 9, 16])
        self.knobs: dict[str, Any] = {
            "max_num_seqs": pick.choice([64, 1, 2, 4]),
            "chunked_prefill_size": chunk and max(self.size, chunk // self.size * self.size),
            "max_prefill_tokens": pick.choice([16384, 10, 25]),
            "init_new_token_ratio": pick.choice([0.7, 0.1, 0.3, 0.0, 1.0]),
            "min_new_token_ratio_factor": pick.choice([0.14, 0.5, 0.0]),
            "new_token_ratio_decay_steps": pick.choice([600, 5, 20]),
            "retract_decode_steps": pick.choice([20, 2, 0, 5]),
            "clip_max_new_tokens": pick.choice([4096, 5]),
        }
        self.cells: list[tuple[int, int, int, int]] = []  # arrival, prompt, output, max_tokens
        self.words: list[Words] = []
        now = 0
        for number in range(pick.randint(2, 12)):
            now += pick.choice([0, 0, 0, 1, 2, 9, 40])
            known: Words = tuple(pick.choice([1000, 2000]) + i for i in range(pick.randint(0, 25)))
            if self.words and pick.random() < 0.4:
                known = pick.choice(self.words)
            longest = max(2, int(self.num_slots * pick.choice([0.2, 0.5, 0.8])))
            own = tuple(10_000 * (number + 1) + i for i in range(200))
            prompt = pick.randint(1, longest)
            output = pick.randint(1, pick.choice([3, 15, 40]))
            self.cells.append((now, prompt, output, output + pick.choice([0, 0, 3, 20])))
            self.words.append((known[: pick.randint(0, 60)] + own)[: prompt + output])

    def run(self, steps: list[Step]) -> Run:
        def note(now_ns: int, scheduler: Scheduler) -> None:
            assert isinstance(scheduler, Sglang)
            memory = scheduler._memory
            rows = scheduler.running[: scheduler.num_running]
            running = set(scheduler.sequences.rows[rows, REQUEST].tolist())
            admitted = [(new.request, new.num_hit, new.num_tokens) for new in scheduler.admitted]
            sizes = memory.available_size, memory.evictable_size
            retracted = scheduler.preempted.copy()
            steps.append(Step(admitted, retracted, running, *sizes, scheduler.ratio.current))

        arrivals, prompts, outputs, longest = np.array(self.cells, np.int64).T
        return simulate(
            new_requests(arrivals * NS, prompts, outputs, Limits(LONGEST, longest)),
            Memory(self.num_slots, LONGEST),
            CheckedAllocator(Radix(self.size, self.policy)),  # type: ignore[arg-type]
            Sglang(**self.knobs),
            Constant(NS * 1e-9),
            Options(observe=note, content=Texts(self.words), single_step=True),
        )

    def naive(self) -> tuple[NaiveSglang, list[Request], list[int]]:
        """The model, what it is to serve, and whom nobody could."""
        pool = self.num_slots // self.size * self.size
        knobs = Knobs(**self.knobs)
        kept, refused = [], []
        for i, (arrival, prompt, _, longest) in enumerate(self.cells):
            new = max(0, min(longest, pool - 2 - prompt))
            needs = prompt + min(new, knobs.clip_max_new_tokens) + self.size
            if prompt >= pool - 6 or needs >= pool:
                refused.append(i)
            else:
                kept.append(Request(i, arrival, self.words[i], prompt, new))
        return NaiveSglang(NaiveTree(self.size, self.policy, 2), pool, knobs), kept, refused


def statuses(done: Run, status: int) -> list[int]:
    return np.flatnonzero(done.requests[:, STATUS] == status).tolist()


@pytest.mark.parametrize("first", range(0, EXAMPLES, 50))
def test_every_step_is_that_of_the_naive_scheduler(first: int) -> None:
    num_retracted = num_hits = 0
    for seed in range(first, first + 50):
        example = Example(seed)
        ours: list[Step] = []
        done = example.run(ours)
        model, requests, refused = example.naive()
        wanted = played(model, requests)
        for i, (step, theirs) in enumerate(zip(ours, wanted, strict=False)):
            assert step == theirs, f"example {seed}, step {i}"
        assert len(ours) == len(wanted), f"example {seed}"
        assert statuses(done, REJECTED) == refused
        assert statuses(done, FAILED) == sorted(model.failed)
        num_retracted += sum(len(step.retracted) for step in wanted)
        num_hits += sum(hit > 0 for step in wanted for _, hit, _ in step.admitted)
    assert num_retracted > 3
    assert num_hits > 30
