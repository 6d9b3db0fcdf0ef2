"""Probes about sharing: each would say something else of another allocator, model or setting."""

import numpy as np
import pytest

from sim.allocators.paged_cow import PagedCow
from sim.beam_search import Step
from sim.claims.probes import branching, sharing
from sim.claims.probes.branching import UnequalSamples
from sim.sequence import IntArray
from workloads.beams import BeamModel


class WritesAnywhere(PagedCow):
    """Forgets that others hold a block: all counts are 1 while a token is written."""

    def append(self, rows: IntArray, counts: IntArray) -> int:
        self._refs[self._refs > 1] = 1
        return super().append(rows, counts)


class CopiesAlways(PagedCow):
    """Takes another block for a token though it holds the last one alone."""

    def append(self, rows: IntArray, counts: IntArray) -> int:
        last = [self.block_table(row)[-1] for row in rows.tolist()]
        self._refs[last] += 1
        return super().append(rows, counts)


@pytest.mark.parametrize(("prompt", "copies"), [(20, 1), (32, 0), (33, 1)])
def test_a_first_write_copies_the_last_block_and_none_if_that_is_full(
    prompt: int, copies: int
) -> None:
    assert sharing.first_write_copies(prompt) == copies


def test_random_histories_find_an_allocator_that_writes_into_shared_blocks() -> None:
    assert sharing.writes_in_place_when_alone(3, 100)
    assert not sharing.writes_in_place_when_alone(3, 100, WritesAnywhere)


def test_random_histories_find_an_allocator_that_copies_what_nobody_else_holds() -> None:
    assert not sharing.writes_in_place_when_alone(3, 100, CopiesAlways)


def test_all_users_but_one_spare_the_system_prompt() -> None:
    assert sharing.system_prompt_spares(2000, 100, "llama-2-70b")["tokens"] == 99 * 2000
    assert sharing.system_prompt_spares(2000, 2, "llama-2-70b")["tokens"] == 2000
    assert sharing.system_prompt_spares(40, 2, "llama-2-70b")["tokens"] == 32, "whole blocks only"


def test_a_smaller_model_does_not_spare_tens_of_gigabytes() -> None:
    assert sharing.system_prompt_spares(2000, 100, "llama-2-70b")["gb"] == pytest.approx(
        64.88, 1e-3
    )
    assert sharing.system_prompt_spares(2000, 10, "llama-3-8b")["gb"] < 10


def test_unequal_samples_end_one_by_one_and_the_longest_last() -> None:
    samples = UnequalSamples(np.array([[3, 2, 4]]))
    assert samples.step(0, is_prompt=True, is_last=False) == Step(forked=[0, 0])
    assert samples.step(0, is_prompt=False, is_last=False) == Step(ended=[1])
    assert samples.step(0, is_prompt=False, is_last=False) == Step(ended=[0])
    assert samples.step(0, is_prompt=False, is_last=True) == Step(ended=[0])


def test_samples_of_other_lengths_spare_less_and_more_samples_spare_more() -> None:
    def spared(num_samples: int, spread: float) -> float:
        few = branching.samples_spare_percent("alpaca", num_samples, spread, 60, num_seeds=1)
        return few.values[0]

    assert spared(2, 0.6) < spared(2, 0.0) < spared(6, 0.0)


def test_beams_that_switch_less_spare_less_and_so_do_beams_that_calm_down() -> None:
    def spared(concentration: float, calms_after: float | None = None) -> float:
        few = branching.beams_spare_percent("sharegpt", 4, concentration, 3, calms_after)
        return few.values[0]

    assert spared(0.03) < spared(0.3) < spared(3.0)
    assert spared(1.0, calms_after=10) < spared(1.0)


def test_a_calm_model_begins_as_the_other_one_does() -> None:
    calm = branching.Calming(7, 0.5, calms_after=1e9).search(3, 4)
    plain = BeamModel(7, 0.5).search(3, 4)
    assert [calm.parents(step) for step in range(20)] == [plain.parents(step) for step in range(20)]


def test_prompts_are_a_larger_part_of_memory_where_outputs_are_shorter_beside_them() -> None:
    alpaca = branching.prompt_share_percent("alpaca", 300, num_seeds=1).values[0]
    sharegpt = branching.prompt_share_percent("sharegpt", 300, num_seeds=1).values[0]
    assert 15 < alpaca < sharegpt < 50
