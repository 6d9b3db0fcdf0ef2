"""Sleeping over many iterations leaves exactly what single steps leave, compiled or not.

Run as a program, this file prints a digest of a fixed batch of examples.
"""

import hashlib
import os
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sim.allocators import ALLOCATORS
from sim.arrivals import FollowUps
from sim.costs import CostModel
from sim.costs.linear import Constant, Linear
from sim.engine import Memory, Options, Run, simulate
from sim.gaps import GAP_COUNT, GAP_SUM_NS, GAP_SUM_S
from sim.schedulers import SCHEDULERS
from sim.sequence import (
    FINAL_TOKENS,
    FINISH_NS,
    FINISHED,
    FIRST_SCHEDULED_NS,
    FIRST_TOKEN_NS,
    KV_TOKENS,
    NUM_GENERATED,
    NUM_SEQS,
    PREFILL_TOKENS,
    PRIORITY,
    PROMPT_TOKENS,
    STATUS,
    IntArray,
    Limits,
    new_requests,
)
from sim.testing import visible_state
from workloads.content import ContentBuilder, Run, own_output, own_prompt
from workloads.sequences import SequenceContent

Choose = Callable[[int, int], int]

TICK_NS = 500  # arrivals are multiples of it; an iteration of constant time takes two
FIXED_EXAMPLES = 25


class Plain(CostModel):
    """A cost model without compiled code and without its own plan."""

    kind = "plain"

    def iteration_s(self, batch: IntArray) -> float:
        return (700 + 90 * batch.item(NUM_SEQS) + 3 * batch.item(KV_TOKENS)) * 1e-9


class Beginning(NamedTuple):
    """What a prompt begins with: a whole earlier conversation or a text that others have too."""

    parent: int  # -1 for a text
    source: int
    length: int
    priority: int


class Example(NamedTuple):
    """One simulation, as plain data."""

    arrivals: list[tuple[int, int, int, int]]  # (ns, prompt, output, max_tokens)
    num_slots: int
    max_model_len: int
    allocator: tuple[str, dict[str, Any]]
    scheduler: tuple[str, dict[str, Any]]
    cost: int
    follow_ups: Sequence[tuple[int, int]] = ()  # (parent or -1, thinking ns); empty without any
    beginnings: Sequence[Beginning] = ()  # of each prompt; empty if none shares anything


def choose_allocator(choose: Choose, num_slots: int) -> tuple[str, dict[str, Any]]:
    """A registered allocator with parameters that fit the pool."""
    kinds = sorted(ALLOCATORS)
    kind = kinds[choose(0, len(kinds) - 1)]
    if kind == "paged":
        sizes = [size for size in (1, 3, 4, 16) if size <= num_slots]
        return kind, {
            "block_size": sizes[choose(0, len(sizes) - 1)],
            "watermark": (0.0, 0.1, 0.35)[choose(0, 2)],
        }
    if kind == "contiguous":
        return kind, choose_placement(choose, num_slots)
    if kind == "prefix":
        sizes = [size for size in (1, 2, 4) if 2 * size <= num_slots]
        return kind, {
            "block_size": sizes[choose(0, len(sizes) - 1)],
            "enable_prefix_caching": choose(0, 4) > 0,
            "free_order": ("prepend_unhashed", "append")[choose(0, 1)],
            "reserve_full_isl": bool(choose(0, 1)),
            "watermark": (0.0, 0.1, 0.35)[choose(0, 2)],
        }
    return kind, {}


def choose_placement(choose: Choose, num_slots: int) -> dict[str, Any]:
    """A contiguous allocator's parameters."""
    parameters: dict[str, Any] = {
        "reservation": ("max", "pow2", "oracle", "max_tokens")[choose(0, 3)],
        "placement": ("first_fit", "best_fit", "next_fit", "buddy")[choose(0, 3)],
    }
    if parameters["placement"] == "buddy":
        return {**parameters, "min_block": (1, 4, 8)[choose(0, 2)]}
    return {**parameters, "granularity": (1, 8)[choose(0, 1)], "compaction": bool(choose(0, 1))}


def choose_scheduler(choose: Choose) -> tuple[str, dict[str, Any]]:
    """A registered scheduler: few or many sequences, with and without a token budget."""
    kinds = sorted(SCHEDULERS)
    kind = kinds[choose(0, len(kinds) - 1)]
    parameters: dict[str, Any] = {"max_num_seqs": choose(1, 8)}
    if kind == "static":
        return kind, parameters
    if kind.startswith("vllm_v1"):
        parameters["policy"] = ("fcfs", "priority")[choose(0, 1)]
        parameters["long_prefill_token_threshold"] = (0, 3, 8)[choose(0, 2)]
        parameters["count_blocked_lookups"] = bool(choose(0, 1))
    if choose(0, 1):
        parameters["max_num_batched_tokens"] = choose(1, 40)
        parameters["enable_chunked_prefill"] = bool(choose(0, 1))
    return kind, parameters


