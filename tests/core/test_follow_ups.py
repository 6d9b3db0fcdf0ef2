"""Turns of conversations arrive when the turn before them has finished."""

import numpy as np
import pytest

from sim.allocators.paged import Paged
from sim.allocators.unbounded import Unbounded
from sim.config.runspec import follow_ups
from sim.costs.linear import Constant
from sim.engine.arrivals import FollowUps
from sim.engine.simulation import Memory, Options, Run, simulate
from sim.schedulers import Fcfs, Scheduler
from sim.schedulers.static import Static
from sim.sequence import (
    ARRIVAL_NS,
    FAILED,
    FINISH_NS,
    FINISHED,
    REJECTED,
    STATUS,
    Limits,
    new_requests,
)
from workloads.combine import Mix

US = 1_000

Turns = list[tuple[int, int, int, int, int]]  # arrival in µs, prompt, output, parent, think in µs


def run(turns: Turns, scheduler: Scheduler | None = None, num_slots: int = 1000) -> Run:
    arrivals, prompts, outputs, parents, think = np.array(turns, np.int64).T
    requests = new_requests(arrivals * US, prompts, outputs, Limits(100, outputs))
    options = Options(follow_ups=FollowUps(parents, think * US))
    memory = Memory(num_slots, 100)
    return simulate(requests, memory, Unbounded(), scheduler or Fcfs(), Constant(1e-6), options)


def times_us(run: Run, column: int) -> list[float]:
    return (run.requests[:, column] / US).tolist()


def test_a_turn_arrives_after_its_parent_has_finished_and_its_user_has_thought() -> None:
    done = run([(0, 5, 3, -1, 0), (0, 9, 2, 0, 10), (0, 12, 1, 1, 4)])
    assert times_us(done, ARRIVAL_NS) == [0, 13, 19]
    assert times_us(done, FINISH_NS) == [3, 15, 20]


def test_without_thinking_a_turn_arrives_a_nanosecond_later() -> None:
    done = run([(0, 5, 3, -1, 0), (0, 9, 2, 0, 0)])
    assert done.requests[1, ARRIVAL_NS] == done.requests[0, FINISH_NS] + 1


def test_turns_of_one_instant_arrive_in_the_order_of_their_ids() -> None:
    """Requests 1 and 2 follow 0; request 3 has a time of its own, the same; one runs at a time."""
    done = run([(0, 5, 2, -1, 0), (0, 5, 1, 0, 3), (0, 5, 1, 0, 3), (5, 5, 1, -1, 0)], Fcfs(1))
    assert times_us(done, ARRIVAL_NS) == [0, 5, 5, 5]
    assert times_us(done, FINISH_NS) == [2, 6, 7, 8]


def test_the_answers_of_a_static_batch_come_at_its_end_and_so_do_their_follow_ups() -> None:
    done = run([(0, 5, 2, -1, 0), (0, 5, 6, -1, 0), (0, 5, 1, 0, 1)], Static())
    assert times_us(done, ARRIVAL_NS) == [0, 0, 7]


def test_a_turn_whose_parent_is_rejected_is_rejected_too_and_so_on() -> None:
    done = run([(3, 100, 2, -1, 0), (3, 9, 2, 0, 1), (3, 9, 2, 1, 1), (4, 5, 1, -1, 0)])
    assert done.requests[:, STATUS].tolist() == [REJECTED, REJECTED, REJECTED, FINISHED]
    assert done.scheduler.reasons[1] == "follows request 0, which did not finish"
    assert done.scheduler.reasons[2] == "follows request 1, which did not finish"
    assert times_us(done, ARRIVAL_NS) == [3, 3, 3, 4]
    assert done.scheduler.num_waiting == 0


def test_a_turn_whose_parent_fails_is_rejected_when_it_does() -> None:
    arrivals, prompts, outputs = np.array([(0, 4, 30), (0, 4, 2)], np.int64).T
    requests = new_requests(arrivals, prompts, outputs, Limits(100, outputs))
    options = Options(follow_ups=FollowUps(np.array([-1, 0]), np.array([0, 5])))
    paged = Paged(block_size=1)
    simulate(requests, Memory(12, 100), paged, Fcfs(), Constant(1e-6), options)
    assert requests[:, STATUS].tolist() == [FAILED, REJECTED]
    assert requests[1, FINISH_NS] == requests[0, FINISH_NS] > 0


def test_who_needs_no_answer_asks_again_after_a_refusal_or_a_failure() -> None:
    turns = np.array([(3, 100, 2, -1), (3, 4, 30, 0), (3, 4, 2, 1), (3, 4, 2, 1)], np.int64).T
    requests = new_requests(turns[0] * US, turns[1], turns[2], Limits(100, turns[2]))
    needs_answer = np.array([False, False, True, False])
    options = Options(follow_ups=FollowUps(turns[3], np.array([0, 5, 0, 0]) * US, needs_answer))
    simulate(requests, Memory(12, 100), Paged(block_size=1), Fcfs(), Constant(1e-6), options)
    assert requests[:, STATUS].tolist() == [REJECTED, FAILED, REJECTED, FINISHED]
    assert requests[1, ARRIVAL_NS] == 8 * US
    assert requests[3, ARRIVAL_NS] == requests[1, FINISH_NS] + 1


@pytest.mark.parametrize("seed", range(20))
def test_refused_users_ask_again_at_the_same_times_with_and_without_sleeping(seed: int) -> None:
    """Many are too long, and others queue for memory: refusals come in the middle of a sleep."""
    draw = np.random.default_rng(seed)
    parents = np.maximum(np.arange(60) - 6, -1)
    prompts = np.where(draw.random(60) < 0.4, 100, draw.integers(1, 20, 60))
    outputs = draw.integers(1, 40, 60)
    think = draw.integers(0, 5000, 60)
    needs = draw.random(60) < 0.1
    found = []
    for single_step in (True, False):
        requests = new_requests(np.zeros(60, np.int64), prompts, outputs, Limits(100, outputs))
        options = Options(single_step, follow_ups=FollowUps(parents, think, needs))
        paged = Paged(block_size=4)
        done = simulate(requests, Memory(80, 100), paged, Fcfs(), Constant(1e-6), options)
        found.append((requests.tolist(), done.recorder.timeline(), done.recorder.num_iterations))
        assert done.recorder.num_queued_iterations
    assert found[0] == found[1]


@pytest.mark.parametrize("kinds", [["loop"], ["chat"], ["loop", "chat"]])
def test_only_turns_of_one_session_need_the_answer_before(kinds: list[str]) -> None:
    turns = {"loop": {"kind": "closed_loop", "users": 2}, "chat": {"kind": "chat", "count": 3}}
    part = {"kind": "synthetic", "num_requests": 6, "prompt_tokens": 5, "output_tokens": 4}
    part["arrivals"] = {"kind": "poisson", "rate": 1.0}
    trace = Mix([{**part, "turns": turns[kind]} for kind in kinds]).load(0)
    found = follow_ups(trace)
    assert found is not None
    assert found.needs_answer is not None
    assert int(found.needs_answer.sum()) == (4 if "chat" in kinds else 0)


@pytest.mark.parametrize("users", [1, 3])
def test_a_closed_loop_never_has_more_requests_than_users(users: int) -> None:
    turns: Turns = [(0, 5, 4, i - users if i >= users else -1, 7) for i in range(30)]
    done = run(turns)
    assert done.recorder.num_running_max <= users
    assert (done.requests[:, STATUS] == FINISHED).all()
    assert done.end_ns == 30 // users * (4 + 7) * US - 7 * US
