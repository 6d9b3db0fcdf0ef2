"""How many pieces a sequence is cut into."""

import pytest

from kernels.launch import KernelInputError
from kernels.splits import MAX_SPLITS, equal_splits, plan_splits

SLOTS = 3 * 132


def test_one_long_sequence_is_cut_to_fill_the_gpu():
    plan = plan_splits([32768], num_heads=8, slots=SLOTS, tile=64)
    assert 0.8 * SLOTS <= 8 * plan.num_splits <= SLOTS


def test_a_batch_that_fills_the_gpu_exactly_is_not_cut():
    assert plan_splits([1024] * 48, num_heads=8, slots=384, tile=64).num_splits == 1


def test_short_sequences_are_not_cut():
    assert plan_splits([64] * 4, num_heads=8, slots=SLOTS, tile=64).num_splits == 1


def test_one_long_sequence_in_a_batch_of_short_ones_is_cut():
    plan = plan_splits([32768] + [256] * 63, num_heads=8, slots=SLOTS, tile=64)
    assert plan.num_splits > 8


@pytest.mark.parametrize("lengths", [[1], [0, 5], [100_000], [2**20], [77, 4096, 12]])
def test_pieces_cover_every_key_and_are_whole_tiles(lengths):
    plan = plan_splits(lengths, num_heads=8, slots=SLOTS, tile=64)
    assert plan.split_tokens % 64 == 0
    assert 1 <= plan.num_splits <= MAX_SPLITS
    assert (plan.num_splits - 1) * plan.split_tokens < max(lengths) or plan.num_splits == 1
    assert plan.num_splits * plan.split_tokens >= max(lengths)


def test_impossible_requests_are_refused():
    with pytest.raises(KernelInputError, match="non-empty list of counts"):
        plan_splits([], 8, SLOTS, 64)
    with pytest.raises(KernelInputError, match="num_splits must be between 1 and"):
        equal_splits(100, 0, 64)