def choose_example(choose: Choose) -> Example:
    """A small trace with bursts and ties, in a pool that is often too small for it."""
    now, arrivals = 0, []
    longest = choose(2, 20)
    for _ in range(choose(1, 14)):
        now += TICK_NS * (0, choose(0, 3), choose(0, 40))[choose(0, 2)]
        output = choose(1, longest)
        arrivals.append((now, choose(1, longest), output, output + choose(0, 12)))
    num_slots = choose(8, 100)
    return Example(
        arrivals,
        num_slots,
        choose(max(3, longest // 2), 2 * longest + 4),
        choose_allocator(choose, num_slots),
        choose_scheduler(choose),
        choose(0, 2),
        choose_follow_ups(choose, len(arrivals)),
        choose_beginnings(choose, [prompt for _, prompt, _, _ in arrivals]),
    )


def choose_beginnings(choose: Choose, prompts: list[int]) -> list[Beginning]:
    """Mostly a few texts that prompts begin with, and outputs that come back as prompts."""
    if choose(0, 3) == 0:
        return []
    beginnings = []
    for request, prompt in enumerate(prompts):
        parent = choose(0, request - 1) if request > 0 and choose(0, 1) else -1
        beginnings.append(Beginning(parent, choose(1, 2), choose(0, prompt), choose(0, 2)))
    return beginnings


def content_of(example: Example) -> SequenceContent | None:
    if not example.beginnings:
        return None
    builder, prompts = ContentBuilder(), []
    for begin, (_, prompt, _, _) in zip(example.beginnings, example.arrivals, strict=True):
        runs = [(begin.source, 0, begin.length)]
        if begin.parent >= 0:
            runs = [*prompts[begin.parent], (own_output(begin.parent), 0, prompt)]
        runs = cut(runs, begin.length)
        prompts.append([*runs, (own_prompt(len(prompts)), 0, prompt - begin.length)])
        builder.add(prompts[-1], prompt)
    return SequenceContent(builder.build())


def cut(runs: list[Run], length: int) -> list[Run]:
    """The first length tokens."""
    found = []
    for source, start, count in runs:
        found.append((source, start, min(count, length)))
        length -= found[-1][2]
    return found


def choose_follow_ups(choose: Choose, num_requests: int) -> list[tuple[int, int]]:
    """Sometimes conversations: half of the requests come after an earlier one."""
    if choose(0, 2):
        return []
    turns = [(-1, 0)]
    for request in range(1, num_requests):
        parent = choose(0, request - 1) if choose(0, 1) else -1
        turns.append((parent, TICK_NS * (0, 1, choose(0, 40))[choose(0, 2)]))
    return turns


def run_example(example: Example, single_step: bool) -> Run:
    columns = np.array(example.arrivals, np.int64).T
    requests = new_requests(*columns[:3], Limits(example.max_model_len, columns[3]))
    requests[:, PRIORITY] = [beginning.priority for beginning in example.beginnings] or 0
    costs = [Constant(2e-9 * TICK_NS), Linear(7e-7, 9e-8, 3e-9, 2.5e-9), Plain()]
    kind, parameters = example.allocator
    policy, settings_ = example.scheduler
    turns = np.array(example.follow_ups, np.int64).reshape(-1, 2).T
    follow_ups = FollowUps(*turns) if example.follow_ups else None
    return simulate(
        requests,
        Memory(example.num_slots, example.max_model_len),
        ALLOCATORS[kind](**parameters),
        SCHEDULERS[policy](**settings_),
        costs[example.cost],
        Options(single_step=single_step, follow_ups=follow_ups, content=content_of(example)),
    )


def left_behind(run: Run) -> dict[str, Any]:
    """All that a run leaves, as plain Python values."""
    recorder, scheduler = run.recorder, run.scheduler
    memory = {name: array.tolist() for name, array in visible_state(run.allocator).items()}
    cells = np.flatnonzero(scheduler.gaps)
    return {
        "requests": run.requests.tolist(),
        "reasons": sorted(run.scheduler.reasons.items()),
        "end": (run.status, run.reason, run.start_ns, run.end_ns),
        "timeline": recorder.timeline(),
        "queued": recorder.queued_integrals(),
        "num_iterations": recorder.num_iterations,
        "num_queued_iterations": recorder.num_queued_iterations,
        "num_running_max": recorder.num_running_max,
        "measured_from_ns": recorder.measured_from_ns,
        "scheduler": (scheduler.num_finished, scheduler.num_preemptions, scheduler.num_waiting),
        "counters": (scheduler.counters(), run.allocator.counters()),
        "gaps": [cells.tolist(), scheduler.gaps[cells].tolist()],
        "memory": memory,
    }


def assert_same(example: Example) -> Run:
    """Sleeping and single steps agree in everything; return the run that slept."""
    slept, stepped = (run_example(example, single_step) for single_step in (False, True))
    expected = left_behind(stepped)
    for name, value in left_behind(slept).items():
        assert value == expected[name], f"{name} differs between sleeping and single steps"
    return slept


def fixed_batch() -> list[Example]:
    return [choose_example(random.Random(seed).randint) for seed in range(30, 30 + FIXED_EXAMPLES)]


def digest_of_batch() -> str:
    state = hashlib.sha256()
    for example in fixed_batch():
        state.update(repr(left_behind(run_example(example, single_step=False))).encode())
    return state.hexdigest()


@settings(
    max_examples=300, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
@given(st.data())
def test_sleeping_and_single_steps_leave_the_same_behind(data: st.DataObject) -> None:
    assert_same(choose_example(lambda low, high: data.draw(st.integers(low, high))))


@pytest.mark.parametrize("kind", sorted(ALLOCATORS))
def test_sleeping_agrees_with_single_steps_on_hundred_seeded_traces(kind: str) -> None:
    """Longer traces than the property test finds: every request conserves its tokens too."""
    num_preemptions = num_blocked = 0
    for seed in range(100):
        choose = random.Random(1000 + seed).randint
        example = choose_example(choose)
        while example.allocator[0] != kind:
            example = example._replace(allocator=choose_allocator(choose, example.num_slots))
        run = assert_same(example)
        num_preemptions += run.scheduler.num_preemptions
        num_blocked += run.recorder.num_queued_iterations
        assert_tokens_are_counted_once(run)
    assert num_blocked > 0, "no example queues: the traces are too easy"
    outgrows = kind in {"paged", "prefix"}
    assert (num_preemptions > 0) == outgrows, "only memory in blocks outgrows its promise"


def assert_tokens_are_counted_once(run: Run) -> None:
    """Gaps of finished requests are their outputs - 1 and span first token to finish."""
    requests, gaps = run.requests, run.scheduler.gaps
    done = requests[requests[:, STATUS] == FINISHED]
    outputs = done[:, FINAL_TOKENS] - done[:, PROMPT_TOKENS]
    assert done[:, NUM_GENERATED].tolist() == outputs.tolist()
    if len(done) == run.scheduler.num_finished and not (requests[:, STATUS] == 3).any():
        assert gaps[GAP_COUNT] == (outputs - 1).sum()
        span = int((done[:, FINISH_NS] - done[:, FIRST_TOKEN_NS]).sum())
        gaps_ns = gaps.item(GAP_SUM_S) * 10**9 + gaps.item(GAP_SUM_NS)
        if run.scheduler.kind == "static":  # answers wait for the longest one of their batch
            assert gaps_ns <= span
        else:
            assert gaps_ns == span


def test_a_sleep_longer_than_one_recording_agrees_with_single_steps() -> None:
    for kind, parameters in (("paged", {"block_size": 16}), ("contiguous", {}), ("unbounded", {})):
        example = Example(
            [(0, 5, 3000, 3000), (0, 9, 2500, 2600), (1_200_500, 3, 700, 700)],
            9000,
            3100,
            (kind, parameters),
            ("fcfs", {"max_num_seqs": 2}),
            0,
        )
        run = assert_same(example)
        assert run.recorder.num_iterations == 3200


def test_a_block_that_fills_in_a_sleep_lets_the_waiting_head_in() -> None:
    """The head needs 4 blocks of 3 free ones until the running sequence fills its second.

    The head's prompt is the other's prompt of 4 and the first 12 tokens of its output, and one.
    """
    example = Example(
        [(0, 4, 20, 20), (TICK_NS, 17, 2, 2)],
        24,
        64,
        ("prefix", {"block_size": 4}),
        ("vllm_v1", {}),
        0,
        beginnings=[Beginning(-1, 1, 4, 0), Beginning(0, 1, 16, 0)],
    )
    run = assert_same(example)
    assert run.requests[1, FIRST_SCHEDULED_NS] == 4 * 2 * TICK_NS


def test_a_full_pool_met_late_is_measured_alike() -> None:
    """As many requests have finished as run when memory fills: measuring resumes within a sleep."""
    arrivals = [(0, 2, 1, 1), (0, 2, 1, 1), (2000, 10, 8, 8), (2000, 10, 8, 8)]
    paged = ("paged", {"block_size": 4})
    run = assert_same(Example(arrivals, 20, 24, paged, ("fcfs", {}), 0))
    assert run.recorder.num_queued_iterations > 0


def test_plain_python_leaves_what_compiled_code_leaves() -> None:
    root = Path(__file__).parents[2]
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": str(root)}
    done = subprocess.run(
        [sys.executable, __file__],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=240,
    )
    assert done.stdout.split() == ["plain", digest_of_batch()]


def test_the_fixed_batch_queues_preempts_rejects_and_sleeps() -> None:
    runs = [run_example(example, single_step=False) for example in fixed_batch()]
    kinds = {example.allocator[0] for example in fixed_batch()}
    assert kinds == set(ALLOCATORS)
    assert sum(run.scheduler.num_preemptions for run in runs) > 0
    assert sum(run.recorder.num_queued_iterations for run in runs) > 0
    assert any(run.scheduler.reasons for run in runs)
    assert sum(run.requests[:, PREFILL_TOKENS].sum() for run in runs) > 0


if __name__ == "__main__":
    import numba

    print("plain" if numba.config.DISABLE_JIT else "compiled", digest_of_batch())
