"""Addresses past 2**31 elements, which 32-bit arithmetic does not reach.

The memory is reserved, not used: untouched pages cost nothing and read as zeros. Tensors begin in
its middle: what wraps around to the negative reads or writes zeros there and fails a test.
"""

import mmap
from dataclasses import replace

import pytest
import torch

from kernels import layer_ops, mla, reference
from kernels.cases import Shape, make_case
from kernels.decode import (
    DecodeBuffers,
    DecodeCall,
    DecodeConfig,
    combine_launch,
    contiguous_decode,
    decode_launches,
    paged_decode,
)
from kernels.launch import KVCache
from kernels.moves import append, copy_blocks
from kernels.prefill import PrefillConfig, contiguous_prefill, paged_prefill
from kernels.splits import SplitPlan

NORESERVE = 0x4000  # MAP_NORESERVE of Linux, which Python names from 3.13 on
ROW = 2**30  # two rows of this many elements reach 2**31
SHAPE = Shape(4, 1, head_dim=64, block_size=16, dtype=torch.float16)
HEADS = replace(SHAPE, num_heads=3, num_kv_heads=3)
CONFIG = DecodeConfig(block_n=16)


def far(dtype):
    """Zeros, from the middle of reserved memory: 2**31 elements before it, more after."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NORESERVE
    memory = mmap.mmap(-1, (2**32 + 2**30) * dtype.itemsize, flags=flags)
    return torch.frombuffer(memory, dtype=dtype)[2**31 :]


def spread(x, *strides):
    """The numbers of x with these distances between rows, heads, …; the last dimension stays."""
    apart = far(x.dtype).as_strided(x.shape, (*strides, 1))
    return apart.copy_(x)


def far_blocks(cache, blocks, size=3):
    """A cache of `size` blocks, the last past 2**31 elements, that holds the given blocks of
    another at the given places: {place: block}."""
    _, slots, heads, dim = cache.k.shape
    result = []
    for x in (cache.k, cache.v):
        pool = far(x.dtype).as_strided((size, slots, heads, dim), (ROW, heads * dim, dim, 1))
        for place, block in blocks.items():
            pool[place] = x[block]
        result.append(pool)
    return KVCache(*result, cache.k_scale, cache.v_scale)


def decode(case, cache=None, table=None, q=None, config=CONFIG):
    plan = SplitPlan(16 * config.block_n, 1)
    return paged_decode(
        case.q if q is None else q,
        case.cache if cache is None else cache,
        case.block_table if table is None else table,
        case.lengths,
        config=config,
        plan=plan,
    )


def decode_flat(case, cache, first_slots):
    return contiguous_decode(
        case.q, cache, first_slots, case.lengths, config=CONFIG, plan=SplitPlan(256, 1)
    )


def prefill(case, cache=None, table=None, q=None):
    return paged_prefill(
        case.q if q is None else q,
        case.cache if cache is None else cache,
        case.block_table if table is None else table,
        case.query_starts,
        case.lengths,
        config=PrefillConfig(16, 16),
    )


def one_chunk(shape=SHAPE, length=20):
    return make_case(shape, [length], num_queries=[3])


@pytest.mark.parametrize("lookup", ["inline", "ahead", "inline_scalar", "ahead_scalar"])
@pytest.mark.parametrize("ids", [torch.int32, torch.int64])
def test_every_lookup_reaches_a_far_block(lookup, ids):
    case = make_case(SHAPE, [20])
    near = case.block_table[0, :2].tolist()
    cache = far_blocks(case.cache, {2: near[0], 1: near[1]})
    table = torch.tensor([[2, 1]], dtype=ids)
    config = replace(CONFIG, lookup=lookup)
    assert torch.equal(decode(case, cache, table, config=config), decode(case))


def test_prefill_reaches_a_far_block():
    case = one_chunk()
    near = case.block_table[0, :2].tolist()
    cache = far_blocks(case.cache, {2: near[0], 1: near[1]})
    table = torch.tensor([[2, 1]], dtype=torch.int32)
    assert torch.equal(prefill(case, cache, table), prefill(case))


def test_contiguous_decode_reaches_a_far_token():
    case = make_case(SHAPE, [20])  # token 16 lies at 2**31
    apart = KVCache(*(spread(x[:20], 2**27, 64) for x in (case.flat.k, case.flat.v)))
    expected = decode_flat(case, case.flat, case.first_slots)
    assert torch.equal(decode_flat(case, apart, case.first_slots), expected)


def far_first(case):
    """The case's one sequence beginning in a far slot of flat memory."""
    first = ROW // 32  # slots of 64 elements: 2**31
    moved = []
    for x in (case.flat.k, case.flat.v):
        pool = far(x.dtype)[: 2**31 + 2**16].view(-1, 1, 64)
        pool[first : first + 20] = x[:20]
        moved.append(pool)
    return KVCache(*moved), torch.tensor([first], dtype=torch.int32)


