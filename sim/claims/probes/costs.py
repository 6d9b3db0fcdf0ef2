"""What a cost model says of one iteration: what paging costs, and what a preemption costs.

Times are iteration_s of the cost model that an experiment would build from the same keys.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sim.batch import (
    DECODE_KV_TOKENS,
    KV_TOKENS,
    NUM_DECODE_SEQS,
    NUM_SEQS,
    PREFILL_PAIRS,
    PREFILL_TOKENS,
    SWAPPED_BLOCKS,
    SWAPPED_TOKENS,
    empty_batch,
)
from sim.config.plugin_keys import build_part, resolve_part
from sim.config.plugins import Config
from sim.config.yaml_nodes import KeyPath, dotted
from sim.costs import CostModel
from sim.hardware.keys import read_device, read_model
from sim.sequence import IntArray


def paging_overhead_percent(
    cost: Config, hardware: Config, block_size: int, kv_tokens: int, batch: int
) -> dict[str, float]:
    """By how much blocks of block_size are slower than contiguous memory, in percent.

    kernel: of the time that reading the keys and values takes, which is what an iteration takes
    longer than one whose sequences have a single token. step: of the whole iteration.
    """
    paged, contiguous = (cost_model(cost, hardware, size) for size in (block_size, None))
    steps = [built.iteration_s(decoding(batch, kv_tokens)) for built in (paged, contiguous)]
    empty = [built.iteration_s(decoding(batch, 1)) for built in (paged, contiguous)]
    kernels = [step - other for step, other in zip(steps, empty, strict=True)]
    return {
        "kernel": 100 * (kernels[0] / kernels[1] - 1),
        "step": 100 * (steps[0] / steps[1] - 1),
    }


def preemption_costs(
    cost: Config, hardware: Config, tokens: int, block_sizes: Sequence[int], flat: float
) -> dict[str, bool]:
    """Whether the cost of a preemption by recomputation is flat over block sizes, and swap's falls.

    Flat: the dearest costs at most 1 + flat times the cheapest.
    """
    costs = [preemption_s(cost, hardware, tokens, size) for size in block_sizes]
    recompute = [one["recompute"] for one in costs]
    swap = [one["swap"] for one in costs]
    falls = all(after <= before for before, after in itertools.pairwise(swap))
    return {
        "recompute_is_flat": max(recompute) <= (1 + flat) * min(recompute),
        "swap_falls": falls and swap[-1] < swap[0],
    }


def recompute_over_swap(
    cost: Config, hardware: Config, tokens: Sequence[int], block_sizes: Sequence[int]
) -> dict[str, float]:
    """Seconds of recomputing over seconds of swapping, the largest of the block sizes.

    Of those block sizes at which swapping is cheaper; by number of tokens. 0 where it never is.
    """
    found = {}
    for length in tokens:
        costs = [preemption_s(cost, hardware, length, size) for size in block_sizes]
        ratios = [one["recompute"] / one["swap"] for one in costs]
        found[f"{length} tokens"] = max((ratio for ratio in ratios if ratio > 1), default=0.0)
    return found


def preemption_s(cost: Config, hardware: Config, tokens: int, block_size: int) -> dict[str, float]:
    """Seconds that a preempted sequence of so many tokens costs: swapped out and in, or recomputed.

    What an iteration takes longer because of the swaps; a prompt of that length computed alone.
    """
    built = cost_model(cost, hardware, block_size)
    blocks = -(-tokens // block_size)
    idle, moving = decoding(1, 1), decoding(1, 1)
    moving[SWAPPED_BLOCKS] = 2 * blocks
    moving[SWAPPED_TOKENS] = 2 * blocks * block_size
    prompt = empty_batch()
    prompt[NUM_SEQS] = 1
    prompt[KV_TOKENS] = prompt[PREFILL_TOKENS] = tokens
    prompt[PREFILL_PAIRS] = tokens * (tokens + 1) // 2
    return {
        "swap": built.iteration_s(moving) - built.iteration_s(idle),
        "recompute": built.iteration_s(prompt),
    }


def decoding(num_seqs: int, kv_tokens: int) -> IntArray:
    """An iteration in which so many sequences of kv_tokens tokens each decode."""
    batch = empty_batch()
    batch[NUM_SEQS] = batch[NUM_DECODE_SEQS] = num_seqs
    batch[KV_TOKENS] = batch[DECODE_KV_TOKENS] = num_seqs * kv_tokens
    return batch


def cost_model(cost: Config, hardware: Config, block_size: int | None) -> CostModel:
    """The cost model of an experiment with these keys; block_size None is contiguous memory.

    hardware is {model: …, device: …}. Raises ValueError.
    """
    problems: list[str] = []

    def report(path: KeyPath, sentence: str) -> None:
        problems.append(f"{dotted(path)}: {sentence}")

    found: dict[str, Any] = {
        "model": read_model(hardware["model"], Path(), report),
        "device": read_device(hardware["device"], report),
        "allocator": {"block_size": block_size},
    }
    part = None if problems else resolve_part("cost", cost, (Path(), found), report)
    if part is None:
        raise ValueError("; ".join(problems))
    built: CostModel = build_part("cost", part, Path())
    return built
