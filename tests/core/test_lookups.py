"""How often a prefix cache is asked: contents are numbered once, and a refused head waits."""

from collections import Counter

import numpy as np

from sim.allocators.prefix import Prefix
from sim.costs.linear import Constant, Linear
from sim.engine.recorder import MAX_STRETCH
from sim.engine.simulation import Memory, Options, Run, simulate
from sim.schedulers.vllm_v1 import VllmV1
from sim.sequence import FIRST_SCHEDULED_NS, NUM_PREEMPTIONS, REQUEST, Limits, new_requests
from workloads.sequences import SequenceContent
from workloads.synthetic import Synthetic


class Asked(Prefix):
    """Counts lookups, and how often the content of a request is cut into blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.num_lookups = 0
        self.num_loads: Counter[int] = Counter()

    def lookup(self, row: int) -> int:
        self.num_lookups += 1
        return super().lookup(row)

    def _load_keys(self, row: int) -> None:
        self.num_loads[self.sequences.rows.item(row, REQUEST)] += 1
        super()._load_keys(row)


def test_a_refused_head_is_not_looked_up_in_every_iteration() -> None:
    """The second request needs the first one's memory, which decodes 3,000 tokens."""
    arrival, prompt, output = np.array([0, 5000]), np.array([16, 3168]), np.array([3000, 2])
    requests = new_requests(arrival, prompt, output, Limits(4096, output))
    allocator = Asked()
    run = simulate(requests, Memory(3200, 4096), allocator, VllmV1(), Constant(1e-6))
    assert run.requests[1, FIRST_SCHEDULED_NS] == 3000 * 1000
    admissions, longest_sleeps = 2, -(-3000 // MAX_STRETCH)
    assert allocator.num_lookups <= admissions + 1 + longest_sleeps


def test_long_prompts_in_a_full_cache_are_looked_up_less_than_twice_for_each_admission() -> None:
    """Prompts of thousands of tokens, a third of them shared, that come faster than they leave.

    Preempted requests keep the keys that they have.
    """
    trace = Synthetic(
        num_requests=400,
        arrivals={"kind": "poisson", "rate": 20},
        prompt_tokens={"kind": "lognormal", "mean": 1500, "cv": 1.5, "max": 12_000},
        output_tokens={"kind": "lognormal", "mean": 200, "cv": 1, "max": 800},
        prefix=[{"kind": "pool", "texts": 60, "tokens": 1000}],
    ).load(seed=0)
    columns = trace.arrival_ns, trace.prompt_tokens, trace.output_tokens
    requests = new_requests(*columns, Limits(16_384, trace.output_tokens))
    allocator, options = Asked(), Options(content=SequenceContent(trace.content))
    parts = allocator, VllmV1(), Linear()
    run: Run = simulate(requests, Memory(40_000, 16_384), *parts, options)
    num_preemptions = int(run.requests[:, NUM_PREEMPTIONS].sum())
    assert num_preemptions > 5
    assert run.scheduler.tally.num_hit_requests > 200
    assert allocator.num_lookups < 2 * (400 + num_preemptions)
    assert allocator.num_loads == Counter(range(400))