def test_contiguous_decode_reaches_a_far_first_slot():
    case = make_case(SHAPE, [20])
    near = decode_flat(case, case.flat, case.first_slots)
    assert torch.equal(decode_flat(case, *far_first(case)), near)


def test_contiguous_prefill_reaches_a_far_first_slot():
    case = one_chunk()

    def run(cache, first_slots):
        return contiguous_prefill(case.q, cache, first_slots, case.query_starts, case.lengths)

    assert torch.equal(run(*far_first(case)), run(case.flat, case.first_slots))


@pytest.mark.parametrize("run", [decode, prefill])
def test_attention_reaches_a_far_head(run):
    case = make_case(HEADS, [20], num_queries=[1 if run is decode else 3])
    apart = KVCache(*(spread(x, 1024, 64, ROW) for x in (case.cache.k, case.cache.v)))
    assert torch.equal(run(case, apart), run(case))


@pytest.mark.parametrize("strides", [(ROW, 64), (64, ROW)])
def test_attention_reaches_a_far_query_and_a_far_query_head(strides):
    for run, case in ((decode, make_case(HEADS, [5, 6, 7])), (prefill, one_chunk(HEADS))):
        assert torch.equal(run(case, q=spread(case.q, *strides)), run(case))


@pytest.mark.parametrize("run", [decode, prefill])
def test_attention_reaches_a_far_row_of_the_table(run):
    case = make_case(SHAPE, [5, 6, 20])
    table = far(torch.int32)[: 3 * ROW].view(3, ROW)
    table[:, :3] = case.block_table
    assert torch.equal(run(case, table=table), run(case))


def test_decode_writes_a_far_output():
    case = make_case(SHAPE, [5, 6])
    plan = SplitPlan(16, 1)
    buffers = DecodeBuffers(far(torch.float16))
    call = DecodeCall(case.block_table, case.lengths, plan, CONFIG)
    (launch,) = decode_launches(case.q, case.cache, call, DecodeBuffers.empty(case.q, plan))
    heads = 2**25  # a row of outputs is then 2**31 elements long
    args = [buffers.out if i == 5 else a for i, a in enumerate(launch.args)]
    assert args[-2] == 4
    args[-2] = heads
    replace(launch, args=tuple(args))()
    assert torch.equal(buffers.out.as_strided((2, 4, 64), (heads * 64, 64, 1)), decode(case))


def test_combine_reads_a_far_piece():
    pieces = 2**25  # of one head; a row of them is then 2**31 elements long
    plan = SplitPlan(16, 2)
    part, lse = torch.randn(2, 1, 2, 64), torch.randn(2, 1, 2)
    lengths = torch.tensor([20, 30], dtype=torch.int32)
    out = torch.empty(2, 1, 64)
    call = DecodeCall(torch.empty(2, 1, dtype=torch.int32), lengths, plan, CONFIG)
    combine_launch(call, DecodeBuffers(out, part, lse))()
    apart = far(torch.float32).as_strided((2, 1, 2, 64), (pieces * 64, 64, 64, 1)).copy_(part)
    far_lse = far(torch.float32).as_strided((2, 1, 2), (pieces, 2, 1)).copy_(lse)
    launch = combine_launch(call, DecodeBuffers(result := torch.empty_like(out), apart, far_lse))
    args = [pieces if i == 4 else a for i, a in enumerate(launch.args)]
    replace(launch, args=tuple(args))()
    assert torch.equal(result, out)


def test_append_writes_a_far_slot():
    cache = far_blocks(make_case(SHAPE, [20]).cache, {})
    k, v = torch.randn(2, 1, 1, 64).half()
    append(k, v, cache, torch.tensor([2 * 16 + 5], dtype=torch.int32))
    assert torch.equal(cache.k[2, 5], k[0])
    assert torch.equal(cache.v[2, 5], v[0])


def test_append_reads_a_far_token_and_a_far_head():
    k, v = torch.randn(2, 3, 3, 64).half()
    slots = torch.tensor([1, 20, 30])
    for strides in ((ROW, 64), (64, ROW)):
        written, expected = (KVCache(*torch.zeros(2, 2, 16, 3, 64).half()) for _ in range(2))
        append(*(spread(x, *strides) for x in (k, v)), written, slots)
        reference.append(k, v, expected, slots)
        assert torch.equal(written.k, expected.k)
        assert torch.equal(written.v, expected.v)


