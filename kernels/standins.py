"""Launches on tensors without memory, to be compiled but never run; and the table of what was
compiled.

`python -m kernels.standins` prints the static table of every kernel and variant (see
kernels/README.md).
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass

import torch

from kernels import mla
from kernels.decode import DecodeBuffers, DecodeCall, DecodeConfig, decode_launches, default_config
from kernels.launch import FP8, KVCache, Launch
from kernels.moves import append_launch, copy_launch
from kernels.prefill import PrefillCall, PrefillConfig, prefill_launch
from kernels.prefill import default_config as default_prefill
from kernels.splits import SplitPlan

ARCHS = (80, 86, 89, 90)
BATCH, NUM_BLOCKS, CHUNK = 32, 4096, 1024


@dataclass(frozen=True)
class Model:
    """The attention of a model: heads, head size, dtypes; Llama-3.1-8B's by default."""

    num_heads: int = 32
    num_kv_heads: int = 8
    head_dim: int = 128
    dtype: torch.dtype = torch.bfloat16
    kv_dtype: torch.dtype | None = None

    @property
    def group(self) -> int:
        """Query heads a KV head."""
        return self.num_heads // self.num_kv_heads

    @property
    def stored(self) -> torch.dtype:
        return self.kv_dtype or self.dtype

    def tile_bytes(self, block_n: int) -> int:
        """K and V of block_n tokens of one KV head."""
        return 2 * block_n * self.head_dim * self.stored.itemsize


def _meta(*size: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    return torch.empty(size, dtype=dtype, device="meta")


def cache(model: Model, block_size: int | None) -> KVCache:
    """A paged cache, or a contiguous one for None."""
    blocks = (NUM_BLOCKS,) if block_size is None else (NUM_BLOCKS, block_size)
    k, v = (_meta(*blocks, model.num_kv_heads, model.head_dim, dtype=model.stored) for _ in "kv")
    return KVCache(k, v)


def _where(block_size: int | None) -> torch.Tensor:
    return _meta(BATCH, dtype=torch.int64) if block_size is None else _meta(BATCH, 256)


def decode(
    model: Model, block_size: int | None, config: DecodeConfig | None = None, *, splits: int = 4
) -> list[Launch]:
    """A decode (and its combine pass if splits > 1); block_size None: contiguous."""
    q = _meta(BATCH, model.num_heads, model.head_dim, dtype=model.dtype)
    plan = SplitPlan(1024, splits)
    config = config or default_config(model.head_dim, model.group)
    call = DecodeCall(_where(block_size), _meta(BATCH), plan, config)
    return decode_launches(q, cache(model, block_size), call, DecodeBuffers.empty(q, plan))


def prefill(
    model: Model, block_size: int | None, config: PrefillConfig | None = None, arch: int = 90
) -> Launch:
    """A prefill; block_size None: contiguous; arch: of the default configuration."""
    q = _meta(BATCH * CHUNK, model.num_heads, model.head_dim, dtype=model.dtype)
    config = config or default_prefill(model.head_dim, arch)
    call = PrefillCall(_where(block_size), _meta(BATCH + 1), _meta(BATCH), CHUNK, config)
    return prefill_launch(q, cache(model, block_size), call, torch.empty_like(q))


def mla_decode(
    block_size: int, config: DecodeConfig = mla.DEFAULT, *, splits: int = 4
) -> list[Launch]:
    """A latent decode of 128 heads (and its combine pass if splits > 1)."""
    q = _meta(BATCH, 128, mla.WIDTH, dtype=torch.bfloat16)
    latents = _meta(NUM_BLOCKS, block_size, mla.WIDTH, dtype=torch.bfloat16)
    plan = SplitPlan(1024, splits)
    call = DecodeCall(_where(block_size), _meta(BATCH), plan, config)
    return mla.mla_launches(q, latents, call, mla.mla_buffers(q, plan))


def append(model: Model, block_size: int) -> Launch:
    k = _meta(BATCH, model.num_kv_heads, model.head_dim, dtype=model.dtype)
    return append_launch(k, k, cache(model, block_size), _meta(BATCH, dtype=torch.int64))


def copy_blocks(model: Model, block_size: int) -> Launch:
    pool = cache(model, block_size)
    return copy_launch(pool, pool, _meta(BATCH, 2, dtype=torch.int64))


def _rows(arch: int) -> list[tuple[str, Launch, int]]:
    """Name, launch and K/V tile bytes of the rows of the table."""
    bf16, fp8 = Model(), Model(kv_dtype=FP8)
    rows: list[tuple[str, Launch, int]] = []
    for stages in (3, 5):
        config = DecodeConfig(num_stages=stages)
        rows.append((f"decode contiguous st{stages}", decode(bf16, None, config)[0], 64))
        for block_size, lookups in (
            (1, ("ahead",)),
            (16, ("inline", "ahead")),
            (64, ("inline_scalar", "ahead_scalar")),
        ):
            for lookup in lookups:
                config = DecodeConfig(num_stages=stages, lookup=lookup)
                rows.append(
                    (
                        f"decode block {block_size} {lookup} st{stages}",
                        decode(bf16, block_size, config)[0],
                        64,
                    )
                )
    result = [(name, each, bf16.tile_bytes(n)) for name, each, n in rows]
    if arch >= 89:  # the hardware has no fp8 before
        result.append(("decode fp8 block 16", decode(fp8, 16)[0], fp8.tile_bytes(64)))
    for head_dim in (64, 256):
        model = Model(head_dim=head_dim)
        result.append((f"decode head_dim {head_dim} block 16", decode(model, 16)[0], 32768))
    for block_size in (None, 16, 64):
        name = "contiguous" if block_size is None else f"block {block_size}"
        tile = bf16.tile_bytes(default_prefill(128, arch).block_n)
        result.append((f"prefill {name}", prefill(bf16, block_size, arch=arch), tile))
    for block_size in (16, 64):
        tile = mla.DEFAULT.block_n * mla.WIDTH * 2
        result.append((f"mla block {block_size}", mla_decode(block_size)[0], tile))
    result.append(("combine", decode(bf16, 16)[1], 0))
    result.append(("append block 16", append(bf16, 16), 0))
    result.append(("copy_blocks block 16", copy_blocks(bf16, 16), 0))
    return result


def main(arguments: list[str] | None = None) -> int:
    """Print the table for one target."""
    from kernels.static import compile_for, inspect  # noqa: PLC0415  # only this needs the compiler

    parser = argparse.ArgumentParser(
        description="What the compiler makes of every kernel; no GPU needed."
    )
    parser.add_argument(
        "--arch", type=int, default=90, help="compute capability: 80 (A100), 90 (H100, H200)"
    )
    arch = parser.parse_args(arguments).arch
    if arch not in ARCHS:
        print(f"--arch must be one of {ARCHS}, not {arch}.", file=sys.stderr)
        return 2
    print(
        f"{'variant, sm_' + str(arch):42s} regs spill shared K/V-stages instr/iter bytes/iter "
        "issue/memory"
    )
    for name, launch, tile in _rows(arch):
        r = inspect(compile_for(arch, launch))
        line = f"{name:42s} {r.registers:4d} {r.spills:5d} {r.shared:6d}"
        if tile:
            line += f" {r.shared // tile:10d} {r.hot_instructions:10d} {r.loaded_bytes:10d}"
            line += f" {r.issue_share(tile):12.2f}"
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
