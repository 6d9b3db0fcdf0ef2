"""Priorities from a trace to the scheduler, and what is said where one of the two lacks them."""

from pathlib import Path

import numpy as np
import pytest

from experiment_files import HEAD, INLINE, PAGED, errors_of, load
from sim.config.runspec import sequence_content
from sim.engine.simulation import Options, simulate
from sim.sequence import FIRST_SCHEDULED_NS
from workloads.canonical import write_canonical
from workloads.content import ContentBuilder
from workloads.trace import Trace

URGENT = """\
workload:
  kind: inline
  requests:
    - {prompt_tokens: 8, output_tokens: 3, priority: 0}
    - {prompt_tokens: 8, output_tokens: 3, priority: 5}
    - {prompt_tokens: 8, output_tokens: 3, priority: -1}
"""
BY_PRIORITY = "scheduler: {kind: vllm_v1, policy: priority, max_num_seqs: 1}\n"
IN_ORDER = "scheduler: {kind: vllm_v1, max_num_seqs: 1}\n"


@pytest.mark.parametrize(("scheduler", "order"), [(BY_PRIORITY, [2, 0, 1]), (IN_ORDER, [0, 1, 2])])
def test_requests_are_served_by_the_priorities_of_the_trace(
    tmp_path: Path, scheduler: str, order: list[int]
) -> None:
    spec = load(tmp_path, HEAD + URGENT + PAGED + scheduler).runs()[0]
    run = simulate(*spec.build()[1:])
    assert run.requests[:, FIRST_SCHEDULED_NS].argsort().tolist() == order


def test_a_policy_without_priorities_in_the_trace_is_refused(tmp_path: Path) -> None:
    """It would serve in order of arrival, and look like a result about priorities."""
    assert errors_of(tmp_path, HEAD + INLINE + PAGED + BY_PRIORITY) == [
        "x.yaml:10: scheduler: vllm_v1 needs priority of the trace; inline provides arrivals"
    ]


@pytest.mark.parametrize(
    ("scheduler", "named"), [(IN_ORDER, "vllm_v1"), ("", "fcfs"), (BY_PRIORITY, None)]
)
def test_priorities_that_nobody_reads_are_warned_of(
    tmp_path: Path, scheduler: str, named: str | None
) -> None:
    warnings = load(tmp_path, HEAD + URGENT + PAGED + scheduler).warnings
    sentence = "priority of the workload: requests are served in order of arrival with paged and "
    assert list(warnings) == ([] if named is None else [sentence + named])


RADIX = "allocator: {kind: radix, eviction_policy: %s}\n"


def write_four(folder: Path, priority: list[int] | None) -> str:
    """Two texts of 20 tokens, one of 30, and the first again, a second apart."""
    content = ContentBuilder()
    for source, length in ((1, 20), (2, 20), (3, 30), (1, 20)):
        content.add([(source, 0, length)], length)
    trace = Trace(
        arrival_ns=np.arange(4) * 1_000_000_000,
        prompt_tokens=np.array([20, 20, 30, 20]),
        output_tokens=np.array([1, 1, 1, 1]),
        content=content.build(),
        priority=None if priority is None else np.array(priority),
    )
    write_canonical(trace, folder / "four.parquet")
    return HEAD.replace("256", "64") + "workload: {kind: canonical, path: four.parquet}\n"


@pytest.mark.parametrize(("policy", "hit"), [("lru", 0), ("priority", 19)])
def test_a_tree_keeps_what_urgent_requests_have_left(tmp_path: Path, policy: str, hit: int) -> None:
    """Of 64 slots the third needs 30: the first text goes, or the second, which is less urgent."""
    text = write_four(tmp_path, [-1, 5, 0, 0])
    spec = load(tmp_path, text + RADIX % policy).runs()[0]
    trace, *parts = spec.build()
    run = simulate(*parts, Options(content=sequence_content(trace)))
    assert run.scheduler.counters()["num_hit_tokens"] == hit


def test_eviction_by_priorities_that_the_trace_has_not_is_refused(tmp_path: Path) -> None:
    """All would be equal: the result of lru under another name."""
    text = write_four(tmp_path, None)
    assert errors_of(tmp_path, text + RADIX % "priority") == [
        f"x.yaml:5: allocator: radix needs priority of the trace; {tmp_path}/four.parquet "
        "provides arrivals, prefix identity"
    ]
    assert load(tmp_path, text + RADIX % "lru").runs()
