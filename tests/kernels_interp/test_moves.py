"""append, copy_blocks and the small layer operations, under the interpreter."""

import pytest
import torch

from kernels import cases, reference
from kernels.cases import Shape, make_case
from kernels.decode import paged_decode
from kernels.launch import FP8, KVCache
from kernels.layer_ops import add_rms_norm_launch, rope_launch, silu_and_mul_launch
from kernels.moves import append, copy_blocks


def zeros(shape, num_blocks=6):
    size = (num_blocks, shape.block_size, shape.num_kv_heads, shape.head_dim)
    dtype = shape.kv_dtype or shape.dtype
    return KVCache(
        torch.zeros(size, dtype=dtype), torch.zeros(size, dtype=dtype), shape.k_scale, shape.v_scale
    )


def clone(cache):
    return KVCache(cache.k.clone(), cache.v.clone(), cache.k_scale, cache.v_scale)


def same_bytes(a, b):
    return torch.equal(a.k.view(torch.uint8), b.k.view(torch.uint8)) and torch.equal(
        a.v.view(torch.uint8), b.v.view(torch.uint8)
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("block_size", [1, 16])
def test_append_writes_new_tokens_into_their_slots_and_skips_padding(dtype, block_size):
    shape = Shape(num_kv_heads=3, dtype=dtype, block_size=block_size)
    written, expected = zeros(shape), zeros(shape)
    k, v = torch.randn(2, 4, 3, 64).to(dtype)
    slots = torch.tensor([5, -1, 0, 3])
    append(k, v, written, slots)
    reference.append(k, v, expected, slots)
    assert same_bytes(written, expected)


def test_append_to_an_fp8_cache_divides_by_the_scale_and_cuts_off():
    # Values that e4m3 holds exactly, and some too large: the interpreter rounds others wrongly (a
    # mantissa that overflows loses its exponent), the hardware does not.
    shape = Shape(kv_dtype=FP8, k_scale=0.5, v_scale=2.0)
    exact = torch.randn(2, 5, 2, 64).to(FP8).float()
    k, v = exact[0] * 0.5, exact[1] * 2.0
    k[0, 0, :2] = torch.tensor([1e6, -1e6])
    written, expected = zeros(shape), zeros(shape)
    slots = torch.arange(10, 15)
    append(k, v, written, slots)
    reference.append(k, v, expected, slots)
    assert same_bytes(written, expected)
    assert written.k[0, 10, 0, :2].float().tolist() == [448.0, -448.0]


def test_append_reads_keys_out_of_a_fused_projection():
    fused = torch.randn(3, 12, 64)
    written, expected = zeros(Shape()), zeros(Shape())
    append(fused[:, 8:10], fused[:, 10:], written, torch.tensor([7, 20, 33]))
    reference.append(fused[:, 8:10], fused[:, 10:], expected, torch.tensor([7, 20, 33]))
    assert same_bytes(written, expected)


@pytest.mark.parametrize("kv_dtype", [torch.float32, torch.bfloat16, FP8])
@pytest.mark.parametrize("block_size", [1, 64])
def test_copy_blocks_copies_the_listed_blocks_and_no_other(kv_dtype, block_size):
    shape = Shape(kv_dtype=kv_dtype, block_size=block_size)
    cache = make_case(shape, [6 * block_size]).cache
    copied, expected = clone(cache), clone(cache)
    pairs = torch.tensor([[0, 3], [1, 5], [0, 6]])
    copy_blocks(cache, copied, pairs)
    reference.copy_blocks(cache, expected, pairs)
    assert same_bytes(copied, expected)


def test_blocks_swapped_out_and_in_again_are_unchanged():
    shape = Shape(dtype=torch.float16)
    case = make_case(shape, [64])
    blocks = case.block_table[0, :4].long()
    host = zeros(shape, 4)
    out = torch.stack([blocks, torch.arange(4)], 1)
    copy_blocks(case.cache, host, out)
    moved = zeros(shape, 4)
    copy_blocks(host, moved, torch.tensor([[0, 2], [1, 0], [2, 3], [3, 1]]))
    table = torch.tensor([[2, 0, 3, 1]], dtype=torch.int32)
    result = paged_decode(case.q, moved, table, case.lengths)
    assert torch.equal(result, paged_decode(case.q, case.cache, case.block_table, case.lengths))


def test_after_a_copy_on_write_both_sequences_see_their_own_tokens(forked_tables):
    shape = Shape()
    shared, forked, (old, new) = forked_tables(40, 16, seed=8)
    tables = [shared, [*shared, new]]  # the cache has that block too, full of NaN
    case = make_case(shape, [40, 40], tables=tables)
    copy_blocks(case.cache, case.cache, torch.tensor([[old, new]]))  # the second writes
    table = case.block_table.clone()
    table[1, : len(forked)] = torch.tensor(forked)
    k, v = torch.randn(2, 2, 2, 64)
    append(k, v, case.cache, torch.tensor([old * 16 + 8, new * 16 + 8]))  # token 40 of each
    lengths = case.lengths + 1
    result = paged_decode(case.q, case.cache, table, lengths)
    truth = reference.paged_decode(case.q, case.cache, table, lengths)
    assert cases.relative_error(result, truth) < cases.tolerance(shape)
    assert not torch.equal(case.cache.k[old, 8], case.cache.k[new, 8])
    assert torch.equal(case.cache.k[old, :8], case.cache.k[new, :8])


def test_add_rms_norm_updates_the_residual_and_normalises_it():
    x, residual, weight = torch.randn(2, 96), torch.randn(2, 96), torch.randn(96)
    total, out = x + residual, torch.empty(2, 96)
    add_rms_norm_launch(x, residual, weight, out)()
    assert torch.equal(residual, total)
    expected = torch.nn.functional.rms_norm(total.double(), (96,), weight.double(), 1e-5)
    assert cases.relative_error(out, expected) < 1e-6


def test_rope_rotates_by_the_position_in_place():
    x = torch.randn(2, 3, 64)
    angle = torch.arange(8)[:, None] / 100.0 ** (torch.arange(32) / 32)
    positions = torch.tensor([0, 5], dtype=torch.int32)
    low, high = x.double().chunk(2, -1)
    turn = torch.polar(torch.ones(2, 32).double(), angle[positions.long()].double())[:, None]
    expected = torch.complex(low, high) * turn
    rope_launch(x, angle.cos(), angle.sin(), positions)()
    assert cases.relative_error(x, torch.cat([expected.real, expected.imag], -1)) < 1e-6


def test_silu_and_mul_gates_the_upper_half():
    x, out = torch.randn(2, 2 * 1100), torch.empty(2, 1100)
    silu_and_mul_launch(x, out)()
    gate, up = x.double().chunk(2, -1)
    assert cases.relative_error(out, torch.nn.functional.silu(gate) * up) < 1e-6
