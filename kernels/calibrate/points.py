"""One thing to time: what it reads and computes, and a rough prediction of its device time."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from kernels.decode import DecodeConfig
from kernels.mla import LATENT, WIDTH
from kernels.standins import Model

LLAMA = Model()
DEEPSEEK = Model(128, 1, WIDTH)  # V3's latent attention: one cache entry for all heads
HIDDEN, INTERMEDIATE, VOCABULARY = 4096, 14336, 128256  # Llama-3.1-8B
LINEARS = {
    "qkv": ((LLAMA.num_heads + 2 * LLAMA.num_kv_heads) * LLAMA.head_dim, HIDDEN),
    "o": (HIDDEN, LLAMA.num_heads * LLAMA.head_dim),
    "gate_up": (2 * INTERMEDIATE, HIDDEN),
    "down": (HIDDEN, INTERMEDIATE),
    "lm_head": (VOCABULARY, HIDDEN),
}


@dataclass(frozen=True)
class Point:
    """One thing to time.

    kernel names the builder in works.py; variant is the lookup of attention kernels ("contiguous",
    "auto", "inline", …) or what is timed of the others. lengths: keys of each sequence, new ones
    included. queries: new tokens of each sequence (attention) or rows (the rest). size: (n, k) of a
    linear, (blocks, bytes of one block's K) of a copy.
    """

    section: str
    kernel: str
    variant: str
    block_size: int = 0
    model: Model = LLAMA
    lengths: tuple[int, ...] = ()
    len_spec: str = ""
    queries: int = 1
    size: tuple[int, int] = (0, 0)
    order: str = "random"
    l2: str = "cold"
    eager: bool = False
    config: DecodeConfig | None = None
    splits: int | None = None  # None: the heuristic

    @property
    def total_kv(self) -> int:
        return sum(self.lengths)

    @property
    def kv_bytes(self) -> int:
        """Keys and values that the point reads; a latent is both."""
        if self.kernel == "mla":
            return self.total_kv * WIDTH * self.model.stored.itemsize
        return self.total_kv * self.model.num_kv_heads * self.model.tile_bytes(1)


def flops(point: Point) -> int:
    """Multiply-adds times two, of the matrix products only."""
    if point.kernel == "linear":
        return 2 * point.queries * point.size[0] * point.size[1]
    if point.kernel in ("decode", "prefill"):
        q = point.queries
        keys = sum(q * (n - q) + q * (q + 1) // 2 for n in point.lengths)
        return 4 * point.model.num_heads * point.model.head_dim * keys
    if point.kernel == "mla":
        return 2 * point.model.num_heads * (WIDTH + LATENT) * point.total_kv
    if point.kernel == "layer":
        weights = sum(n * k for name, (n, k) in LINEARS.items() if name != "lm_head")
        attention = flops(replace(point, kernel="decode"))
        return (2 * len(point.lengths) * weights + attention) * layers(point)
    return 0


def layers(point: Point) -> int:
    """Layers of a composition point."""
    return int(point.variant.split()[0])


def moved_bytes(point: Point) -> int:
    """The bytes that must be moved: K/V (attention), weights and activations (linears), source and
    copy (moves).
    """
    model, width = point.model, torch.bfloat16.itemsize
    token = model.num_kv_heads * model.tile_bytes(1)
    if point.kernel == "linear":
        n, k = point.size
        return width * (n * k + point.queries * (n + k))
    if point.kernel == "layer":
        weights = sum(n * k for name, (n, k) in LINEARS.items() if name != "lm_head")
        return (weights * width + point.kv_bytes) * layers(point)
    new_token = 2 * model.num_kv_heads * model.head_dim * model.dtype.itemsize
    simple = {
        "append": point.queries * (new_token + token),
        "copy_blocks": 2 * 2 * point.size[0] * point.size[1],
        "h2d": point.size[0] * point.size[1],
        "d2h": point.size[0] * point.size[1],
        "add_rms_norm": 4 * width * point.queries * HIDDEN,
        "rope": 2 * width * point.queries * (model.num_heads + model.num_kv_heads) * model.head_dim,
        "silu_and_mul": 3 * width * point.queries * INTERMEDIATE,
        "combine": len(point.lengths)
        * model.num_heads
        * (point.splits or 1)
        * (model.head_dim + 1)
        * 4,
    }
    return simple.get(point.kernel, point.kv_bytes)


@dataclass(frozen=True)
class Pace:
    """A machine as it is assumed to be, for the budget only: nothing that is written as a result
    comes from these numbers.

    setup_s: of a point, to make its tensors and run it once; node_s: to capture and instantiate
    one launch (of a Triton call 13 us were measured without the driver's part); floor_s: of the
    shortest launch; replays: 10, and as many again if the first were noisy.
    """

    bytes_per_s: float
    flops_per_s: float
    floor_s: float
    link_bytes_per_s: float
    setup_s: float
    node_s: float
    replays: int


PLANNED = Pace(3.5e12, 4e14, 6e-6, 2e10, 0.02, 15e-6, 10)  # chooses how many launches go in a graph
FAST = Pace(4.4e12, 7e14, 3e-6, 5e10, 0.005, 12e-6, 10)
SLOW = Pace(1.8e12, 2.5e14, 12e-6, 1e10, 0.05, 40e-6, 20)
LAYER_LAUNCHES = 11


def nodes(point: Point) -> int:
    """Launches or copies of one call: a decode that is split takes two."""
    if point.kernel in ("h2d", "d2h"):
        return 1 if point.variant == "kernel" else point.size[0]
    if point.kernel == "layer":
        return (LAYER_LAUNCHES + 1) * layers(point)
    return 2 if point.kernel in ("decode", "mla") else 1


def assumed_s(point: Point, pace: Pace = PLANNED) -> float:
    """A guess of one call's time."""
    if point.kernel in ("h2d", "d2h"):
        return max(nodes(point) * pace.floor_s, moved_bytes(point) / pace.link_bytes_per_s)
    floor = pace.floor_s * (LAYER_LAUNCHES * layers(point) if point.kernel == "layer" else 1)
    moving = moved_bytes(point) / pace.bytes_per_s
    return floor + max(moving, flops(point) / pace.flops_per_s)


def launches_per_graph(point: Point, rotations: int = 1) -> int:
    """So many that a replay lasts 4 ms, at least 20 of short ones, and each slice of the pool
    once.
    """
    guess = assumed_s(point)
    return max(1, round(4e-3 / guess), min(20, int(20e-3 / guess)), rotations)


def predicted_s(point: Point, pace: Pace) -> float:
    """Predicted device time of a point at this pace, everything included."""
    count = launches_per_graph(point)
    capturing = count * nodes(point) * pace.node_s
    weights = layers(point) / 8 if point.kernel == "layer" else 0.0  # random ones for every layer
    setup = pace.setup_s * (1 + weights)
    return setup + capturing + pace.replays * count * assumed_s(point, pace)
