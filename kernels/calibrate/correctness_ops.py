"""The checks of what is no attention: moves, the combine pass, a layer's small operations, cuBLAS
and copies over the host link. Each returns an error, 0 or infinity where bytes are compared."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import torch

from kernels import reference
from kernels.calibrate.points import HIDDEN, INTERMEDIATE, LLAMA
from kernels.calibrate.transfers import host_copy_launch
from kernels.cases import Shape, make_case, relative_error
from kernels.decode import COMBINE_TILE, DecodeBuffers, DecodeCall, DecodeConfig, combine_launch
from kernels.launch import FP8, KVCache
from kernels.layer_ops import add_rms_norm_launch, rope_launch, silu_and_mul_launch
from kernels.moves import append, copy_blocks
from kernels.splits import SplitPlan

BF16 = torch.bfloat16
SAMPLED_ROWS, SAMPLED_COLUMNS = 16, 64  # of a product, compared with float64


def random(*size: int, device: str, dtype: torch.dtype = BF16) -> torch.Tensor:
    """Normal numbers."""
    return torch.empty(size, device=device).normal_().to(dtype)


def same_bytes(a: KVCache, b: KVCache) -> float:
    """0 where both caches hold the same bytes (NaN included), else infinity."""
    pairs = ((a.k, b.k), (a.v, b.v))
    same = all(torch.equal(x.view(torch.uint8), y.view(torch.uint8)) for x, y in pairs)
    return 0.0 if same else float("inf")


def moved(kernel: str, shape: Shape, device: str) -> float:
    """append or copy_blocks beside its reference, all of the cache compared."""
    case = make_case(shape, [200, 90], device=device)
    scales = shape.k_scale, shape.v_scale
    ours, theirs = (KVCache(case.cache.k.clone(), case.cache.v.clone(), *scales) for _ in range(2))
    if kernel == "copy_blocks":
        pairs = torch.tensor([[0, 3], [1, 4]], device=device)
        copy_blocks(ours, ours, pairs)
        reference.copy_blocks(theirs, theirs, pairs)
        return same_bytes(ours, theirs)
    k, v = (_storable(6, shape, scale, device) for scale in scales)
    slots = torch.tensor([40, -1, 3, 0, 61, 17], device=device)
    append(k, v, ours, slots)
    reference.append(k, v, theirs, slots)
    return same_bytes(ours, theirs)


def _storable(rows: int, shape: Shape, scale: float, device: str) -> torch.Tensor:
    """New keys or values; for an fp8 cache numbers that it holds exactly, and two beyond its
    largest: Triton's interpreter rounds others in its own way."""
    x = random(rows, shape.num_kv_heads, shape.head_dim, device=device, dtype=torch.float32)
    if shape.kv_dtype == FP8:
        x = x.to(FP8).float() * scale
        x[0, 0, :2] = torch.tensor([1e6, -1e6], device=device)
    return x.to(shape.dtype)


