"""Sleeping over many iterations leaves exactly what single steps leave, compiled or not."""

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sleep_examples
from sim.allocators import ALLOCATORS
from sim.batch import PREFILL_TOKENS
from sim.engine.simulation import Run
from sim.gaps import GAP_COUNT, GAP_SUM_NS, GAP_SUM_S
from sim.schedulers import SCHEDULERS
from sim.sequence import (
    FINAL_TOKENS,
    FINISH_NS,
    FINISHED,
    FIRST_SCHEDULED_NS,
    FIRST_TOKEN_NS,
    NUM_GENERATED,
    PROMPT_TOKENS,
    STATUS,
    IntArray,
)
from sleep_examples import (
    NEED_A_TREE,
    TICK_NS,
    Beginning,
    Example,
    choose_allocator,
    choose_example,
    choose_scheduler,
    choose_sglang,
    digest_of_batch,
    fit_prefixes,
    fixed_batch,
    left_behind,
    run_example,
)


def assert_same(example: Example) -> Run:
    """Sleeping and single steps agree in everything; return the run that slept."""
    slept, stepped = (run_example(example, single_step) for single_step in (False, True))
    expected = left_behind(stepped)
    for name, value in left_behind(slept).items():
        assert value == expected[name], f"{name} differs between sleeping and single steps"
    return slept


