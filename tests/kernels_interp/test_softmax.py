"""Softmax while scores go by: far beyond what exp2 can hold, rising and falling from tile to tile
and from piece to piece."""

from dataclasses import replace

import pytest
import torch

from kernels import mla, reference
from kernels.cases import Shape, make_case, relative_error
from kernels.decode import DecodeConfig, paged_decode
from kernels.prefill import PrefillConfig, paged_prefill
from kernels.splits import equal_splits

TILE, TILES = 16, 18  # of tokens; the combine pass merges 16 pieces at a time
LENGTH = TILE * TILES
FROM_TO = [(400.0, -400.0), (-400.0, 400.0), (-200.0, -900.0), (900.0, 200.0)]
PIECES = [1, 2, TILES]
ALLOWED = 2e-4  # float32 holds a score of 900 to 6e-5
DECODE, PREFILL = DecodeConfig(block_n=TILE), PrefillConfig(16, TILE)

each_course = pytest.mark.parametrize(("first", "last"), FROM_TO)
each_split = pytest.mark.parametrize("pieces", PIECES)


def course(first, last):
    """The score of every token: level within a tile but for a little, steps of 40 between."""
    levels = torch.linspace(first, last, TILES).repeat_interleave(TILE)
    return levels + torch.rand(LENGTH, generator=torch.Generator().manual_seed(3))


def case_of(first, last, queries=1):
    """A problem whose queries are ones and whose scores take that course."""
    case = make_case(Shape(4, 1, 64), [LENGTH], num_queries=[queries])
    slots = reference.paged_slots(case.block_table[0], LENGTH, 16)
    case.cache.flat().k[slots] = course(first, last)[:, None, None].expand(-1, 1, 64) / 8
    return replace(case, q=torch.ones_like(case.q))


@each_course
@each_split
def test_decode_keeps_the_largest_score_of_all_tiles_and_pieces(first, last, pieces):
    case = case_of(first, last)
    given = case.q, case.cache, case.block_table, case.lengths
    result = paged_decode(*given, config=DECODE, plan=equal_splits(LENGTH, pieces, TILE))
    assert relative_error(result, reference.paged_decode(*given)) < ALLOWED


@each_course
def test_prefill_keeps_the_largest_score_of_all_tiles(first, last):
    case = case_of(first, last, queries=20)
    given = case.q, case.cache, case.block_table, case.query_starts, case.lengths
    result = paged_prefill(*given, config=PREFILL)
    assert relative_error(result, reference.paged_prefill(*given)) < ALLOWED


@each_course
@each_split
def test_latent_attention_keeps_the_largest_score_of_all_tiles_and_pieces(first, last, pieces):
    q, cache = torch.zeros(1, 2, mla.WIDTH), torch.randn(TILES, 16, mla.WIDTH)
    q[..., mla.LATENT :] = 1.0
    scores = course(first, last).view(TILES, 16, 1) / (mla.ROPE * 192**-0.5)
    cache[..., mla.LATENT :] = scores
    table, lengths = torch.arange(TILES).int()[None], torch.tensor([LENGTH]).int()
    given, plan = (q, cache, table, lengths), equal_splits(LENGTH, pieces, TILE)
    result = mla.mla_decode(*given, config=replace(mla.DEFAULT, block_n=TILE), plan=plan)
    truth = reference.mla_decode(*given, mla.LATENT, 192**-0.5)
    assert relative_error(result, truth) < ALLOWED


def test_scores_of_latent_attention_are_multiplied_by_one_over_the_root_of_192():
    q, cache = torch.zeros(1, 1, mla.WIDTH), torch.zeros(1, 16, mla.WIDTH)
    q[..., -1] = 1.0
    cache[0, 0, -1], cache[0, 0, 0] = 13.856406, 1.0  # the first key scores 1, the second 0
    table, lengths = torch.zeros(1, 1).int(), torch.tensor([2]).int()
    result = mla.mla_decode(q, cache, table, lengths)
    assert result[0, 0, 0].item() == pytest.approx(0.7310586, abs=1e-6)  # e / (e + 1)
