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

from kernels.calibrate.grid import Section, sections
from kernels.calibrate.output import write_json
from kernels.calibrate.points import Point

H200_ARCH = 90
START_S, COMPILE_S, CORRECTNESS_S, CEILINGS_S = (
    15.0,
    20.0,
    15.0,
    8.0,
)  # allowances of the sections without points
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


def predicted(all_sections: list[Section]) -> dict[str, float]:
    """Predicted device seconds a section, by arithmetic."""
    fixed = {
        "start": START_S,
        "compile": COMPILE_S,
        "correctness": CORRECTNESS_S,
        "ceilings": CEILINGS_S,
    }
    return fixed | {s.name: round(s.predicted_s, 1) for s in all_sections}


def run_interpreted() -> list[dict[str, Any]]:
    """`rehearse` in a process with TRITON_INTERPRET=1."""
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-W", "ignore", "-m", "kernels.calibrate.dry"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return [{"point": "all", "ok": False, "failure": done.stderr[-500:]}]
    result: list[dict[str, Any]] = json.loads(done.stdout)
    return result


def print_plan(all_sections: list[Section], budget: float) -> None:
    """The sections with their points and predicted seconds, and whether they fit the budget."""
    seconds = predicted(all_sections)
    counts = {section.name: len(section.points) for section in all_sections}
    for name, value in seconds.items():
        print(f"{name:12s} {counts.get(name, 0):4d} points, predicted {value:6.1f} s")
    total = sum(seconds.values())
    print(f"{'total':12s} {sum(counts.values()):4d} points, predicted {total:6.1f} s")
    if total > budget:
        print(f"that is over the budget of {budget:.0f} s: the last sections would be skipped")


def run_dry(folder: Path, budget: float, seed: int, workers: int) -> int:
    """Rehearse; returns the exit code: 0 if everything compiled and ran."""
    from kernels.calibrate.precompile import compile_all  # noqa: PLC0415

    begin = time.monotonic()
    all_sections = sections(seed)
    print_plan(all_sections, budget)
    compiled = compile_all(H200_ARCH, [p for s in all_sections for p in s.points], workers)
    good = sum(c["ok"] for c in compiled)
    print(f"{good} of {len(compiled)} variants compile for sm_{H200_ARCH} without spills")
    ran = run_interpreted()
    print(f"{sum(r['ok'] for r in ran)} of {len(ran)} kinds of points run under the interpreter")
    problems = [x for x in (*compiled, *ran) if not x["ok"]]
    for problem in problems:
        print("  failed:", problem)
    document = {
        "what": "a rehearsal without a GPU: predictions and compiled kernels, no measurement",
        "budget_s": budget,
        "predicted_s": predicted(all_sections),
        "compiled": compiled,
        "rehearsed": ran,
        "dry_run_s": round(time.monotonic() - begin, 1),
    }
    write_json(folder / "dry.json", document)
    return 1 if problems else 0


if __name__ == "__main__":
    print(json.dumps(rehearse()))