@settings(
    max_examples=300, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
@given(st.data())
def test_sleeping_and_single_steps_leave_the_same_behind(data: st.DataObject) -> None:
    assert_same(choose_example(lambda low, high: data.draw(st.integers(low, high))))


@pytest.mark.parametrize("kind", sorted(ALLOCATORS))
def test_sleeping_agrees_with_single_steps_on_hundred_seeded_traces(kind: str) -> None:
    """Longer traces than the property test finds: every request conserves its tokens too."""
    num_preemptions = num_blocked = num_reused = shared = 0
    for seed in range(100):
        choose = random.Random(1000 + seed).randint
        example = choose_example(choose)
        while example.allocator[0] != kind:
            example = example._replace(allocator=choose_allocator(choose, example.num_slots))
        if (example.scheduler[0] in NEED_A_TREE) != ALLOCATORS[kind].has_prefix_tree:
            example = example._replace(scheduler=choose_scheduler(choose, kind))
        example = fit_prefixes(example)
        run = assert_same(example)
        num_preemptions += run.scheduler.num_preemptions
        num_blocked += run.recorder.num_queued_iterations
        assert_tokens_are_counted_once(run, widths_of(example, run))
        distances, timeline = run.allocator.reuse_distances(), run.recorder.timeline()
        num_reused += 0 if distances is None else distances[GAP_COUNT]
        shared += sum(timeline["table_blocks"]) - sum(timeline["held_blocks"])
    assert num_blocked > 0, "no example queues: the traces are too easy"
    outgrows = kind not in {"contiguous", "unbounded"}
    assert (num_preemptions > 0) == outgrows, "only memory in blocks outgrows its promise"
    finds = kind in {"nano_vllm", "prefix"}
    assert (num_reused > 0) == finds, "only content is found again"
    shares = finds or kind == "paged_cow" or ALLOCATORS[kind].has_prefix_tree
    assert (shared > 0) == shares, "forks and content share blocks"


def test_what_ticks_at_every_step_ticks_in_a_sleep_of_sglang_s_scheduler() -> None:
    """Its ratio falls, its queue is looked at or not, its requests are retracted."""
    num_preemptions = num_hit = 0
    for seed in range(400):
        choose = random.Random(3000 + seed).randint
        example = choose_example(choose)
        while example.allocator[0] != "radix":
            example = example._replace(allocator=choose_allocator(choose, example.num_slots))
        knobs = {"max_num_seqs": choose(2, 8)} | choose_sglang(choose)
        num_slots = choose(30, 60)
        run = assert_same(example._replace(num_slots=num_slots, scheduler=("sglang", knobs)))
        assert run.status == "finished"
        num_preemptions += run.scheduler.num_preemptions
        num_hit += run.scheduler.counters()["num_hit_tokens"]
        assert_tokens_are_counted_once(run, widths_of(example, run))
    assert num_preemptions > 50
    assert num_hit > 1000


def widths_of(example: Example, run: Run) -> IntArray:
    """How many sequences each request runs at once."""
    forks = run.scheduler.kind == "vllm_v0" and run.allocator.forks != "no"
    if not forks or not example.widths:
        return np.ones(len(run.requests), np.int64)
    return np.max(np.array(example.widths), axis=1)


def assert_tokens_are_counted_once(run: Run, widths: IntArray) -> None:
    """Gaps of finished requests' sequences are their outputs - 1 and span first token to finish."""
    requests, gaps = run.requests, run.scheduler.gaps
    is_done = requests[:, STATUS] == FINISHED
    done, widths = requests[is_done], widths[is_done]
    outputs = done[:, FINAL_TOKENS] - done[:, PROMPT_TOKENS]
    assert done[:, NUM_GENERATED].tolist() == outputs.tolist()
    if len(done) == run.scheduler.num_finished and not (requests[:, STATUS] == 3).any():
        assert gaps[GAP_COUNT] == ((outputs - 1) * widths).sum()
        span = int(((done[:, FINISH_NS] - done[:, FIRST_TOKEN_NS]) * widths).sum())
        gaps_ns = gaps.item(GAP_SUM_S) * 10**9 + gaps.item(GAP_SUM_NS)
        if run.scheduler.kind == "static":  # answers wait for the longest one of their batch
            assert gaps_ns <= span
        else:
            assert gaps_ns == span


def test_a_waiting_head_looked_up_at_every_step_is_so_in_a_sleep_of_mini_sglang_s() -> None:
    """Its look-ups refresh the tree: the clock and what is evicted next depend on them."""
    num_queued = num_hit = num_evicted = 0
    for seed in range(400):
        choose = random.Random(7000 + seed).randint
        example = choose_example(choose)
        kind = ("mini_sglang", "radix")[choose(0, 1)]
        knobs = {"max_num_seqs": choose(2, 8), "max_num_batched_tokens": choose(4, 60)}
        example = example._replace(
            num_slots=choose(30, 60),
            allocator=(kind, {"block_size": (1, 1, 2, 4)[choose(0, 3)]}),
            scheduler=("mini_sglang", knobs),
        )
        run = assert_same(example)
        assert run.status == "finished"
        assert run.scheduler.num_preemptions == 0
        num_queued += run.recorder.num_queued_iterations
        num_hit += run.scheduler.counters()["num_hit_tokens"]
        num_evicted += run.allocator.counters()["num_evicted_blocks"]
        assert_tokens_are_counted_once(run, widths_of(example, run))
    assert num_queued > 1000
    assert num_hit > 1000
    assert num_evicted > 1000


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


@pytest.mark.parametrize("num_slots", range(12, 18))
@pytest.mark.parametrize(
    "allocator", [("radix", {}), ("prefix", {"block_size": 1}), ("prefix", {"block_size": 2})]
)
def test_an_eviction_in_a_sleep_may_make_the_waiting_heads_hit_shorter(
    allocator: tuple[str, dict[str, Any]], num_slots: int
) -> None:
    """Then it waits for the token budget, where it waited for memory as long as 8 of 12 were hit.

    The first request leaves the 8 tokens to the tree, the second takes their slots bit by bit.
    """
    example = Example(
        [(0, 8, 1, 1), (0, 2, 20, 20), (3 * TICK_NS, 12, 2, 2)],
        num_slots + allocator[1].get("block_size", 0),  # prefix never gives block 0 away
        64,
        allocator,
        ("vllm_v1", {"enable_chunked_prefill": False, "max_num_batched_tokens": 12}),
        0,
        beginnings=[Beginning(-1, 1, 8, 0), Beginning(-1, 2, 0, 0), Beginning(-1, 1, 8, 0)],
    )
    run = assert_same(example)
    assert run.recorder.num_queued_iterations > 0


def test_a_head_that_is_asked_before_others_decode_may_fit_when_they_have() -> None:
    """Its prompt of 8 is the other's prompt and output, whose first 4 tokens are found late."""
    prefix = ("prefix", {"block_size": 4, "reserve_full_isl": False, "watermark": 0.1})
    beginnings = [Beginning(-1, 1, 1, 0), Beginning(0, 1, 8, 0)]
    for scheduler in ("vllm_v0", "nano_vllm"):
        arrivals = [(0, 1, 5, 5), (0, 8, 1, 1)]
        parts = prefix, (scheduler, {})
        assert_same(Example(arrivals, 14, 16, *parts, 0, beginnings=beginnings))


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
        [sys.executable, sleep_examples.__file__],
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
    assert {example.scheduler[0] for example in fixed_batch()} == set(SCHEDULERS)
    assert sum(run.scheduler.num_preemptions for run in runs) > 0
    assert sum(run.recorder.num_queued_iterations for run in runs) > 0
    assert any(run.scheduler.reasons for run in runs)
    assert sum(run.requests[:, PREFILL_TOKENS].sum() for run in runs) > 0
