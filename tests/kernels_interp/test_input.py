"""Input that a kernel does not support gets one sentence."""

import pytest
import torch

from kernels.cases import Shape, make_case
from kernels.decode import DecodeConfig, contiguous_decode, paged_decode
from kernels.launch import KernelInputError, KVCache
from kernels.moves import append, copy_blocks
from kernels.prefill import PrefillConfig, contiguous_prefill, paged_prefill
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
        (size(4, 16, 2, 128), r"queries must be \(rows, heads, 128\)"),
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
    with pytest.raises(KernelInputError, match="the new keys have 4 heads, the cache 2"):
        append(torch.zeros(3, 4, 64), torch.zeros(3, 4, 64), CASE.cache, torch.zeros(3).long())
    with pytest.raises(KernelInputError, match="blocks of one shape and dtype"):
        copy_blocks(CASE.cache, size(4, 8, 2, 64), torch.zeros(1, 2).long())
    with pytest.raises(KernelInputError, match=r"pairs must have shape \(-1, 2\)"):
        copy_blocks(CASE.cache, CASE.cache, torch.zeros(1, 3).long())


def test_new_keys_of_another_dtype_than_the_cache_are_refused_by_their_name():
    k = torch.zeros(1, 2, 64).half()
    with pytest.raises(KernelInputError, match=r"new keys of dtype torch.float16 do not go with"):
        append(k, k, CASE.cache, torch.zeros(1).long())
    with pytest.raises(KernelInputError, match=r"new keys must be \(rows, heads, 64\)"):
        append(k[0], k[0], CASE.cache, torch.zeros(1).long())


@pytest.mark.parametrize(
    ("pairs", "sentence"),
    [
        ([[0, 2], [1, 2]], "a block is a destination twice"),
        ([[0, 1], [1, 2]], r"blocks \[1\] are source and destination at once"),
        ([[0, 1], [-1, 2]], "source block -1 is not one of the"),
        ([[0, 99]], "destination block 99 is not one of the"),
    ],
)
def test_copies_whose_result_would_be_undefined_are_refused(pairs, sentence):
    with pytest.raises(KernelInputError, match=sentence):
        copy_blocks(CASE.cache, CASE.cache, torch.tensor(pairs))


def test_a_block_may_be_a_source_of_one_cache_and_a_destination_of_another():
    source, destination = (KVCache(*torch.rand(2, 3, 16, 2, 64)) for _ in range(2))
    copy_blocks(source, destination, torch.tensor([[0, 1], [1, 2]]))
    assert torch.equal(destination.k[2], source.k[1])


def test_keys_and_values_on_two_devices_are_refused():
    halves = KVCache(CASE.cache.k, CASE.cache.v.to("meta"))
    with pytest.raises(KernelInputError, match="k is on cpu, v on meta: use one device"):
        copy_blocks(halves, CASE.cache, torch.zeros(1, 2).long())


def test_a_block_that_32_bits_cannot_address_is_refused():
    x = torch.empty(1, device="meta").as_strided((2, 256, 2, 64), (1, 2**24, 64, 1))
    with pytest.raises(KernelInputError, match=r"it must stay below 2\*\*31"):
        paged_decode(CASE.q, KVCache(x, x), CASE.block_table, CASE.lengths)


def test_more_sequences_than_a_grid_has_rows_are_refused():
    q, many = torch.empty(70000, 8, 64), torch.ones(70000, dtype=torch.int32)
    sentence = "70000 sequences are more than the 65535"
    with pytest.raises(KernelInputError, match=sentence):
        contiguous_decode(q, CASE.flat, many, many)
    with pytest.raises(KernelInputError, match=sentence):
        contiguous_prefill(q, CASE.flat, many, torch.arange(70001, dtype=torch.int32), many)


def test_tensors_on_two_devices_are_refused():
    with pytest.raises(KernelInputError, match="all tensors must be on one device"):
        paged_decode(CASE.q, CASE.cache, CASE.block_table.to("meta"), CASE.lengths)


def decode(case=CASE, table=None, lengths=None, **choice):
    table = case.block_table if table is None else table
    lengths = case.lengths if lengths is None else lengths
    paged_decode(case.q, case.cache, table, lengths, **choice)


def prefill(starts, lengths, config=None):
    starts, lengths = (torch.tensor(x, dtype=torch.int32) for x in (starts, lengths))
    paged_prefill(CASE.q, CASE.cache, CASE.block_table, starts, lengths, config=config)


def test_a_split_plan_that_ends_before_the_longest_sequence_is_refused():
    long = make_case(Shape(), [20, 130])
    with pytest.raises(KernelInputError, match="covers 128 keys, the longest sequence has 130"):
        decode(long, plan=SplitPlan(128, 1), config=DecodeConfig(block_n=64))


def test_a_split_plan_without_pieces_is_refused():
    with pytest.raises(KernelInputError, match="a split must be a multiple of block_n"):
        decode(plan=SplitPlan(0, 1))


def test_a_block_table_narrower_than_a_length_needs_is_refused():
    narrow = CASE.block_table[:, :1].contiguous()
    with pytest.raises(KernelInputError, match="has 1 columns, a sequence of 30 keys needs 2"):
        decode(table=narrow)


def test_a_negative_length_is_refused():
    with pytest.raises(KernelInputError, match="cannot be negative, the smallest is -1"):
        decode(lengths=torch.tensor([-1, 30], dtype=torch.int32), plan=SplitPlan(128, 1))


def test_no_sequences_are_refused():
    none = torch.zeros(0, dtype=torch.int32)
    with pytest.raises(KernelInputError, match="at least one sequence"):
        contiguous_prefill(CASE.q[:0], CASE.flat, none, torch.zeros(1, dtype=torch.int32), none)
    with pytest.raises(KernelInputError, match="at least one sequence"):
        contiguous_decode(CASE.q[:0], CASE.flat, none, none, plan=SplitPlan(128, 1))


def test_a_cache_without_heads_is_refused():
    with pytest.raises(KernelInputError, match="at least one KV head"):
        paged_decode(CASE.q, size(4, 16, 0, 64), CASE.block_table, CASE.lengths)


def test_a_length_shorter_than_its_chunk_is_refused():
    with pytest.raises(KernelInputError, match="0 is less than the chunk of 1"):
        prefill([0, 1, 2], [0, 5])


@pytest.mark.parametrize("tile", [0, 8, 48])
def test_a_tile_that_is_no_power_of_two_from_16_on_is_refused(tile):
    with pytest.raises(KernelInputError, match=f"at least 16, it is {tile}"):
        decode(config=DecodeConfig(block_n=tile))
    with pytest.raises(KernelInputError, match=f"block_m must .* at least 16, it is {tile}"):
        prefill([0, 1, 2], [20, 30], PrefillConfig(block_m=tile))
    with pytest.raises(KernelInputError, match=f"block_n must .* at least 16, it is {tile}"):
        prefill([0, 1, 2], [20, 30], PrefillConfig(block_n=tile))
