"""Step for step and block for block what vLLM's v1 engine did, in every recorded case.

The cases are not part of this repository: $KVSIM_GOLDEN_DIR or $KVSIM_SHARED/golden says where
they are.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recorded import Case, RecordedContent, case_paths, read_case
from replay_v1 import VERSIONS, Replay, parts_of, requests_of
from sim.allocators.checked import visible_state
from sim.costs.linear import Constant
from sim.engine.simulation import Memory, Options, simulate

STEP_NS = 1000


def cases(engine: str) -> list[Any]:
    found = [pytest.param(engine, path, id=f"{engine}-{path.name}") for path in case_paths(engine)]
    reason = f"no cases of {engine}: set KVSIM_GOLDEN_DIR or KVSIM_SHARED"
    absent = pytest.param(engine, None, id=f"{engine}-absent", marks=pytest.mark.skip(reason))
    return found or [absent]


every_case = pytest.mark.parametrize(
    ("engine", "path"), [case for engine in VERSIONS for case in cases(engine)]
)


@every_case
def test_every_step_of_a_recorded_case_is_the_engines(engine: str, path: Path) -> None:
    case = read_case(path)
    difference = Replay(case, *parts_of(case, VERSIONS[engine])).first_difference()
    assert difference is None, f"{case.name}: {difference}"


@every_case
def test_a_case_run_with_sleeps_ends_like_the_engine(engine: str, path: Path) -> None:
    """Every iteration takes one step's time, so that requests arrive where the engine saw them."""
    case = read_case(path)
    config, last = case.config, case.steps[-1]
    if last.get("stalled") or "free_queue" not in last["after_update"]:
        pytest.skip("the case's end is not recorded in full")
    if config["pipeline_depth"] != 1:
        pytest.skip("with a step in flight the engine's loop sees arrivals at other moments")
    if last["after_update"]["running"]:
        pytest.skip("the recording ends before the last request does")
    allocator, scheduler = parts_of(case, VERSIONS[engine])
    requests = requests_of(case, STEP_NS)
    memory = Memory(config["num_gpu_blocks"] * config["block_size"], config["max_model_len"])
    options = Options(content=RecordedContent(case.requests))
    run = simulate(requests, memory, allocator, scheduler, Constant(STEP_NS * 1e-9), options)
    assert run.end_ns == (last["step"] + 1) * STEP_NS
    state = visible_state(allocator)
    assert state["free_list"].tolist() == last["after_update"]["free_queue"]
    assert state["findable"][:, 0].tolist() == last["after_update"]["hashed_blocks"]
    assert not np.any(state["ref_counts"])


def test_a_difference_says_step_field_and_both_values() -> None:
    paths = case_paths("vllm_v1")
    if not paths:
        pytest.skip("no cases of vllm_v1")
    case: Case = read_case(paths[0])
    case.steps[1]["after_update"]["free_blocks"] += 1
    found = Replay(case, *parts_of(case, VERSIONS["vllm_v1"])).first_difference()
    step, blocks = case.steps[1]["step"], case.steps[1]["after_update"]["free_blocks"]
    words = f"step {step}, after_update.free_blocks: recorded {blocks}, ours {blocks - 1}"
    assert str(found) == words
