"""Input that a kernel does not support gets one sentence."""

import pytest
import torch

from kernels.cases import Shape, make_case
from kernels.decode import DecodeConfig, contiguous_decode, paged_decode
from kernels.launch import KernelInputError, KVCache
from kernels.moves import append, copy_blocks
from kernels.prefill import paged_prefill
from kernels.splits import SplitPlan

CASE = make_case(Shape(), [20, 30])


def cache(k, v=None):
    return KVCache(k, k if v is None else v)


def size(*dims, dtype=torch.float32):
    return cache(torch.zeros(dims, dtype=dtype))


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        (size(4, 24, 2, 64), "block size 24 is not supported"),
        (size(4, 16, 2, 80), "head_dim 80 is not supported"),
        (size(4, 16, 2, 64, dtype=torch.float64), "dtype torch.float64 is not supported"),
        (size(4, 16, 2, 64, dtype=torch.float16), "do not go with a cache of torch.float16"),
        (size(4, 16, 3, 64), "8 query heads are not a multiple of 3 KV heads"),
        (size(4, 16, 2, 128), r"queries must be \(rows, num_heads, 128\)"),
        (size(64, 2, 64), "a paged cache has 4 dimensions"),
        (cache(torch.zeros(4, 16, 2, 64), torch.zeros(5, 16, 2, 64)), "k and v must have the same"),
    ],
)
def test_a_cache_without_a_kernel_is_refused_in_one_sentence(bad, sentence):
    with pytest.raises(KernelInputError, match=sentence):
        paged_decode(CASE.q, bad, CASE.block_table, CASE.lengths)


def test_wrong_tables_and_lengths_are_refused():
    with pytest.raises(KernelInputError, match=r"block_table must have shape \(2, -1\)"):
        paged_decode(CASE.q, CASE.cache, CASE.block_table[:1], CASE.lengths)
    with pytest.raises(KernelInputError, match="lengths must be contiguous int32 or int64"):
        paged_decode(CASE.q, CASE.cache, CASE.block_table, CASE.lengths.float())
    with pytest.raises(KernelInputError, match="a contiguous cache has 3 dimensions"):
        contiguous_decode(CASE.q, CASE.cache, CASE.first_slots, CASE.lengths)
    starts = torch.tensor([0, 1, 3], dtype=torch.int32)
    with pytest.raises(KernelInputError, match="query_starts must rise from 0"):
        paged_prefill(CASE.q, CASE.cache, CASE.block_table, starts, CASE.lengths)


def test_a_configuration_that_cannot_be_built_is_refused():
    def decode(**choice):
        paged_decode(CASE.q, CASE.cache, CASE.block_table, CASE.lengths, **choice)

    with pytest.raises(KernelInputError, match="lookup 'psychic' is unknown"):
        decode(config=DecodeConfig(lookup="psychic"))
    with pytest.raises(KernelInputError, match="multiple of block_n 64, not 16"):
        decode(config=DecodeConfig(lookup="ahead_scalar"))
    with pytest.raises(KernelInputError, match="a split must be a multiple of block_n"):
        decode(plan=SplitPlan(split_tokens=10, num_splits=3))


def test_wrong_moves_are_refused():
    k = torch.zeros(3, 2, 64)
    with pytest.raises(KernelInputError, match="slots must have shape"):
        append(k, k, CASE.cache, torch.zeros(2, dtype=torch.int64))
    with pytest.raises(KernelInputError, match="k has 4 heads, the cache 2"):
        append(torch.zeros(3, 4, 64), torch.zeros(3, 4, 64), CASE.cache, torch.zeros(3).long())
    with pytest.raises(KernelInputError, match="blocks of one shape and dtype"):
        copy_blocks(CASE.cache, size(4, 8, 2, 64), torch.zeros(1, 2).long())
    with pytest.raises(KernelInputError, match=r"pairs must have shape \(-1, 2\)"):
        copy_blocks(CASE.cache, CASE.cache, torch.zeros(1, 3).long())


def test_tensors_on_two_devices_are_refused():
    with pytest.raises(KernelInputError, match="all tensors must be on one device"):
        paged_decode(CASE.q, CASE.cache, CASE.block_table.to("meta"), CASE.lengths)
