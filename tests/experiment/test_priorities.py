"""Priorities from a trace to the scheduler, and what is said where one of the two lacks them."""

from pathlib import Path

import pytest

from experiment_files import HEAD, INLINE, PAGED, errors_of, load
from sim.engine import simulate
from sim.sequence import FIRST_SCHEDULED_NS

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
