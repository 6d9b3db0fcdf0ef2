"""`--dry`: everything that can be rehearsed without a GPU. Nothing it writes is a time on a GPU.

The grid and its predicted cost; every variant compiled for the target; and one small point of
every kind built by the same code as the real run and executed once under the interpreter, its
output checked (a process of its own: `python -m kernels.calibrate.dry`, since the interpreter is
chosen when triton is imported).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernels.calibrate.grid import Section, sections, sentinel
from kernels.calibrate.output import write_json
from kernels.calibrate.points import FAST, SLOW, Pace, Point, predicted_s
from kernels.calibrate.run import REPEAT_EVERY, SENTINEL_EVERY
from kernels.launch import H200_SMS

H200_ARCH = 90
# Seconds of what has no points, lower and upper: importing torch and waking the GPU; starting the
# processes that compile (each imports torch and triton); checks of everything timed; the ceilings.
START_S, PROCESSES_S, CORRECTNESS_S, CEILINGS_S = (4.0, 20.0), (4.0, 12.0), (5.0, 25.0), (1.0, 5.0)
COMPILE_S = (1.0, 4.0)  # one variant on one core, cold: 2 were measured
ASSUMED_WORKERS = 14  # of the 16 cores beside an H200
STATE_S = (0.03, 0.4)  # nvidia-smi, once a sentinel
SMALL_POOL_BYTES = 2**24


def shrink(point: Point) -> Point:
    """The same kind of point, small enough for the interpreter."""
    model = point.model
    if point.kernel not in ("append", "copy_blocks", "rope"):
        model = replace(
            model, num_kv_heads=1, num_heads=min(4, model.num_heads // model.num_kv_heads)
        )
    if point.kernel == "layer":
        model = replace(model, num_heads=2, head_dim=64)
    count = min(2, len(point.lengths))
    lengths = tuple(100 + 60 * i for i in range(count))
    queries = 40 if point.kernel == "prefill" else min(3, point.queries)
    size = (64, 64)
    if point.kernel in ("copy_blocks", "h2d", "d2h"):
        size = (min(2, point.size[0]), min(2**20, point.size[1]))
    variant = "2 layers" if point.variant == "32 layers" else point.variant
    return replace(point, model=model, lengths=lengths, queries=queries, size=size, variant=variant)


def small_points(all_sections: list[Section]) -> list[Point]:
    """One small point of every kind that occurs, whatever its section."""
    small = [replace(shrink(p), section="dry", len_spec="") for s in all_sections for p in s.points]
    return list(dict.fromkeys(small))


def rehearse() -> list[dict[str, Any]]:
    """Build and run every small point once, under the interpreter, and check what it wrote."""
    from kernels.calibrate.build import build  # noqa: PLC0415
    from kernels.calibrate.pool import Device, Pool  # noqa: PLC0415

    pool = Pool(Device("cpu", l2_bytes=2**12), SMALL_POOL_BYTES)
    results = []
    for point in small_points(sections(seed=0)):
        model = point.model
        name = f"{point.kernel} {point.variant} block {point.block_size} {model.stored}"
        try:
            work = build(point, pool)
            last = min(2, len(work.sets)) - 1
            for step in work.sets[last]:
                step()
            error = work.check(last) if work.check else None
            results.append({"point": name, "error": error, "ok": error is None or error < 0.03})
        except Exception as problem:
            results.append(
                {
                    "point": name,
                    "ok": False,
                    "failure": f"{type(problem).__name__}: {problem}"[:300],
                }
            )
    return results


def predicted(all_sections: list[Section], num_compiled: int) -> dict[str, tuple[float, float]]:
    """Lower and upper estimate of device seconds a section, by arithmetic."""
    each = -(-num_compiled // ASSUMED_WORKERS)
    every_point = [p for section in all_sections for p in section.points]
    sentinels = len(every_point) // SENTINEL_EVERY + 2

    def at(pace: Pace, i: int) -> dict[str, float]:
        again = sum(predicted_s(p, pace) for p in every_point) / REPEAT_EVERY
        return {
            "start": START_S[i],
            "compile": PROCESSES_S[i] + each * COMPILE_S[i],
            "correctness": CORRECTNESS_S[i],
            "ceilings": CEILINGS_S[i],
            **{section.name: section.predicted_s(pace) for section in all_sections},
            "repeats": again,
            "sentinels": sentinels * (predicted_s(sentinel(), pace) + STATE_S[i]),
        }

    low, high = at(FAST, 0), at(SLOW, 1)
    return {name: (round(low[name], 1), round(high[name], 1)) for name in low}


def check_variants() -> list[dict[str, Any]]:
    """The correctness section on small problems, under the interpreter."""
    from kernels.calibrate.correctness import REHEARSAL, run_checks  # noqa: PLC0415
    from kernels.calibrate.variants import all_variants  # noqa: PLC0415

    points = [p for section in sections(seed=0) for p in section.points]
    results = run_checks(all_variants(points, H200_SMS), "cpu", REHEARSAL)
    return [{"point": f"check of {r['variant']}", **r} for r in results]


def run_interpreted() -> list[dict[str, Any]]:
    """`rehearse` in a process with TRITON_INTERPRET=1."""
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-W", "ignore", "-m", "kernels.calibrate.dry"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return [{"point": "all", "ok": False, "failure": done.stderr[-500:]}]
    result: list[dict[str, Any]] = json.loads(done.stdout)
    return result


def print_plan(
    all_sections: list[Section], seconds: dict[str, tuple[float, float]], budget: float
) -> None:
    """The sections with their points and predicted seconds, and whether they fit the budget."""
    counts = {section.name: len(section.points) for section in all_sections}
    print(f"{'predicted for an H200':24s}       lower  upper, seconds")
    for name, (low, high) in seconds.items():
        print(f"{name:12s} {counts.get(name, 0):4d} points {low:11.1f} {high:6.1f}")
    low, high = (sum(pair[i] for pair in seconds.values()) for i in (0, 1))
    print(f"{'total':12s} {sum(counts.values()):4d} points {low:11.1f} {high:6.1f}")
    if high > budget:
        which = "would" if low > budget else "may"
        print(f"over the budget of {budget:.0f} s: the last sections {which} be skipped")


def run_dry(folder: Path, budget: float, seed: int, workers: int) -> int:
    """Rehearse; returns the exit code: 0 if everything compiled and ran."""
    from kernels.calibrate.precompile import compile_all  # noqa: PLC0415

    begin = time.monotonic()
    all_sections = sections(seed)
    compiled = compile_all(H200_ARCH, [p for s in all_sections for p in s.points], workers)
    seconds = predicted(all_sections, len(compiled))
    print_plan(all_sections, seconds, budget)
    good = sum(c["ok"] for c in compiled)
    print(f"{good} of {len(compiled)} variants compile for sm_{H200_ARCH} without spills")
    ran = run_interpreted()
    print(f"{sum(r['ok'] for r in ran)} of {len(ran)} kinds of points and checks run interpreted")
    problems = [x for x in (*compiled, *ran) if not x["ok"]]
    for problem in problems:
        print("  failed:", problem)
    document = {
        "what": "a rehearsal without a GPU: predictions and compiled kernels, no measurement",
        "budget_s": budget,
        "predicted_s": {name: {"lower": a, "upper": b} for name, (a, b) in seconds.items()},
        "compiled": compiled,
        "rehearsed": ran,
        "dry_run_s": round(time.monotonic() - begin, 1),
    }
    write_json(folder / "dry.json", document)
    return 1 if problems else 0


if __name__ == "__main__":
    print(json.dumps(rehearse() + check_variants()))
