"""What every kernel here shares: its launch as a value, the KV cache it reads, and the checks of
its input.

A host function builds `Launch` objects and then runs them. The same objects can be compiled without
a GPU (`kernels.static`), captured into a CUDA graph (`kernels.calibrate`) or run by Triton's
interpreter on CPU tensors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
import triton
import triton.language as tl

BLOCK_SIZES = (1, 8, 16, 32, 64, 128, 256)  # tokens a block
HEAD_DIMS = (64, 128, 256)
QUERY_DTYPES = (torch.float16, torch.bfloat16, torch.float32)  # float32: exact tests; slow on a GPU
FP8 = torch.float8_e4m3fn
LOG2E = 1.4426950408889634  # softmax in base 2: exp2 is the hardware's own exponential
MAX_SEQUENCES = 65535  # of one launch: CUDA's limit of a grid's second and third axis
H200_SMS = 132  # assumed where no GPU can be asked (compile-only, interpreter)


class KernelInputError(ValueError):
    """A kernel was given something it does not support; the message is one sentence that says
    what.
    """


def require(condition: bool, sentence: str) -> None:
    """Raise `KernelInputError(sentence)` unless `condition` holds."""
    if not condition:
        raise KernelInputError(sentence)


def interpreted() -> bool:
    """Whether TRITON_INTERPRET=1 was set when triton was imported: kernels then run in numpy on the
    CPU.
    """
    return bool(triton.knobs.runtime.interpret)


@dataclass(frozen=True)
class Launch:
    """One kernel launch: what runs, on how many programs, with which arguments."""

    kernel: Any
    grid: tuple[int, ...]
    args: tuple[Any, ...]
    options: dict[str, Any] = field(default_factory=dict)

    def __call__(self) -> Any:
        """Run on the current device; returns the compiled kernel (None under the interpreter)."""
        return self.kernel[self.grid](*self.args, **self.options)

    def compile(self) -> Any:
        """Compile for the active driver's target, exactly as a run would specialise it; returns the
        kernel.
        """
        return self.kernel.warmup(*self.args, grid=self.grid, **self.options)

    @property
    def name(self) -> str:
        return str(self.kernel.fn.__name__)


@dataclass(frozen=True)
class KVCache:
    """Keys and values of one layer.

    k, v: (num_blocks, block_size, num_kv_heads, head_dim), or (num_slots, num_kv_heads, head_dim)
    for contiguous memory; fp16, bf16, fp32 or float8_e4m3fn; any strides whose last is 1 (so a
    cache that stores heads before slots is passed as a permuted view). k_scale, v_scale: what a
    stored fp8 value is multiplied by.
    """

    k: torch.Tensor
    v: torch.Tensor
    k_scale: float = 1.0
    v_scale: float = 1.0

    @property
    def block_size(self) -> int:
        """Tokens a block."""
        return int(self.k.shape[1])

    @property
    def num_kv_heads(self) -> int:
        return int(self.k.shape[-2])

    @property
    def head_dim(self) -> int:
        return int(self.k.shape[-1])

    def flat(self) -> KVCache:
        """The same memory as slots, without blocks: token t of block b is slot b * block_size +
        t.
        """
        return KVCache(self.k.flatten(0, 1), self.v.flatten(0, 1), self.k_scale, self.v_scale)

    def strides(self) -> tuple[int, int, int]:
        """Elements from one block, slot and head to the next; the block stride of flat memory is
        0.
        """
        block = 0 if self.k.dim() == 3 else int(self.k.stride(0))
        return block, int(self.k.stride(-3)), int(self.k.stride(-2))


def check_cache(cache: KVCache, paged: bool) -> None:
    """Raise `KernelInputError` unless the cache has a layout, block size, head size and dtype we
    have kernels for.
    """
    k, v = cache.k, cache.v
    check_tensors(k=k, v=v)
    dims = 4 if paged else 3
    require(
        k.dim() == dims,
        f"a {'paged' if paged else 'contiguous'} cache has {dims} dimensions, "
        f"this one has {k.dim()}.",
    )
    require(
        k.shape == v.shape and k.stride() == v.stride() and k.dtype == v.dtype,
        "k and v must have the same shape, strides and dtype.",
    )
    require(k.device == v.device, f"k is on {k.device}, v on {v.device}: use one device.")
    require(cache.num_kv_heads > 0, "a cache needs at least one KV head, this one has 0.")
    require(k.stride(-1) == 1, "the last dimension of the cache (head_dim) must be contiguous.")
    require(
        cache.head_dim in HEAD_DIMS,
        f"head_dim {cache.head_dim} is not supported, only {HEAD_DIMS}.",
    )
    require(
        k.dtype in (*QUERY_DTYPES, FP8),
        f"a cache of dtype {k.dtype} is not supported, only float16, bfloat16, float32 "
        "and float8_e4m3fn.",
    )
    if paged:
        require(
            cache.block_size in BLOCK_SIZES,
            f"block size {cache.block_size} is not supported, only {BLOCK_SIZES}.",
        )
        check_reach(cache.block_size, k.stride(1))
    for name, scale in (("k_scale", cache.k_scale), ("v_scale", cache.v_scale)):
        check_scale(name, scale, k.dtype)


def check_reach(block_size: int, stride_slot: int) -> None:
    """Raise `KernelInputError` unless 32 bits hold the distance of a block's slots."""
    require(
        (block_size - 1) * stride_slot < 2**31,
        f"a block reaches over {block_size} slots of {stride_slot} elements, "
        "it must stay below 2**31.",
    )


