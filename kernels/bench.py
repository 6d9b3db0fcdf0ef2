"""`python -m kernels.bench`: a few decode points on this machine's GPU, paged beside contiguous.

A first look, in seconds, with calibrate's own timing; nothing is written. A calibration that a cost
model may use comes from `python -m kernels.calibrate`.
"""

from __future__ import annotations

import argparse
import sys

import torch

from kernels.calibrate.build import build
from kernels.calibrate.grid import decode_point
from kernels.calibrate.points import Point, launches_per_graph, moved_bytes
from kernels.calibrate.pool import Device, Pool
from kernels.launch import BLOCK_SIZES, interpreted

POOL_BYTES = 4 * 2**30


def counts(text: str) -> list[int]:
    """Comma-separated positive numbers."""
    values = [int(part) for part in text.split(",")]
    if min(values) < 1:
        raise argparse.ArgumentTypeError(f"{text} holds a number below 1")
    return values


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m kernels.bench", description=__doc__)
    parser.add_argument("--batch", type=counts, default=[1, 32, 128], help="such as 1,32,128")
    parser.add_argument("--length", type=counts, default=[2048], help="keys a sequence")
    parser.add_argument("--block-size", type=counts, default=[16, 64], help=f"of {BLOCK_SIZES}")
    return parser.parse_args(arguments)


def refusal(args: argparse.Namespace) -> str | None:
    """Why this cannot be timed, in one sentence; None if it can."""
    unknown = [size for size in args.block_size if size not in BLOCK_SIZES]
    if unknown:
        return f"block size {unknown[0]} is not supported, only {BLOCK_SIZES}."
    if interpreted():
        return "TRITON_INTERPRET is set: interpreted kernels have no GPU times; unset it."
    if not torch.cuda.is_available():
        return "there is no GPU here; `python -m kernels.calibrate --dry` rehearses without one."
    return None


def main(arguments: list[str] | None = None) -> int:
    """Print one line a point; exit code 2 if it cannot start."""
    args = parse(arguments)
    sentence = refusal(args)
    if sentence:
        print(sentence, file=sys.stderr)
        return 2
    from kernels.calibrate.timing import GraphTimer  # noqa: PLC0415  # makes a CUDA stream

    pool, timer = Pool(Device.gpu(), POOL_BYTES), GraphTimer()

    def microseconds(point: Point) -> float:
        work = build(point, pool)
        return timer.graph(work.sets, launches_per_graph(point, len(work.sets))).us

    print(f"{'batch':>6} {'length':>7} {'block':>6} {'us':>9} {'TB/s':>6} {'/ contiguous':>13}")
    for batch in args.batch:
        for length in args.length:
            flat = microseconds(decode_point("bench", "contiguous", batch, length))
            for size in (0, *args.block_size):
                point = decode_point("bench", size or "contiguous", batch, length)
                us = microseconds(point) if size else flat
                rate = moved_bytes(point) / us / 1e6
                print(f"{batch:6d} {length:7d} {size or '-':>6} {us:9.2f} {rate:6.2f}", end=" ")
                print(f"{us / flat:13.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
