"""paged_decode and contiguous_decode against float64, under the interpreter.

Few programs and large tiles: an interpreted loop iteration costs about ten milliseconds whatever
its size.
"""

import pytest
import torch

from kernels import cases, reference
from kernels.cases import Shape, make_case
from kernels.decode import DecodeConfig, contiguous_decode, paged_decode
from kernels.launch import BLOCK_SIZES, FP8, KVCache
from kernels.splits import equal_splits

LENGTHS = [1, 97, 64, 130]  # one token, a part of a tile, exactly one tile, two and a bit
DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def error(case, result):
    truth = reference.paged_decode(case.q, case.cache, case.block_table, case.lengths)
    return cases.relative_error(result, truth)


def decode(case, **choice):
    return paged_decode(case.q, case.cache, case.block_table, case.lengths, **choice)


def decode_flat(case, **choice):
    return contiguous_decode(case.q, case.flat, case.first_slots, case.lengths, **choice)


@pytest.mark.parametrize("block_size", BLOCK_SIZES)
def test_every_block_size_in_shuffled_order_agrees_with_float64(block_size, tables_from_allocator):
    shape = Shape(block_size=block_size)
    case = make_case(shape, LENGTHS, tables=tables_from_allocator(LENGTHS, block_size, seed=3))
    assert error(case, decode(case)) < cases.tolerance(shape)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("num_splits", [1, 3])
def test_every_dtype_agrees_with_float64_with_and_without_splits(dtype, num_splits):
    shape = Shape(dtype=dtype, head_dim=128)
    case = make_case(shape, LENGTHS)
    result = decode(case, plan=equal_splits(max(LENGTHS), num_splits, 64))
    assert result.dtype == dtype
    assert error(case, result) < cases.tolerance(shape)


@pytest.mark.parametrize("dtype", DTYPES[1:])
def test_fp8_keys_and_values_are_scaled_back(dtype):
    shape = Shape(dtype=dtype, kv_dtype=FP8, head_dim=128, k_scale=0.5, v_scale=3.0)
    case = make_case(shape, LENGTHS)
    assert error(case, decode(case)) < cases.tolerance(shape)


@pytest.mark.parametrize("head_dim", [64, 128, 256])
@pytest.mark.parametrize("heads", [(2, 2), (8, 2), (6, 2), (5, 1)], ids=str)
def test_every_head_size_and_grouping_agrees_with_float64(head_dim, heads):
    shape = Shape(*heads, head_dim=head_dim)
    case = make_case(shape, [1, 70])
    assert error(case, decode(case)) < cases.tolerance(shape)


def test_a_group_larger_than_a_tile_takes_several_programs():
    shape = Shape(80, 1)
    case = make_case(shape, [65])
    assert error(case, decode(case)) < cases.tolerance(shape)


@pytest.mark.parametrize("num_splits", [1, 2, 5])
def test_paging_does_not_change_a_single_bit(num_splits):
    case = make_case(Shape(dtype=torch.float16), [1, 97, 300])
    plan, config = equal_splits(300, num_splits, 64), DecodeConfig()
    paged = decode(case, plan=plan, config=config)
    assert torch.equal(paged, decode_flat(case, plan=plan, config=config))


@pytest.mark.parametrize("lookup", ["inline", "ahead", "inline_scalar", "ahead_scalar"])
def test_every_lookup_gives_the_same_bits(lookup):
    case = make_case(Shape(block_size=64), LENGTHS)
    plan = equal_splits(max(LENGTHS), 2, 64)
    expected = decode_flat(case, plan=plan, config=DecodeConfig())
    assert torch.equal(decode(case, plan=plan, config=DecodeConfig(lookup=lookup)), expected)


def test_a_different_split_or_tile_changes_only_rounding():
    shape = Shape()
    case = make_case(shape, [300, 40])
    whole = decode(case, plan=equal_splits(300, 1, 64), config=DecodeConfig())
    for splits, block_n in [(2, 64), (4, 32), (3, 128)]:
        config, plan = DecodeConfig(block_n=block_n), equal_splits(300, splits, block_n)
        parts = decode(case, plan=plan, config=config)
        assert cases.relative_error(parts, whole.double()) < cases.tolerance(shape)


def test_more_pieces_than_one_combine_step_takes_are_merged():
    shape = Shape(4, 1, block_size=8)
    case = make_case(shape, [18 * 16, 16])
    config = DecodeConfig(block_n=16)
    result = decode(case, plan=equal_splits(288, 18, 16), config=config)
    assert error(case, result) < cases.tolerance(shape)


def test_a_padded_row_of_length_zero_gives_zeros():
    case = make_case(Shape(), [0, 20])
    for num_splits in (1, 2):
        result = decode(case, plan=equal_splits(256, num_splits, 128))
        assert torch.equal(result[0], torch.zeros_like(result[0]))
        assert error(case, result) < cases.tolerance(Shape())


def test_a_prefix_shared_by_two_tables_is_read_by_both(tables_from_allocator):
    first, second = tables_from_allocator([60, 75], 16, seed=9)
    tables = [first, [*first[:3], *second[3:]]]  # 48 tokens
    case = make_case(Shape(), [60, 75], tables=tables)
    assert error(case, decode(case)) < cases.tolerance(Shape())
    assert torch.equal(decode(case), decode_flat(case))


def test_a_cache_that_stores_heads_before_slots_is_read_through_its_strides():
    case = make_case(Shape(), LENGTHS)
    k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in (case.cache.k, case.cache.v))
    result = paged_decode(case.q, KVCache(k, v), case.block_table, case.lengths)
    assert torch.equal(result, decode(case))


def test_queries_may_be_a_view_into_a_fused_projection():
    case = make_case(Shape(), LENGTHS)
    fused = torch.full((len(LENGTHS), 12, 64), float("nan"))
    fused[:, :8] = case.q
    result = paged_decode(fused[:, :8], case.cache, case.block_table, case.lengths)
    assert torch.equal(result, decode(case))


def test_addresses_beyond_two_to_the_31_elements_are_reached():
    shape = Shape(4, 1, head_dim=64, block_size=16, dtype=torch.float16)
    case = make_case(shape, [20])
    stride = (
        2**31 // 2 + 1024
    )  # block 2 then lies past 2**31 elements; untouched memory costs nothing
    pools = [torch.empty(3 * stride, dtype=torch.float16) for _ in "kv"]
    k, v = (pool.as_strided((3, 16, 1, 64), (stride, 64, 64, 1)) for pool in pools)
    far = torch.tensor([[2, 1]], dtype=torch.int32)
    for logical, physical in enumerate([2, 1]):
        block = case.block_table[0, logical].item()
        k[physical], v[physical] = case.cache.k[block], case.cache.v[block]
    assert torch.equal(paged_decode(case.q, KVCache(k, v), far, case.lengths), decode(case))