def test_append_writes_a_far_head():
    k, v = torch.randn(2, 1, 3, 64).half()
    cache = KVCache(*(spread(torch.zeros(2, 16, 3, 64).half(), 1024, 64, ROW) for _ in "kv"))
    append(k, v, cache, torch.tensor([17]))
    assert torch.equal(cache.k[1, 1], k[0])
    assert torch.equal(cache.v[1, 1], v[0])


def test_copy_blocks_reads_and_writes_a_far_block():
    words = replace(SHAPE, dtype=torch.float32)  # what is copied is counted in 4-byte words
    near = make_case(words, [16], tables=[[0]]).cache
    cache = far_blocks(near, {0: 0})
    copy_blocks(cache, cache, torch.tensor([[0, 2]], dtype=torch.int32))
    assert torch.equal(cache.k[2], near.k[0])
    assert torch.equal(cache.v[2], near.v[0])
    copy_blocks(cache, cache, torch.tensor([[2, 1]], dtype=torch.int32))
    assert torch.equal(cache.k[1], near.k[0])
    assert torch.equal(cache.v[1], near.v[0])


def test_add_rms_norm_reaches_a_far_row():
    x, residual, weight = torch.randn(3, 64), torch.randn(3, 64), torch.ones(64)
    apart = [spread(each, ROW) for each in (x, residual)]
    out = far(torch.float32).as_strided((3, 64), (ROW, 1))
    launch = layer_ops.add_rms_norm_launch(*apart, weight, out)
    launch = replace(launch, args=(*launch.args[:4], ROW, 1e-5), options={"WIDTH": 64})
    launch()
    assert torch.equal(apart[1], x + residual)
    assert (out.abs().sum(1) > 0).all()


def test_rope_reaches_a_far_token():
    x, positions = torch.randn(3, 2, 64), torch.tensor([1, 2, 3], dtype=torch.int32)
    angle = torch.rand(4, 32)
    apart = spread(x, ROW, 64)
    for each in (x, apart):
        layer_ops.rope_launch(each, angle.cos(), angle.sin(), positions)()
    assert torch.equal(apart, x)


def test_silu_and_mul_reaches_a_far_row():
    x, out = torch.randn(3, 2, 64), torch.empty(3, 64)
    layer_ops.silu_and_mul_launch(x.view(3, 128), out)()
    width = ROW // 2  # the gate of row 2 then lies at 2**31
    apart = far(torch.float32).as_strided((3, 2, 64), (2 * width, width, 1)).copy_(x)
    far_out = far(torch.float32).as_strided((3, 64), (width, 1))
    launch = layer_ops.silu_and_mul_launch(apart[:, 0], far_out)
    replace(launch, grid=(3, 1), args=(apart, far_out, width))()
    assert torch.equal(far_out, out)


def latent_problem():
    q, cache = torch.randn(2, 3, 16, mla.WIDTH).half()
    table = torch.tensor([[0, 0], [1, 1], [2, 2]], dtype=torch.int32)
    return q, cache, table, torch.tensor([5, 6, 7], dtype=torch.int32)


def test_latent_attention_reaches_a_far_block_query_head_and_row_of_the_table():
    q, cache, table, lengths = latent_problem()
    config = DecodeConfig(block_n=16)
    expected = mla.mla_decode(q, cache, table, lengths, config=config)
    wide = far(torch.int32)[: 3 * ROW].view(3, ROW)
    wide[:, :2] = table
    far_cache, far_q = (spread(x, ROW, mla.WIDTH) for x in (cache, q))
    far_heads = spread(q, mla.WIDTH, 9 * 2**24)
    for args in (*((x, cache, table) for x in (far_q, far_heads)), (q, far_cache, table)):
        assert torch.equal(mla.mla_decode(*args, lengths, config=config), expected)
    assert torch.equal(mla.mla_decode(q, cache, wide, lengths, config=config), expected)


def test_latent_attention_writes_a_far_output():
    q, cache, table, lengths = latent_problem()
    config, plan = DecodeConfig(block_n=16), SplitPlan(16, 1)
    call = DecodeCall(table, lengths, plan, config)
    (launch,) = mla.mla_launches(q, cache, call, mla.mla_buffers(q, plan))
    heads = 2**21  # the output of row 2 then lies at 2**31
    out = far(torch.float16)
    args = [out if i == 4 else a for i, a in enumerate(launch.args)]
    assert args[-2] == 16
    args[-2] = heads
    replace(launch, args=tuple(args))()
    written = out.as_strided((3, 16, 512), (heads * 512, 512, 1))
    assert torch.equal(written, mla.mla_decode(q, cache, table, lengths, config=config))
