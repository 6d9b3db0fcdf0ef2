"""What a workload has and nothing simulates is said before a run, not left out silently."""

from pathlib import Path

import pytest

from experiment_files import HEAD, load

SHARING = (
    "workload: {kind: sharegpt, num_requests: 5, arrivals: {kind: all_at_once}, %s}\n"
    "allocator:\n  - {kind: paged}\n  - {kind: unbounded}\n"
)


@pytest.mark.parametrize(
    ("block", "sentence"),
    [
        ("num_samples: 4", "samples of the workload: one sample a request is simulated"),
        ("beam_width: 4", "beams of the workload: one sequence a request is simulated, and no"),
        ("prefix: [80]", "prefix identity of the workload: every prompt is computed and kept"),
    ],
)
def test_facts_of_a_workload_that_no_plug_in_uses_are_warned_of(
    tmp_path: Path, block: str, sentence: str
) -> None:
    warnings = load(tmp_path, HEAD + SHARING % block).warnings
    assert [line.startswith(sentence) for line in warnings] == [True, True]
    assert [line.rpartition(" with ")[2] for line in warnings] == [
        "paged and fcfs",
        "unbounded and fcfs",
    ]


def test_a_plain_workload_is_warned_of_nothing(tmp_path: Path) -> None:
    assert load(tmp_path, HEAD + SHARING % "scale_to_paper: false").warnings == ()
