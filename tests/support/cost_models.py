"""Cost models of Llama-3-8B's shape, as tests build them."""

from typing import Any

from sim.batch import (
    DECODE_KV_TOKENS,
    KV_TOKENS,
    NUM_DECODE_SEQS,
    NUM_SEQS,
    PREFILL_PAIRS,
    PREFILL_TOKENS,
    empty_batch,
)
from sim.costs.measured import Measured
from sim.sequence import IntArray

LLAMA_3_8B: dict[str, Any] = {
    "weights_bytes": 16_060_522_496,
    "num_params": 8_030_261_248,
    "num_embedding_params": 1_050_673_152,
    "vocab": 128_256,
    "kv_bytes_per_token": 131_072,
    "layers": 32,
    "hidden": 4096,
    "heads": 32,
    "kv_heads": 8,
    "head_dim": 128,
}


def measured(**parameters: Any) -> Measured:
    """Llama-3-8B on an RTX 4090, blocks of 16, but for what is given."""
    return Measured(**{**LLAMA_3_8B, "profile": "rtx-4090", "block_size": 16, **parameters})


def batch_of(decodes: int = 0, length: int = 0, prompt: int = 0, context: int = 0) -> IntArray:
    """Sequences that decode, and one that computes part of its prompt if prompt is not 0."""
    batch = empty_batch()
    batch[NUM_SEQS] = decodes + (prompt > 0)
    batch[[NUM_DECODE_SEQS, PREFILL_TOKENS]] = (decodes, prompt)
    batch[DECODE_KV_TOKENS] = decodes * length
    batch[KV_TOKENS] = decodes * length + ((prompt + context) if prompt else 0)
    batch[PREFILL_PAIRS] = prompt * context + prompt * (prompt + 1) // 2
    return batch
