"""paged_prefill and contiguous_prefill against float64, under the interpreter."""

import pytest
import torch

from kernels import cases, reference
from kernels.cases import Shape, make_case
from kernels.decode import paged_decode
from kernels.launch import BLOCK_SIZES, FP8
from kernels.moves import append, copy_blocks
from kernels.prefill import contiguous_prefill, paged_prefill

LENGTHS = [1, 70, 200, 33]  # earlier context and chunk together
QUERIES = [1, 70, 90, 0]  # one token, all of it, a chunk with context, nothing new


def prefill(case, **choice):
    return paged_prefill(
        case.q, case.cache, case.block_table, case.query_starts, case.lengths, **choice
    )


def prefill_flat(case):
    return contiguous_prefill(case.q, case.flat, case.first_slots, case.query_starts, case.lengths)


def error(case, result):
    truth = reference.paged_prefill(
        case.q, case.cache, case.block_table, case.query_starts, case.lengths
    )
    return cases.relative_error(result, truth)


@pytest.mark.parametrize("block_size", BLOCK_SIZES)
def test_every_block_size_in_the_allocators_order_agrees_with_float64(
    block_size, tables_from_allocator
):
    shape = Shape(4, 1, block_size=block_size)
    tables = tables_from_allocator(LENGTHS, block_size, seed=4)
    case = make_case(shape, LENGTHS, num_queries=QUERIES, tables=tables)
    assert error(case, prefill(case)) < cases.tolerance(shape)


@pytest.mark.parametrize("block_size", [1, 16, 64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_ragged_chunks_with_context_agree_with_float64(block_size, dtype, tables_from_allocator):
    shape = Shape(block_size=block_size, dtype=dtype, head_dim=128, num_kv_heads=1)
    tables = tables_from_allocator(LENGTHS, block_size, seed=5)
    case = make_case(shape, LENGTHS, num_queries=QUERIES, tables=tables)
    assert error(case, prefill(case)) < cases.tolerance(shape)


@pytest.mark.parametrize("block_size", [1, 16])
def test_a_chunk_after_a_prefix_shared_by_two_tables_sees_the_prefix(
    block_size, tables_from_allocator
):
    first, second = tables_from_allocator([96, 75], block_size, seed=6)
    blocks = 48 // block_size  # the second sequence begins with the first one's 48 tokens
    tables = [first, [*first[:blocks], *second[blocks:]]]
    shape = Shape(4, 1, block_size=block_size)
    case = make_case(shape, [96, 75], num_queries=[48, 27], tables=tables)
    assert error(case, prefill(case)) < cases.tolerance(shape)
    assert torch.equal(prefill(case), prefill_flat(case))


@pytest.mark.parametrize("block_size", [8, 16])
def test_after_a_copy_on_write_a_chunk_sees_its_own_tokens(block_size, forked_tables):
    length = 5 * block_size - 3  # the last block has three slots left
    shared, forked, copy = forked_tables(length, block_size, seed=7)
    shape = Shape(4, 1, block_size=block_size)
    tables = [shared, [*shared, copy[1]]]  # the cache has that block too, full of NaN
    case = make_case(shape, [length] * 2, num_queries=[2, 2], tables=tables)
    copy_blocks(case.cache, case.cache, torch.tensor([copy]))
    slots = [block * block_size + block_size - 3 + i for block in copy for i in range(2)]
    k, v = torch.randn(2, 4, 1, 64)
    append(k, v, case.cache, torch.tensor(slots))
    table = case.block_table.clone()
    table[1, : len(forked)] = torch.tensor(forked)
    spans = table, case.query_starts, case.lengths + 2
    result = paged_prefill(case.q, case.cache, *spans)
    truth = reference.paged_prefill(case.q, case.cache, *spans)
    assert cases.relative_error(result, truth) < cases.tolerance(shape)
    assert not torch.equal(result[:2], result[2:])


@pytest.mark.parametrize("head_dim", [64, 256])
@pytest.mark.parametrize("heads", [(1, 1), (3, 1), (7, 1)], ids=str)
def test_every_head_size_and_odd_groupings_agree_with_float64(head_dim, heads):
    shape = Shape(*heads, head_dim=head_dim)
    case = make_case(shape, [60], num_queries=[45])
    assert error(case, prefill(case)) < cases.tolerance(shape)


def test_fp8_keys_and_values_are_scaled_back():
    shape = Shape(dtype=torch.float16, kv_dtype=FP8, k_scale=0.5, v_scale=2.0)
    case = make_case(shape, LENGTHS, num_queries=QUERIES)
    assert error(case, prefill(case)) < cases.tolerance(shape)


@pytest.mark.parametrize("block_size", [16, 128])
def test_paging_does_not_change_a_single_bit(block_size):
    shape = Shape(block_size=block_size, dtype=torch.float16)
    case = make_case(shape, LENGTHS, num_queries=QUERIES)
    assert torch.equal(prefill(case), prefill_flat(case))


def test_two_chunks_give_what_one_chunk_gives():
    whole = make_case(Shape(4, 1), [150], num_queries=[150])
    second = whole.query_starts.clone()
    second[1] = 50
    result = paged_prefill(whole.q[100:], whole.cache, whole.block_table, second, whole.lengths)
    assert cases.relative_error(result, prefill(whole)[100:].double()) < 2e-6


def test_a_chunk_of_one_token_is_a_decode():
    case = make_case(Shape(), [40, 129])
    decoded = paged_decode(case.q, case.cache, case.block_table, case.lengths)
    assert cases.relative_error(prefill(case), decoded.double()) < 2e-6
