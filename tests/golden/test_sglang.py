"""Operation for operation and tick for tick what SGLang's radix cache did, in every recorded case.

The cases are not part of this repository: $KVSIM_GOLDEN_DIR or $KVSIM_SHARED/golden says where
they are.
"""

from pathlib import Path
from typing import Any

import pytest

from recorded_tree import ENGINE, case_paths, is_of_requests, read_case
from replay_requests import RequestReplay, allocator_of
from replay_tree import TreeReplay, tree_of


def cases() -> list[Any]:
    found = [pytest.param(path, id=f"{path.parent.name}-{path.name}") for path in case_paths()]
    reason = f"no cases of {ENGINE}: set KVSIM_GOLDEN_DIR or KVSIM_SHARED"
    return found or [pytest.param(None, id="absent", marks=pytest.mark.skip(reason))]


@pytest.mark.parametrize("path", cases())
def test_every_operation_of_a_recorded_case_does_what_the_engine_did(path: Path) -> None:
    case = read_case(path)
    if is_of_requests(case):
        difference = RequestReplay(case, allocator_of(case)).first_difference()
    else:
        difference = TreeReplay(case, tree_of(case)).first_difference()
    assert difference is None, f"{case.name}: {difference}"


def test_a_difference_says_operation_field_and_both_values() -> None:
    paths = [path for path in case_paths() if is_of_requests(read_case(path))]
    if not paths:
        pytest.skip(f"no cases of {ENGINE}")
    case = read_case(paths[0])
    case.records[1]["state"]["available"] += 1
    found = RequestReplay(case, allocator_of(case)).first_difference()
    name, available = case.ops[1]["op"], case.records[1]["state"]["available"]
    words = f"op 1 ({name}), state.available: recorded {available}, ours {available - 1}"
    assert str(found) == words