def combine(device: str, small: bool, width: int) -> float:
    """Pieces of several sequences, one of them with more than one step merges and one with none."""
    heads, pieces = (2 if small else LLAMA.num_heads), COMBINE_TILE + 3
    lengths = torch.tensor([16 * pieces, 20, 0], dtype=torch.int32, device=device)
    part = random(3, heads, pieces, width, device=device, dtype=torch.float32)
    lse = 3 * random(3, heads, pieces, device=device, dtype=torch.float32)
    count = -(-lengths.long() // 16)
    unused = torch.arange(pieces, device=device)[None, None] >= count[:, None, None]
    part.masked_fill_(unused[..., None], float("nan"))
    weights = torch.softmax((lse.double() * 0.6931471805599453).masked_fill(unused, -1e300), -1)
    truth = torch.einsum("bhs,bhsd->bhd", weights, torch.nan_to_num(part).double())
    truth[2] = 0.0
    lse.masked_fill_(unused, float("nan"))
    out = torch.full(truth.shape, float("nan"), dtype=BF16, device=device)
    table = torch.empty(3, 1, dtype=torch.int32, device=device)
    call = DecodeCall(table, lengths, SplitPlan(16, pieces), DecodeConfig())
    combine_launch(call, DecodeBuffers(out, part, lse))()
    return relative_error(out, truth)


def add_rms_norm(device: str, small: bool) -> float:
    """The larger error of the sum and of what is made of it."""
    width = 96 if small else HIDDEN
    x, residual = (random(5, width, device=device) for _ in range(2))
    weight, out = random(width, device=device), torch.full_like(x, float("nan"))
    total, truth = reference.add_rms_norm(x, residual, weight)
    add_rms_norm_launch(x, residual, weight, out)()
    return max(relative_error(residual, total), relative_error(out, truth))


def rope(device: str, small: bool) -> float:
    """The rotated heads, and infinity if the ones beside them in the same rows were touched."""
    heads = 3 if small else LLAMA.num_heads + LLAMA.num_kv_heads
    fused = random(5, heads + 2, LLAMA.head_dim, device=device)
    angle = torch.rand(600, LLAMA.head_dim // 2, device=device) * 6.0
    positions = torch.tensor([0, 599, 3, 77, 5], dtype=torch.int32, device=device)
    truth, beside = reference.rope(fused[:, :heads], angle, positions), fused[:, heads:].clone()
    rope_launch(fused[:, :heads], angle.cos(), angle.sin(), positions)()
    if not torch.equal(fused[:, heads:], beside):
        return float("inf")
    return relative_error(fused[:, :heads], truth)


def silu_and_mul(device: str, small: bool) -> float:
    """The last tile of a row is a part of one where the width is no multiple of 1024."""
    width = 1100 if small else INTERMEDIATE
    x = random(3, 2 * width, device=device)
    out = torch.full((3, width), float("nan"), dtype=BF16, device=device)
    silu_and_mul_launch(x, out)()
    return relative_error(out, reference.silu_and_mul(x))


OPERATIONS: dict[str, Callable[[str, bool], float]] = {
    "add_rms_norm": add_rms_norm,
    "rope": rope,
    "silu_and_mul": silu_and_mul,
}


@lru_cache(maxsize=1)
def _weight(n: int, k: int, device: str) -> torch.Tensor:
    return torch.empty(n, k, dtype=BF16, device=device).normal_()


def clear() -> None:
    """Let go of the weights that were kept from one check to the next."""
    _weight.cache_clear()


def linear(size: tuple[int, int], rows: int, device: str) -> float:
    """cuBLAS at these sizes; a sample of rows and columns against float64, all of it finite."""
    n, k = size
    weight, x = _weight(n, k, device), random(rows, k, device=device)
    out = torch.full((rows, n), float("nan"), dtype=BF16, device=device)
    torch.mm(x, weight.t(), out=out)
    if not bool(torch.isfinite(out).all()):
        return float("inf")
    row = torch.linspace(0, rows - 1, min(rows, SAMPLED_ROWS), device=device).long()
    column = torch.linspace(0, n - 1, min(n, SAMPLED_COLUMNS), device=device).long()
    truth = x[row].double() @ weight[column].double().t()
    return relative_error(out[row][:, column], truth)


def host_copy(way: str, block_bytes: int, device: str) -> float:
    """Four blocks between device and host by one kernel."""
    near = random(4, block_bytes // BF16.itemsize, device=device)
    host = torch.empty(near.shape, dtype=BF16, pin_memory=device == "cuda")
    host.copy_(near.flip(0))
    source, destination = (near, host) if way == "d2h" else (host, near)
    expected = source.to("cpu", copy=True)
    host_copy_launch(source, destination)()
    if device == "cuda":
        torch.cuda.synchronize()
    return 0.0 if torch.equal(destination.cpu(), expected) else float("inf")
