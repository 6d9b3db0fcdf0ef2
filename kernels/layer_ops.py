"""The small operations of a transformer layer beside attention and linears, one launch each as in
real engines.

They are here so that calibrate can time them and a whole layer; layouts are those of the layer in
calibrate.
"""

# A kernel has many arguments, and its constexprs are in capitals.
# ruff: noqa: N803, PLR0913, PLR0917

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.launch import Launch


@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, width, epsilon, WIDTH: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64) * width
    column = tl.arange(0, WIDTH)
    live = column < width
    x = tl.load(x_ptr + row + column, mask=live, other=0.0).to(tl.float32)
    x += tl.load(residual_ptr + row + column, mask=live, other=0.0).to(tl.float32)
    tl.store(residual_ptr + row + column, x.to(residual_ptr.dtype.element_ty), mask=live)
    weight = tl.load(weight_ptr + column, mask=live, other=0.0).to(tl.float32)
    y = x * tl.rsqrt(tl.sum(x * x, 0) / width + epsilon) * weight
    tl.store(out_ptr + row + column, y.to(out_ptr.dtype.element_ty), mask=live)


@triton.jit
def rope_kernel(
    x_ptr,
    cos_ptr,
    sin_ptr,
    positions_ptr,
    stride_row,
    num_heads,
    HALF: tl.constexpr,
    HEADS: tl.constexpr,
):
    token = tl.program_id(0)
    position = tl.load(positions_ptr + token)
    i = tl.arange(0, HALF)
    cos = tl.load(cos_ptr + position * HALF + i)[None, :]
    sin = tl.load(sin_ptr + position * HALF + i)[None, :]
    head = tl.arange(0, HEADS)
    live = (head < num_heads)[:, None]
    at = x_ptr + token.to(tl.int64) * stride_row + head[:, None] * (2 * HALF) + i[None, :]
    low = tl.load(at, mask=live, other=0.0).to(tl.float32)
    high = tl.load(at + HALF, mask=live, other=0.0).to(tl.float32)
    tl.store(at, (low * cos - high * sin).to(x_ptr.dtype.element_ty), mask=live)
    tl.store(at + HALF, (high * cos + low * sin).to(x_ptr.dtype.element_ty), mask=live)


@triton.jit
def silu_and_mul_kernel(x_ptr, out_ptr, width, WIDTH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    live = column < width
    gate = tl.load(x_ptr + row * 2 * width + column, mask=live, other=0.0).to(tl.float32)
    up = tl.load(x_ptr + row * 2 * width + width + column, mask=live, other=0.0).to(tl.float32)
    tl.store(
        out_ptr + row * width + column,
        (gate * tl.sigmoid(gate) * up).to(out_ptr.dtype.element_ty),
        mask=live,
    )


def add_rms_norm_launch(
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    out: torch.Tensor,
    epsilon: float = 1e-5,
) -> Launch:
    """residual += x; out = residual normalised over the last dimension, times weight. All (rows,
    width), weight (width,).
    """
    rows, width = x.shape
    options = {"WIDTH": triton.next_power_of_2(width), "num_warps": 8}
    return Launch(add_rms_norm_kernel, (rows,), (x, residual, weight, out, width, epsilon), options)


def rope_launch(
    x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, positions: torch.Tensor
) -> Launch:
    """Rotate, in place, every head of x (rows, heads, head_dim) by its row's position (int32);
    halves, not pairs.

    cos, sin: fp32 (max_position, head_dim / 2); heads of a row must lie one after another, rows may
    be strided.
    """
    rows, heads, head_dim = x.shape
    options = {"HALF": head_dim // 2, "HEADS": triton.next_power_of_2(heads), "num_warps": 4}
    return Launch(rope_kernel, (rows,), (x, cos, sin, positions, x.stride(0), heads), options)


def silu_and_mul_launch(x: torch.Tensor, out: torch.Tensor) -> Launch:
    """out (rows, width) = silu(gate) * up of x (rows, 2 * width), gate first."""
    rows, width = out.shape
    grid = (rows, triton.cdiv(width, 1024))
    return Launch(silu_and_mul_kernel, grid, (x, out, width), {"WIDTH": 1024, "num_warps": 4})
