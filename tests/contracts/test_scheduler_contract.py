"""Every registered scheduler keeps the scheduler contract, over every registered allocator."""

from typing import Any

import numpy as np
import pytest

from sim.allocators import ALLOCATORS
from sim.allocators.base import BoolArray
from sim.allocators.paged import Paged
from sim.costs.linear import Constant, Linear
from sim.engine.simulation import Memory, Options, simulate
from sim.schedulers import SCHEDULERS
from sim.schedulers.base import BATCH, MAX_NUM_SEQS, MEMORY, NOTHING, PACE, TOKEN_BUDGET
from sim.sequence import IntArray, Limits, new_requests
from sim.testing import check_scheduler
from sim.testing.schedulers import MEMORY as MEMORY_OF_60
from sim.testing.schedulers import Watch, check_lives, check_pool, memory_of, random_requests

PARAMETERS: dict[str, list[dict[str, Any]]] = {
    "fcfs": [
        {},
        {"max_num_seqs": 3},
        {"max_num_batched_tokens": 12},
        {"max_num_batched_tokens": 5, "enable_chunked_prefill": True, "max_num_seqs": 8},
    ],
    "mini_sglang": [
        {},
        {"max_num_seqs": 3},
        {"max_num_seqs": 8, "max_num_batched_tokens": 12},
    ],
    "nano_vllm": [
        {},
        {"max_num_seqs": 3},
        {"max_num_seqs": 8, "max_num_batched_tokens": 12},
    ],
    "sglang": [
        {},
        {"max_num_seqs": 3},
        {"chunked_prefill_size": 4, "schedule_policy": "lpm", "init_new_token_ratio": 0.1},
        {"chunked_prefill_size": 8, "enable_mixed_chunk": True, "schedule_policy": "random"},
        {"chunked_prefill_size": None, "max_prefill_tokens": 12, "schedule_policy": "lof"},
        {"schedule_policy": "dfs-weight", "schedule_conservativeness": 0.1},
    ],
    "static": [{}, {"max_num_seqs": 3}],
    "tgi": [
        {},
        {"max_batch_prefill_tokens": 25, "max_num_seqs": 3, "max_waiting_tokens": 3},
        {"waiting_served_ratio": 1.2, "max_waiting_tokens": 6, "max_batch_total_tokens": 50},
    ],
    "trtllm": [
        {},
        {"capacity_scheduler_policy": "max_utilization", "max_num_batched_tokens": 24},
        {"max_num_batched_tokens": 12, "enable_chunked_prefill": True, "max_num_seqs": 2},
    ],
    "vllm_v0": [
        {"max_num_seqs": 4},
        {"max_num_batched_tokens": 40, "max_paddings": 8},
        {"preemption_mode": "swap"},
    ],
    "vllm_v1": [
        {},
        {"max_num_seqs": 3},
        {"max_num_batched_tokens": 5, "max_num_seqs": 8, "policy": "priority"},
        {"max_num_batched_tokens": 20, "enable_chunked_prefill": False},
        {"max_num_batched_tokens": 12, "long_prefill_token_threshold": 4},
    ],
    "vllm_v1_async": [{}, {"max_num_seqs": 3, "max_num_batched_tokens": 12}],
}
NEED_A_TREE = {"mini_sglang", "sglang"}  # and refuse others

every_pair = pytest.mark.parametrize(
    ("policy", "parameters", "kind"),
    [
        pytest.param(policy, parameters, kind, id=f"{policy}-{i}-{kind}")
        for policy in sorted(SCHEDULERS)
        for i, parameters in enumerate(PARAMETERS.get(policy, [{}]))
        for kind in sorted(ALLOCATORS)
        if policy not in NEED_A_TREE or ALLOCATORS[kind].has_prefix_tree
    ],
)


@every_pair
@pytest.mark.parametrize("seed", range(4))
def test_every_iteration_keeps_the_contract_and_every_request_ends(
    policy: str, parameters: dict[str, Any], kind: str, seed: int
) -> None:
    max_num_seqs = parameters.get("max_num_seqs", 512)
    watch = Watch(parameters.get("max_num_batched_tokens"), max_num_seqs)
    scheduler = SCHEDULERS[policy](**parameters)
    run = simulate(
        random_requests(seed),
        Memory(60, 80),
        memory_of(kind),
        scheduler,
        Linear(1e-6, 1e-8, 1e-9, 1e-9),
        Options(observe=watch),
    )
    if policy != "nano_vllm":  # where it limits an iteration alone
        assert run.recorder.num_running_max <= max_num_seqs
    check_lives(run)


class CountsQuestions(Paged):
    """Counts how often it is asked about all requests of the run."""

    num_questions = 0

    def never_fits(self, requests: IntArray) -> BoolArray:
        self.num_questions += 1
        return super().never_fits(requests)

    def never_finishes(self, requests: IntArray) -> BoolArray:
        self.num_questions += 1
        return super().never_finishes(requests)


