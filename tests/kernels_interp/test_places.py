"""Where input points: blocks and slots outside of a cache, copies that touch each other, and kinds
of values that are no tensors or numbers."""

from dataclasses import replace

import pytest
import torch

from kernels.cases import Shape, make_case
from kernels.decode import DecodeConfig, contiguous_decode, paged_decode
from kernels.launch import FP8, KernelInputError, KVCache
from kernels.moves import append, copy_blocks
from kernels.prefill import PrefillConfig, contiguous_prefill, paged_prefill
from kernels.splits import SplitPlan

CASE = make_case(Shape(), [20, 30])
STARTS = torch.tensor([0, 1, 2]).int()
TABLE = [[0, 1], [2, 3]]


def refused(sentence):
    return pytest.raises(KernelInputError, match=sentence)


def paged(run, table=TABLE, lengths=(20, 30), **choice):
    table, lengths = torch.tensor(table).int(), torch.tensor(lengths).int()
    if run is paged_prefill:
        return run(CASE.q, CASE.cache, table, STARTS, lengths, **choice)
    return run(CASE.q, CASE.cache, table, lengths, **choice)


def flat(run, first_slots, lengths=(20, 30)):
    first_slots, lengths = torch.tensor(first_slots), torch.tensor(lengths).int()
    if run is contiguous_prefill:
        return run(CASE.q, CASE.flat, first_slots, STARTS, lengths)
    return run(CASE.q, CASE.flat, first_slots, lengths)


@pytest.mark.parametrize("run", [paged_decode, paged_prefill])
@pytest.mark.parametrize("bad", [-1, 10, 999])
def test_a_block_that_the_cache_does_not_have_is_refused_where_a_key_lies_in_it(run, bad):
    assert len(CASE.cache.k) == 10
    with refused(rf"block_table names block \[{bad}\], the cache has 10"):
        paged(run, [[0, 1], [2, bad]])
    paged(run, [[0, bad], [2, bad]], lengths=(16, 16))  # no key lies there


@pytest.mark.parametrize("run", [contiguous_decode, contiguous_prefill])
def test_a_sequence_that_leaves_the_slots_of_the_cache_is_refused(run):
    assert len(CASE.flat.k) == 56
    flat(run, [0, 26])
    for bad in (-1, 27, 5000):
        with refused(rf"a sequence from slot \[{bad}\] on leaves the cache's 56 slots"):
            flat(run, [0, bad])


def test_a_padded_row_may_point_anywhere():
    flat(contiguous_decode, [0, 5000], lengths=(20, 0))
    paged(paged_decode, [[0, 1], [-1, 999]], lengths=(20, 0))


def caches(*dims, dtype=torch.float32):
    return KVCache(*(torch.zeros(dims).to(dtype) for _ in "kv"))


def copy(source, destination, pairs):
    copy_blocks(source, destination, torch.tensor(pairs))


def test_copies_between_two_views_of_one_memory_are_refused_where_they_touch():
    k, v = torch.rand(2, 6, 16, 2, 64)
    source, shifted = KVCache(k, v), KVCache(k[1:], v[1:])  # its block 1 is k[2]
    with refused(r"blocks \[2\] are source and destination at once"):
        copy(source, shifted, [[0, 1], [2, 3]])
    copy(source, shifted, [[0, 1], [3, 4]])
    assert torch.equal(k[2], k[0])
    assert torch.equal(v[5], v[3])


def test_keys_that_are_copied_onto_the_values_that_are_copied_are_refused():
    k, v = torch.rand(2, 6, 16, 2, 64)
    with refused(r"blocks \[1\] are source and destination at once"):
        copy(KVCache(k, v), KVCache(v, k), [[0, 1], [1, 2]])


def test_a_destination_whose_blocks_are_one_memory_is_refused():
    one = KVCache(*(x.expand(4, -1, -1, -1) for x in torch.zeros(2, 1, 16, 2, 64)))
    with refused("a block is a destination twice"):
        copy(caches(4, 16, 2, 64), one, [[0, 1], [1, 2]])


