"""mla_decode against float64, under the interpreter."""

from dataclasses import replace

import pytest
import torch

from kernels import cases, mla, reference
from kernels.decode import DecodeConfig
from kernels.launch import BLOCK_SIZES, KernelInputError
from kernels.mla import LATENT, WIDTH, mla_decode
from kernels.splits import SplitPlan, equal_splits

LENGTHS = [1, 97, 64, 0]


def problem(tables, block_size=16, dtype=torch.float32, heads=4, lengths=LENGTHS):
    """Queries, cache, table and lengths; what no sequence reaches is NaN, the blocks that table
    entries past the end point at included."""
    poison = max(block for row in tables for block in row) + 1
    cache = torch.full((poison + 1, block_size, WIDTH), float("nan"), dtype=dtype)
    for row, length in zip(tables, lengths, strict=True):
        for token in range(length):
            entry = torch.randn(WIDTH).to(dtype)
            cache[row[token // block_size], token % block_size] = entry
    width = max(map(len, tables)) + 1
    table = torch.tensor([row + [poison] * (width - len(row)) for row in tables], dtype=torch.int32)
    q = torch.randn(len(lengths), heads, WIDTH).to(dtype)
    return q, cache, table, torch.tensor(lengths, dtype=torch.int32)


def error(result, given):
    truth = reference.mla_decode(*given, LATENT, mla.SCALE)
    return cases.relative_error(result, truth)


@pytest.mark.parametrize("block_size", BLOCK_SIZES)
def test_every_block_size_in_the_allocators_order_agrees_with_float64(
    block_size, tables_from_allocator
):
    lengths = LENGTHS[:3]
    tables = tables_from_allocator(lengths, block_size, seed=10)
    given = problem(tables, block_size, lengths=lengths)
    assert error(mla_decode(*given), given) < 2e-6


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("num_splits", [1, 3])
def test_every_dtype_agrees_with_float64_with_and_without_splits(dtype, num_splits):
    given = problem([[4], [2, 9, 0, 1, 3, 5, 6], [7, 8, 10, 11], []], dtype=dtype)
    result = mla_decode(*given, plan=equal_splits(97, num_splits, 32))
    assert result.dtype == dtype
    assert result.shape == (4, 4, LATENT)
    assert error(result, given) < cases.tolerance(cases.Shape(dtype=dtype))
    assert torch.equal(result[3], torch.zeros_like(result[3]))  # padding without keys


@pytest.mark.parametrize("heads", [1, 16, 20])
def test_every_number_of_heads_agrees_with_float64(heads):
    given = problem([[1, 0, 2]], heads=heads, lengths=[40])
    assert error(mla_decode(*given), given) < 2e-6


@pytest.mark.parametrize("lookup", ["inline", "ahead", "inline_scalar", "ahead_scalar"])
def test_every_lookup_gives_the_same_bits(lookup):
    given = problem([[3, 1], [0]], 64, lengths=[100, 5])
    result = mla_decode(*given, config=replace(mla.DEFAULT, lookup=lookup))
    assert torch.equal(result, mla_decode(*given))


def test_a_model_without_a_rotated_part_and_equal_scores_averages_the_latents():
    _, cache, table, lengths = problem([[1, 0]], lengths=[20])
    result = mla_decode(torch.zeros(1, 2, WIDTH), cache, table, lengths)
    tokens = torch.cat([cache[1], cache[0]])[:20, :LATENT]
    assert torch.allclose(result[0, 0], tokens.mean(0), atol=1e-6)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"q": torch.zeros(1, 4, 512)}, r"queries must be \(batch, heads, 576\)"),
        ({"q": torch.zeros(1, 0, WIDTH)}, r"queries must be \(batch, heads, 576\)"),
        ({"cache": None}, "cache must be a torch tensor, not a NoneType"),
        ({"table": torch.tensor([[1, 0, 3]]).int()}, r"names block \[3\], the cache has 3"),
        (
            {"cache": torch.empty(1, device="meta").as_strided((3, 256, WIDTH), (1, 2**24, 1))},
            r"reaches over 256 slots of 16777216 elements, it must stay below 2\*\*31",
        ),
        ({"q": torch.zeros(1, 4, WIDTH).half()}, "do not go with a latent cache of torch.float32"),
        ({"cache": torch.zeros(3, 24, WIDTH)}, "block size 24 is not supported"),
        ({"table": torch.zeros(1, 1, dtype=torch.int32)}, "a sequence of 40 keys needs 3"),
        ({"lengths": torch.zeros(2, dtype=torch.int32)}, r"lengths must have shape \(1,\)"),
    ],
)
def test_input_without_a_kernel_is_refused_in_one_sentence(change, sentence):
    given = problem([[1, 0, 2]], lengths=[40])
    given = (given[0], given[1][:3], *given[2:])
    args = dict(zip(("q", "cache", "table", "lengths"), given, strict=True)) | change
    with pytest.raises(KernelInputError, match=sentence):
        mla_decode(*args.values())


def test_a_plan_or_a_tile_that_cannot_be_built_is_refused():
    given = problem([[1, 0, 2]], lengths=[40])
    with pytest.raises(KernelInputError, match="covers 32 keys, the longest sequence has 40"):
        mla_decode(*given, plan=SplitPlan(32, 1))
    with pytest.raises(KernelInputError, match="at least 16, it is 8"):
        mla_decode(*given, config=DecodeConfig(block_n=8))
