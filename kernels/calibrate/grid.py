"""The sections of the protocol and their grids."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import product

from kernels.calibrate.points import DEEPSEEK, LINEARS, LLAMA, Pace, Point, predicted_s
from kernels.decode import DecodeConfig
from kernels.launch import FP8
from kernels.standins import Model

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
LENGTHS = (128, 512, 1024, 2048, 4096, 8192, 16384, 32768)
MAX_TOKENS = 2**20  # keys of one call: 4.3 GB in bf16
SLICE = (
    (1, 1024), (1, 8192), (4, 2048), (8, 1024), (16, 1024), (16, 4096), (32, 2048),
    (64, 512), (64, 2048), (128, 1024), (256, 256), (256, 1024),
)  # fmt: skip
SPREAD = ((1, 8192), (8, 2048), (16, 8192), (32, 2048), (64, 4096), (256, 1024))
COMPOSED = (
    (1, 2048), (8, 1024), (8, 8192), (32, 2048), (64, 1024), (64, 4096),
    (128, 2048), (256, 1024),
)  # fmt: skip
APPENDED = (1, 8, 32, 64, 128, 256, 512, 2048, 8192)
ROWS = (
    1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 4096,
    6144, 8192,
)  # fmt: skip
SMALL_ROWS = (1, 8, 32, 64, 128, 256, 2048, 8192)


def decode_point(section: str, layout: str | int, batch: int, length: int, **rest: object) -> Point:
    """A decode of equal lengths; layout is "contiguous" or a block size."""
    paged = isinstance(layout, int)
    point = Point(
        section,
        "decode",
        "auto" if paged else "contiguous",
        block_size=layout if isinstance(layout, int) else 0,
        lengths=(length,) * batch,
        len_spec=str(length),
        order="random" if paged else "in order",
    )
    return replace(point, **rest)  # type: ignore[arg-type]


def sentinel() -> Point:
    """The fixed point that is timed again and again to see the machine drift."""
    return decode_point("sentinels", 16, 32, 2048)


def _decode_grid(rng: random.Random) -> Iterable[Point]:
    for batch, length in product(BATCHES, LENGTHS):
        if batch * length <= MAX_TOKENS:
            for layout in ("contiguous", 16, 64, 128):
                yield decode_point("decode", layout, batch, length)


def _off_grid(rng: random.Random) -> Iterable[Point]:
    """Never used in a fit; log-uniform, so no power of two but by accident."""
    found: set[tuple[int, int]] = set()
    while len(found) < 40:
        batch, length = round(2 ** rng.uniform(0, 8)), round(2 ** rng.uniform(7, 15))
        if batch * length <= MAX_TOKENS and (batch not in BATCHES or length not in LENGTHS):
            found.add((batch, length))
    for batch, length in sorted(found):
        for layout in ("contiguous", 16):
            yield decode_point("off_grid", layout, batch, length)


def _slices(rng: random.Random) -> Iterable[Point]:
    for heads, (batch, length) in product(((8, 1), (64, 8), (32, 32)), SLICE):
        yield decode_point("slices", 16, batch, length, model=Model(*heads))
    for batch, length in SLICE:
        yield decode_point("slices", 16, batch, length, model=Model(kv_dtype=FP8))
        yield decode_point("slices", 1, batch, length)
        yield decode_point("slices", 256, batch, length)


def _pipeline(rng: random.Random) -> Iterable[Point]:
    """What the table lookup costs, and what of it is lost prefetch: kv_stages in the row tells the
    two apart.
    """
    for batch, length in SPREAD:
        for stages in (2, 3, 4, 5):
            config = DecodeConfig(num_stages=stages)
            yield decode_point("pipeline", "contiguous", batch, length, config=config)
        for size, stages, lookup in product(
            (16, 64, 128), (3, 5), ("inline", "ahead", "inline_scalar", "ahead_scalar")
        ):
            if size >= 64 or not lookup.endswith("scalar"):
                config = DecodeConfig(num_stages=stages, lookup=lookup)
                yield decode_point("pipeline", size, batch, length, variant=lookup, config=config)


def _splits(rng: random.Random) -> Iterable[Point]:
    for (batch, length), splits in product(
        ((1, 8192), (8, 8192), (32, 2048), (64, 4096)), (1, 2, 4, 8, 16, 32)
    ):
        yield decode_point("splits", 16, batch, length, splits=splits)


def _side(rng: random.Random) -> Iterable[Point]:
    """Things that should or should not matter: block order, a warm L2, launching without a graph;
    the combine pass.
    """
    for batch, length in SLICE[:10]:
        yield decode_point("side", 16, batch, length, order="in order")
    for batch, length in SLICE:
        yield decode_point("side", 16, batch, length, l2="warm")
        yield decode_point("side", 16, batch, length, eager=True)
    for batch, length in SPREAD:
        yield decode_point("side", 16, batch, length, kernel="combine", splits=8)


def ragged_lengths(kind: str, batch: int, total: int, rng: random.Random) -> tuple[int, ...]:
    """Lengths of one batch that add to `total`: lognormal (sigma 1), bimodal (1 to 8, half each),
    one of half the total.
    """
    if kind == "lognormal":
        weights = [rng.lognormvariate(0.0, 1.0) for _ in range(batch)]
    elif kind == "bimodal":
        weights = [1.0 if i % 2 else 8.0 for i in range(batch)]
    else:
        weights = [float(batch - 1)] + [1.0] * (batch - 1)
    lengths = [max(1, int(total * w / sum(weights))) for w in weights]
    lengths[lengths.index(max(lengths))] += total - sum(lengths)
    return tuple(lengths)


def _ragged(rng: random.Random) -> Iterable[Point]:
    uniform = (
        (4, 2048),
        (8, 4096),
        (16, 1024),
        (16, 8192),
        (32, 2048),
        (64, 1024),
        (64, 4096),
        (128, 2048),
    )
    for (batch, length), kind in product(uniform, ("lognormal", "bimodal", "one-long")):
        lengths = ragged_lengths(kind, batch, batch * length, rng)
        yield decode_point(
            "ragged", 16, batch, length, lengths=lengths, len_spec=f"{kind}:{length}"
        )


def _prefill(rng: random.Random) -> Iterable[Point]:
    for queries, context, batch in product(
        (128, 512, 1024, 2048, 4096, 8192), (0, 2048, 8192, 32768), (1, 4)
    ):
        if batch * queries <= 16384 and batch * (context + queries) <= 4 * 36864:
            for layout in ("contiguous", 16):
                length = context + queries
                yield decode_point(
                    "prefill", layout, batch, length, kernel="prefill", queries=queries
                )
    for queries, context, size in product((1024, 4096), (0, 8192), (1, 64, 128)):
        length = context + queries
        yield decode_point("prefill", size, 1, length, kernel="prefill", queries=queries)


def _moves(rng: random.Random) -> Iterable[Point]:
    for tokens in APPENDED:
        for model in (LLAMA, Model(kv_dtype=FP8)):
            yield Point("moves", "append", "auto", 16, model, queries=tokens)
    for block_size, count in product((16, 32, 128, 256), (1, 16, 256, 4096)):
        size = (count, block_size * LLAMA.num_kv_heads * LLAMA.tile_bytes(1) // 2)
        yield Point("moves", "copy_blocks", "auto", block_size=block_size, size=size)


def _latent(rng: random.Random) -> Iterable[Point]:
    for (batch, length), size in product(SPREAD, (16, 64)):
        yield decode_point("mla", size, batch, length, kernel="mla", model=DEEPSEEK)


def _host_link(rng: random.Random) -> Iterable[Point]:
    """One copy a block in a graph, one kernel over a list of blocks, or one copy a block as Python
    issues them; and single large copies, which show what the link can do."""
    for kib, count, way in product((4, 16, 32, 64, 256, 1024), (1, 16, 256), ("h2d", "d2h")):
        variants = {1: ("memcpy",), 16: ("memcpy", "kernel"), 256: ("memcpy", "kernel", "issued")}
        for variant in variants[count]:
            size = (count, kib * 1024)
            yield Point("host_link", way, variant, size=size, eager=variant == "issued")
    for mib, way in product((16, 256), ("h2d", "d2h")):
        yield Point("host_link", way, "memcpy", size=(1, mib * 2**20))


def _linears(rng: random.Random) -> Iterable[Point]:
    for (name, size), rows in product(LINEARS.items(), ROWS):
        yield Point("linears", "linear", name, queries=rows, size=size)
    for kernel, rows in product(("add_rms_norm", "rope", "silu_and_mul"), SMALL_ROWS):
        yield Point(
            "linears", kernel, "auto", queries=rows, l2="warm"
        )  # their input was just written


def _composition(rng: random.Random) -> Iterable[Point]:
    for (batch, length), layers in product(COMPOSED, (1, 32)):
        yield decode_point(
            "composition", 16, batch, length, kernel="layer", variant=f"{layers} layers"
        )


GRIDS: dict[str, Callable[[random.Random], Iterable[Point]]] = {
    "decode": _decode_grid,
    "off_grid": _off_grid,
    "slices": _slices,
    "pipeline": _pipeline,
    "ragged": _ragged,
    "prefill": _prefill,
    "moves": _moves,
    "linears": _linears,
    "composition": _composition,
    "splits": _splits,
    "side": _side,
    "mla": _latent,
    "host_link": _host_link,
}


@dataclass(frozen=True)
class Section:
    """A part of the protocol: run as a whole or skipped as a whole."""

    name: str
    points: list[Point] = field(default_factory=list)

    def predicted_s(self, pace: Pace) -> float:
        return sum(predicted_s(point, pace) for point in self.points)


def sections(seed: int) -> list[Section]:
    """All sections in the order they run; within one the points are shuffled, so that drift is not
    aligned with size.
    """
    result = []
    for name, grid in GRIDS.items():
        rng = random.Random(f"{seed}/{name}")
        points = list(grid(rng))
        rng.shuffle(points)
        result.append(Section(name, points))
    return result