@pytest.mark.parametrize(("offset", "stride"), [(1, 2048), (0, 2049)])
def test_blocks_that_begin_between_two_words_are_refused(offset, stride):
    def odd():
        memory = torch.zeros(5 * 2049, dtype=torch.float16)
        return memory.as_strided((4, 16, 2, 64), (stride, 128, 64, 1), offset)

    near = caches(4, 16, 2, 64, dtype=torch.float16)
    with refused("blocks must begin at a multiple of 4 bytes"):
        copy(KVCache(odd(), odd()), near, [[0, 1]])


@pytest.mark.parametrize("scale", [0.0, float("nan"), float("inf"), -1.0, torch.tensor(1.0), None])
def test_a_scale_that_is_no_positive_number_is_refused(scale):
    fp8 = caches(4, 16, 2, 64, dtype=FP8)
    k = torch.zeros(1, 2, 64)
    for bad in ({"k_scale": scale}, {"v_scale": scale}):
        with refused("_scale must be a positive number, it is"):
            append(k, k, replace(fp8, **bad), torch.zeros(1).long())


def test_a_scale_of_a_cache_that_is_not_fp8_is_refused():
    with refused("only a float8_e4m3fn cache has scales: v_scale 2.0 does not go with"):
        paged_decode(CASE.q, replace(CASE.cache, v_scale=2.0), CASE.block_table, CASE.lengths)


@pytest.mark.parametrize("bad", [[20, 30], CASE.lengths.numpy(), None])
def test_what_is_no_tensor_is_refused_by_its_name(bad):
    given = CASE.q, CASE.cache, CASE.block_table, CASE.lengths
    with refused("lengths must be a torch tensor, not a"):
        paged_decode(*given[:3], bad)
    with refused("lengths must be a torch tensor, not a"):
        paged_prefill(*given[:3], STARTS, bad)
    with refused("block_table must be a torch tensor, not a"):
        paged_decode(*given[:2], bad, given[3])
    with refused("queries must be a torch tensor, not a"):
        paged_decode(bad, *given[1:])
    with refused("k must be a torch tensor, not a"):
        paged_decode(CASE.q, KVCache(bad, CASE.cache.v), *given[2:])
    k = torch.zeros(2, 2, 64)
    with refused("v must be a torch tensor, not a"):
        append(k, bad, CASE.cache, torch.zeros(2).long())


@pytest.mark.parametrize("run", [paged_prefill, contiguous_prefill])
def test_a_length_without_dimensions_is_refused(run):
    paged = run is paged_prefill
    cache, where = (CASE.cache, CASE.block_table) if paged else (CASE.flat, CASE.first_slots)
    with refused(r"lengths must have shape \(-1,\) \(-1: any\), it has \(\)"):
        run(CASE.q, cache, where, STARTS, torch.tensor(5).int())


@pytest.mark.parametrize(
    ("choice", "sentence"),
    [
        ({"num_warps": 3}, r"num_warps must be one of \(1, 2, 4, 8, 16, 32\), it is 3"),
        ({"num_warps": 0}, "num_warps must be one of"),
        ({"num_stages": 0}, "num_stages must be at least 1, it is 0"),
        ({"num_stages": 2.5}, "num_stages must be at least 1, it is 2.5"),
        ({"lookup": "psychic"}, "lookup 'psychic' is unknown"),
    ],
)
def test_a_kernel_that_cannot_be_built_is_refused_with_and_without_a_table(choice, sentence):
    for config, run in (
        (DecodeConfig(**choice), paged_decode),
        (PrefillConfig(**choice), paged_prefill),
    ):
        with refused(sentence):
            paged(run, config=config)
    given = CASE.q, CASE.flat, CASE.first_slots, CASE.lengths
    with refused(sentence):
        contiguous_decode(*given, config=DecodeConfig(**choice))


def test_queries_without_heads_and_pieces_that_are_no_whole_numbers_are_refused():
    with refused("0 query heads are not a multiple of 2 KV heads"):
        paged_decode(CASE.q[:, :0], CASE.cache, CASE.block_table, CASE.lengths)
    with refused("a split must be a multiple of block_n"):
        paged(paged_decode, plan=SplitPlan(128.0, 1))
