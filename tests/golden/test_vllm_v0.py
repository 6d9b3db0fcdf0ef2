"""Step for step and block for block what vLLM's v0 engine (0.2.7) did, in every recorded case.

The cases are not part of this repository: $KVSIM_GOLDEN_DIR or $KVSIM_SHARED/golden says where
they are.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recorded import Case, case_paths, read_case
from replay_v0 import Recording, Replay, longest_of, parts_of, requests_of
from sim.allocators.paged_cow import PagedCow
from sim.costs.linear import Constant
from sim.engine.simulation import Memory, Options, simulate
from sim.schedulers.vllm_v0 import VllmV0

ENGINE = "vllm_v0"
STEP_NS = 1000


def cases() -> list[Any]:
    found = [pytest.param(path, id=path.name) for path in case_paths(ENGINE)]
    reason = f"no cases of {ENGINE}: set KVSIM_GOLDEN_DIR or KVSIM_SHARED"
    return found or [pytest.param(None, id="absent", marks=pytest.mark.skip(reason))]


@pytest.mark.parametrize("path", cases())
def test_every_step_of_a_recorded_case_is_the_engines(path: Path) -> None:
    case = read_case(path)
    difference = Replay(case, *parts_of(case)).first_difference()
    assert difference is None, f"{case.name}: {difference}"


def why_not_simulated(case: Case) -> str:
    """Why a case cannot be run by the engine's own loop; empty if it can."""
    last = case.steps[-1]
    if last["error"]:
        return "the engine stopped with an error"
    if last["after_update"]["running"]:
        return "the recording ends before the last request does"
    if any(not step["scheduled"] for step in case.steps):
        return "a step without tokens takes time in the engine, and none here"
    return ""


def number_on_arrival(scheduler: VllmV0, recording: Recording) -> None:
    """Sequences get their numbers where the engine gives them: when their requests arrive."""
    for name in ("add", "reject"):
        method: Callable[..., None] = getattr(scheduler, name)

        def arrive(request: int, *more: Any, method: Callable[..., None] = method) -> None:
            recording.arrive(request)
            method(request, *more)

        setattr(scheduler, name, arrive)


@pytest.mark.parametrize("path", cases())
def test_a_case_run_with_sleeps_ends_like_the_engine(path: Path) -> None:
    """Every iteration takes one step's time, so that requests arrive where the engine saw them."""
    case = read_case(path)
    reason = why_not_simulated(case)
    if reason:
        pytest.skip(reason)
    allocator, scheduler = parts_of(case)
    assert isinstance(allocator, PagedCow)
    assert isinstance(scheduler, VllmV0)
    allocator.release_order = set
    config, last = case.config, case.steps[-1]
    memory = Memory(config["num_gpu_blocks"] * config["block_size"], longest_of(case))
    recording = Recording(case)
    number_on_arrival(scheduler, recording)
    options = Options(branches=recording)
    cost = Constant(STEP_NS * 1e-9)
    run = simulate(requests_of(case, STEP_NS), memory, allocator, scheduler, cost, options)
    assert run.end_ns == (last["step"] + 1) * STEP_NS
    state = last["after_update"]
    assert allocator.free_list()[::-1].tolist() == state["gpu_free_list"]
    assert (allocator.host_free_list()[::-1] - config["num_gpu_blocks"]).tolist() == state[
        "cpu_free_list"
    ]
