"""Into how many pieces a sequence's keys are cut, so that a small batch still fills the GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernels.launch import require

MAX_SPLITS = 128
# In units of one K/V tile's time. Guesses until a GPU has run calibrate's section "splits": what
# starting a program (query load, first tile's latency, epilogue) costs, and what the combine pass
# adds.
START_TILES = 2
COMBINE_TILES = 2


@dataclass(frozen=True)
class SplitPlan:
    """Sequence i is cut into ceil(length_i / split_tokens) pieces, one program each; num_splits is
    the largest.
    """

    split_tokens: int
    num_splits: int


def plan_splits(lengths: Sequence[int], num_heads: int, slots: int, tile: int) -> SplitPlan:
    """The cut with the smallest estimated time.

    lengths: keys of each sequence; num_heads: programs a piece (KV heads times head tiles); slots:
    programs that run at once (SMs times programs per SM); tile: tokens a loop iteration, which
    split_tokens is a multiple of. The estimate is waves of programs times a piece's tiles. Pieces
    have equal size, not equal number: in a ragged batch every program then has the same work, where
    equal numbers would leave the longest sequence running alone.
    """
    require(
        len(lengths) > 0 and min(lengths) >= 0,
        "lengths must be a non-empty list of counts, none negative.",
    )
    tiles = [-(-n // tile) for n in lengths]
    longest = max(1, *tiles) if tiles else 1

    def estimate(piece: int) -> float:
        programs = num_heads * sum(-(-t // piece) for t in tiles)
        combine = COMBINE_TILES if piece < longest else 0
        return -(-programs // slots) * (piece + START_TILES) + combine

    # only the piece sizes that differ in the number of cuts of the longest sequence
    pieces = sorted(
        {-(-longest // n) for n in range(1, min(MAX_SPLITS, longest) + 1)}, reverse=True
    )
    best = min(pieces, key=estimate)  # the first of equals: fewest pieces
    return SplitPlan(split_tokens=best * tile, num_splits=-(-longest // best))


def equal_splits(longest: int, num_splits: int, tile: int) -> SplitPlan:
    """A cut of the longest sequence into (at most) the given number of pieces, for tests and
    ablations.
    """
    require(1 <= num_splits <= MAX_SPLITS, f"num_splits must be between 1 and {MAX_SPLITS}.")
    tiles = max(1, -(-longest // tile))
    piece = -(-tiles // num_splits)
    return SplitPlan(split_tokens=piece * tile, num_splits=-(-tiles // piece))


def check_plan(plan: SplitPlan, block_n: int, longest: int | None) -> None:
    """Raise `KernelInputError` unless a kernel with tiles of block_n can run the plan.

    longest: keys of the longest sequence, None if only the GPU knows.
    """
    require(
        isinstance(plan.num_splits, int)
        and isinstance(plan.split_tokens, int)
        and 1 <= plan.num_splits <= MAX_SPLITS
        and plan.split_tokens > 0
        and plan.split_tokens % block_n == 0,
        f"a split must be a multiple of block_n {block_n}, and their number at most {MAX_SPLITS}.",
    )
    covered = plan.num_splits * plan.split_tokens
    require(
        longest is None or longest <= covered,
        f"the split plan covers {covered} keys, the longest sequence has {longest}.",
    )