def check_scale(name: str, scale: object, dtype: torch.dtype) -> None:
    """Raise `KernelInputError` unless it is a positive number, and 1 where nothing is scaled."""
    require(
        isinstance(scale, (int, float)) and 0 < scale < math.inf,
        f"{name} must be a positive number, it is {scale!r}.",
    )
    require(
        dtype == FP8 or scale == 1,
        f"only a float8_e4m3fn cache has scales: {name} {scale} does not go with {dtype}.",
    )


def check_tensors(**given: object) -> None:
    """Raise `KernelInputError` unless all of these are torch tensors."""
    for name, value in given.items():
        kind = type(value).__name__
        require(isinstance(value, torch.Tensor), f"{name} must be a torch tensor, not a {kind}.")


def check_query(q: torch.Tensor, cache: KVCache) -> None:
    """Raise `KernelInputError` unless q is (rows, num_heads, head_dim) and fits the cache's heads
    and dtype.
    """
    check_rows(q, cache, "queries")
    require(
        q.shape[1] > 0 and q.shape[1] % cache.num_kv_heads == 0,
        f"{q.shape[1]} query heads are not a multiple of {cache.num_kv_heads} KV heads.",
    )


def check_rows(x: torch.Tensor, cache: KVCache, name: str) -> None:
    """Raise `KernelInputError` unless x is (rows, heads, head_dim), contiguous in head_dim, in the
    cache's dtype or, for an fp8 cache, in any of the other three."""
    check_tensors(**{name: x})
    require(
        x.dim() == 3 and x.shape[-1] == cache.head_dim,
        f"{name} must be (rows, heads, {cache.head_dim}), these are {tuple(x.shape)}.",
    )
    require(x.stride(-1) == 1, f"the last dimension of the {name} (head_dim) must be contiguous.")
    require(
        x.dtype in QUERY_DTYPES and cache.k.dtype in (x.dtype, FP8),
        f"{name} of dtype {x.dtype} do not go with a cache of {cache.k.dtype}: "
        "use one dtype, or a float8_e4m3fn cache.",
    )


def check_batch(batch: int) -> None:
    """Raise `KernelInputError` unless one launch can take that many sequences."""
    require(batch > 0, "there must be at least one sequence.")
    require(
        batch <= MAX_SEQUENCES,
        f"{batch} sequences are more than the {MAX_SEQUENCES} that one launch can take.",
    )


def check_index(index: torch.Tensor, name: str, shape: tuple[int, ...]) -> None:
    """Raise `KernelInputError` unless `index` is a contiguous int32 or int64 tensor of that shape
    (-1: any size).
    """
    check_tensors(**{name: index})
    fits = index.dim() == len(shape) and all(
        want in (-1, have) for want, have in zip(shape, index.shape, strict=True)
    )
    require(fits, f"{name} must have shape {shape} (-1: any), it has {tuple(index.shape)}.")
    require(
        index.dtype in (torch.int32, torch.int64) and index.is_contiguous(),
        f"{name} must be contiguous int32 or int64, it is {index.dtype}.",
    )


def check_tile(name: str, size: int) -> None:
    """Raise `KernelInputError` unless a tile can be that large: tensor cores take at least 16."""
    require(
        size >= 16 and size & (size - 1) == 0,
        f"{name} must be a power of two and at least 16, it is {size}.",
    )


def check_device(*tensors: torch.Tensor) -> None:
    """Raise `KernelInputError` unless all tensors are on one GPU, or on the CPU under Triton's
    interpreter.
    """
    devices = {t.device for t in tensors}
    require(
        len(devices) == 1,
        f"all tensors must be on one device, these are on {sorted(map(str, devices))}.",
    )
    kind = next(iter(devices)).type
    require(
        kind == "cuda" or (kind == "cpu" and interpreted()),
        f"tensors on {kind} need Triton's interpreter: set TRITON_INTERPRET=1 before Python "
        "starts, or use a GPU.",
    )
    if kind == "cuda" and any(t.dtype == FP8 for t in tensors):
        major, minor = torch.cuda.get_device_capability(tensors[0].device)
        require(
            (major, minor) >= (8, 9),
            f"float8_e4m3fn needs compute capability 8.9, this GPU has {major}.{minor}.",
        )


def dot_dtype(q_dtype: torch.dtype, kv_dtype: torch.dtype) -> tl.dtype:
    """The operand dtype of the two matrix products.

    fp8 KV is computed in fp16: every e4m3 value is exact in it, and the conversion from e4m3 goes
    through fp16 on the hardware anyway (to bf16 it would cost two more instructions an element).
    The interpreter multiplies the bit patterns of bf16 (triton issue 11584), so bf16 is computed in
    fp32 there.
    """
    if kv_dtype == FP8 or q_dtype == torch.float16:
        return tl.float16
    if q_dtype == torch.float32 or interpreted():
        return tl.float32
    return tl.bfloat16


def arch(tensor: torch.Tensor) -> int:
    """Compute capability of the tensor's GPU, 90 for 9.0; that of an H200 where there is none."""
    if tensor.device.type != "cuda":
        return 90
    major, minor = torch.cuda.get_device_capability(tensor.device)
    return 10 * major + minor


def num_sms(tensor: torch.Tensor) -> int:
    """Streaming multiprocessors of the tensor's GPU; those of an H200 where there is none."""
    if tensor.device.type != "cuda":
        return H200_SMS
    return int(torch.cuda.get_device_properties(tensor.device).multi_processor_count)
