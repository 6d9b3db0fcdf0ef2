"""Points that move keys and values: into the cache, within it, and over the host link."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from kernels import reference
from kernels.calibrate.points import Point
from kernels.calibrate.pool import Pool, padded
from kernels.calibrate.works import Work
from kernels.launch import FP8, KVCache, Launch
from kernels.moves import append_launch, copy_launch


def append_work(point: Point, pool: Pool) -> Work:
    """New tokens of a fused projection into random blocks."""
    model, cache = point.model, pool.cache(point.model, point.block_size)
    fused = pool.random(point.queries, model.num_heads + 2 * model.num_kv_heads, model.head_dim)
    if model.stored == FP8:  # numbers that it holds exactly, so that the check is exact too
        fused = fused.to(FP8).to(fused.dtype)
    k, v = fused[:, -2 * model.num_kv_heads : -model.num_kv_heads], fused[:, -model.num_kv_heads :]
    token_bytes = model.num_kv_heads * model.tile_bytes(1)
    most = min(64, cache.k.shape[0] // point.queries)
    sets = pool.rotations(point.queries * token_bytes, most=most)
    blocks = pool.blocks(cache.k.shape[0], sets * point.queries, "random").reshape(sets, -1)
    slots = pool.put(_aligned_rows(blocks * point.block_size + 3))

    def check(index: int) -> float:
        flat, at = cache.flat(), slots[index, : point.queries]
        expected = (reference.store(x, 1.0, model.stored) for x in (k, v))
        return _differs((flat.k[at], flat.v[at]), tuple(expected))

    return Work([[append_launch(k, v, cache, row[: point.queries])] for row in slots], check=check)


def _differs(found: tuple[torch.Tensor, ...], expected: tuple[torch.Tensor, ...]) -> float:
    """0 where all bytes are the same, else infinity."""
    same = (
        torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))
        for a, b in zip(found, expected, strict=True)
    )
    return 0.0 if all(same) else float("inf")


def _aligned_rows(rows: np.ndarray) -> np.ndarray:
    """Rows padded so that each begins at a multiple of 16 entries."""
    width = padded(rows.shape[1])
    return np.pad(rows, ((0, 0), (0, width - rows.shape[1]))).astype(np.int64)


def copy_work(point: Point, pool: Pool) -> Work:
    """Random blocks onto other random blocks."""
    cache, count = pool.cache(point.model, point.block_size), point.size[0]
    available = cache.k.shape[0] // (2 * count)
    sets = max(1, min(pool.rotations(4 * count * point.size[1], most=64), available))
    pairs = pool.blocks(cache.k.shape[0], 2 * count * sets, "random").reshape(sets, count, 2)
    lists = [pool.put(each) for each in pairs]

    def check(index: int) -> float:
        source, target = lists[index].unbind(1)
        return _differs((cache.k[target], cache.v[target]), (cache.k[source], cache.v[source]))

    return Work([[copy_launch(cache, cache, each)] for each in lists], check=check)


def host_copy_launch(source: torch.Tensor, destination: torch.Tensor) -> Launch:
    """One kernel that copies rows (an even number of blocks) between pinned host memory and the
    GPU; half of them travel as K, the others as V."""
    count, width = source.shape
    caches = (KVCache(*x.view(2, count // 2, 1, 1, width)) for x in (source, destination))
    pairs = np.stack([np.arange(count // 2)] * 2, 1)
    device = next((x.device for x in (source, destination) if x.device.type != "cpu"), "cpu")
    return copy_launch(*caches, torch.from_numpy(pairs).to(device))


def host_link_work(point: Point, pool: Pool) -> Work:
    """Blocks between the pool and pinned host memory: one copy a block ("memcpy", in a graph, and
    "issued" by Python one by one) or one kernel for all."""
    count, width = point.size[0], point.size[1] // torch.bfloat16.itemsize
    words = pool.cache_words().view(torch.bfloat16)
    size = count * width
    near, other = words[:size].view(count, width), words[-size:].view(count, width)
    pinned = pool.device.kind == "cuda"
    host = torch.empty(count, width, dtype=torch.bfloat16, pin_memory=pinned)
    host.copy_(other)  # numbers, since they go into the pool
    source, destination = (near, host) if point.kernel == "d2h" else (host, near)

    def check(index: int) -> float:
        return _differs((destination.cpu(),), (source.cpu(),))

    if point.variant == "kernel":
        return Work([[host_copy_launch(source, destination)]], check=check)

    def copy_all() -> None:
        for to_block, from_block in zip(destination, source, strict=True):
            to_block.copy_(from_block, non_blocking=True)

    return Work([[copy_all]], check=check)


TRANSFERS: dict[str, Callable[[Point, Pool], Work]] = {
    "append": append_work,
    "copy_blocks": copy_work,
    "h2d": host_link_work,
    "d2h": host_link_work,
}
