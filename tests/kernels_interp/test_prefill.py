"""paged_prefill and contiguous_prefill against float64, under the interpreter."""

import pytest
import torch

from kernels import cases, reference
from kernels.cases import Shape, make_case
from kernels.decode import paged_decode
from kernels.launch import FP8
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


@pytest.mark.parametrize("block_size", [1, 16, 64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_ragged_chunks_with_context_agree_with_float64(block_size, dtype):
    shape = Shape(block_size=block_size, dtype=dtype, head_dim=128, num_kv_heads=1)
    case = make_case(shape, LENGTHS, num_queries=QUERIES)
    assert error(case, prefill(case)) < cases.tolerance(shape)


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