@pytest.mark.parametrize("policy", sorted(SCHEDULERS.keys() - {"sglang", "mini_sglang"}))
def test_memory_is_not_asked_about_all_requests_for_each_that_is_refused(policy: str) -> None:
    """Or the time of a run would grow with the square of its requests."""
    asked = []
    for num_refused in (1, 30):
        lengths = [np.full(40, n) for n in (0, 5, 5)]
        lengths[1][:num_refused] = 70  # more than the pool
        requests = new_requests(lengths[0], lengths[1], lengths[2], Limits(80, lengths[2]))
        memory = CountsQuestions(block_size=4)
        run = simulate(requests, Memory(60, 80), memory, SCHEDULERS[policy](), Constant(1e-6))
        asked.append((memory.num_questions, len(run.scheduler.reasons)))
    assert [count for _, count in asked] == [1, 30]
    assert asked[0][0] == asked[1][0] <= 3


@every_pair
def test_the_pool_is_whole_again_after_a_run(
    policy: str, parameters: dict[str, Any], kind: str
) -> None:
    scheduler = SCHEDULERS[policy](**parameters)
    run = simulate(random_requests(9), MEMORY_OF_60, memory_of(kind), scheduler, Constant(1e-6))
    check_pool(run, kind)


@pytest.mark.parametrize("policy", sorted(SCHEDULERS))
def test_every_scheduler_passes_the_suite_for_plug_ins(policy: str) -> None:
    check_scheduler(SCHEDULERS[policy], seeds=range(20, 21))


def test_the_examples_wait_for_every_reason() -> None:
    """Guards the contract test: its traces meet memory, the cap and the budget."""
    seen: dict[str, set[int]] = {policy: set() for policy in PARAMETERS}
    for policy, parameters in [(p, cell) for p, cells in PARAMETERS.items() for cell in cells]:
        watch = Watch(None)
        scheduler = SCHEDULERS[policy](**parameters)
        options = Options(observe=watch)
        allocator = memory_of("radix" if policy in NEED_A_TREE else "paged")
        simulate(random_requests(1), Memory(60, 80), allocator, scheduler, Constant(1e-6), options)
        seen[policy] |= watch.reasons_to_wait
    assert seen["fcfs"] == {NOTHING, MEMORY, MAX_NUM_SEQS, TOKEN_BUDGET}
    assert seen["mini_sglang"] == {NOTHING, MEMORY, MAX_NUM_SEQS, TOKEN_BUDGET}
    assert seen["nano_vllm"] == {NOTHING, MEMORY, MAX_NUM_SEQS, TOKEN_BUDGET}
    assert seen["sglang"] == {NOTHING, MEMORY, MAX_NUM_SEQS, TOKEN_BUDGET}
    assert seen["static"] == {NOTHING, MEMORY, MAX_NUM_SEQS, BATCH}
    assert seen["tgi"] == {NOTHING, MEMORY, MAX_NUM_SEQS, TOKEN_BUDGET, PACE}
    assert seen["trtllm"] == {NOTHING, MEMORY, MAX_NUM_SEQS, TOKEN_BUDGET}
    assert seen["vllm_v0"] == {NOTHING, MEMORY, MAX_NUM_SEQS, TOKEN_BUDGET}
    assert seen["vllm_v1"] == {NOTHING, MEMORY, MAX_NUM_SEQS, TOKEN_BUDGET}
    assert seen["vllm_v1_async"] == {NOTHING, MEMORY, MAX_NUM_SEQS, TOKEN_BUDGET}


def test_every_policy_is_the_key_of_its_entry() -> None:
    assert [entry.kind for entry in SCHEDULERS.values()] == list(SCHEDULERS)


@pytest.mark.parametrize(
    ("policy", "parameters", "sentence"),
    [
        ("fcfs", {"max_num_seqs": 0}, "max_num_seqs: must be at least 1, got 0"),
        ("fcfs", {"max_num_batched_tokens": 0}, "max_num_batched_tokens: must be at least 1"),
        ("fcfs", {"enable_chunked_prefill": True}, "enable_chunked_prefill: chunks need a limit"),
        ("mini_sglang", {"max_num_seqs": 0}, "max_num_seqs: must be at least 1, got 0"),
        ("nano_vllm", {"max_num_seqs": 0}, "max_num_seqs: must be at least 1, got 0"),
        ("vllm_v1", {"max_num_batched_tokens": 0}, "max_num_batched_tokens: must be at least 1"),
        (
            "vllm_v1",
            {"long_prefill_token_threshold": -1},
            "long_prefill_token_threshold: must be at least 0, got -1",
        ),
        ("tgi", {"max_batch_total_tokens": 0}, "max_batch_total_tokens: must be at least 1, got 0"),
        ("tgi", {"waiting_served_ratio": -1.0}, "waiting_served_ratio: must be at least 0, got -1"),
        (
            "trtllm",
            {"capacity_scheduler_policy": "static_batch"},
            "capacity_scheduler_policy: unknown value 'static_batch'; accepted: guaranteed",
        ),
        ("vllm_v1", {"policy": "lifo"}, "policy: unknown value 'lifo'; accepted: fcfs, priority"),
    ],
)
def test_a_wrong_parameter_is_named_with_its_rule(
    policy: str, parameters: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match="^" + sentence):
        SCHEDULERS[policy](**parameters)
