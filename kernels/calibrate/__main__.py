"""`python -m kernels.calibrate`: see kernels/README.md."""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import os
import sys
import time
from pathlib import Path
from typing import Any


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m kernels.calibrate",
        description="Time the kernels on this machine's GPU, within a budget.",
    )
    parser.add_argument(
        "--out", type=Path, required=True, help="folder for calibration.json and points.csv"
    )
    parser.add_argument(
        "--budget", type=float, default=300.0, help="seconds until it stops by itself (default 300)"
    )
    parser.add_argument(
        "--dry",
        action="store_true",
        help="rehearse without a GPU; writes dry.json, measures nothing",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="of the order of points and of random shapes"
    )
    parser.add_argument(
        "--workers", type=int, default=None, help="processes that compile (default: cores less two)"
    )
    parser.add_argument(
        "--allow-dirty", action="store_true", help="run although kernels/ differs from the commit"
    )
    return parser.parse_args(arguments)


def refusal(args: argparse.Namespace) -> str | None:
    """Why this run cannot be, in one sentence; None if it can."""
    sentence = None
    if not args.budget > 0:
        sentence = f"--budget must be a positive number of seconds, not {args.budget}."
    elif args.out.exists() and not args.out.is_dir():
        sentence = f"--out {args.out} is a file; it must be a folder."
    elif os.environ.get("TRITON_INTERPRET") == "1":
        sentence = "TRITON_INTERPRET is set: interpreted kernels have no GPU times; unset it."
    else:
        missing = [m for m in ("torch", "triton") if importlib.util.find_spec(m) is None]
        if missing:
            needed = "calibration needs torch, triton, numpy and pyyaml."
            sentence = f"{' and '.join(missing)} cannot be imported; {needed}"
        elif not args.dry:
            sentence = machine_refusal(args.allow_dirty)
    return sentence


def machine_refusal(allow_dirty: bool) -> str | None:
    """Why this machine or checkout cannot be measured, in one sentence; None if it can."""
    import torch  # noqa: PLC0415

    from kernels.calibrate.provenance import git  # noqa: PLC0415

    if not torch.cuda.is_available():
        return "there is no GPU here; use --dry to rehearse without one."
    if git()["dirty"] and not allow_dirty:
        return "kernels/ differs from the commit; commit first, or use --allow-dirty."
    return None


def calibrate(args: argparse.Namespace, begin: float) -> int:
    """The whole protocol on a GPU; returns the exit code."""
    import torch  # noqa: PLC0415

    from kernels.calibrate import ceilings, correctness, precompile, provenance  # noqa: PLC0415
    from kernels.calibrate.grid import sections  # noqa: PLC0415
    from kernels.calibrate.output import SCHEMA  # noqa: PLC0415
    from kernels.calibrate.pool import Device, Pool  # noqa: PLC0415
    from kernels.calibrate.run import Calibration  # noqa: PLC0415
    from kernels.calibrate.timing import GraphTimer  # noqa: PLC0415

    major, minor = torch.cuda.get_device_capability(0)
    plan = sections(args.seed)
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "git": provenance.git(),
        "kernel_files": provenance.kernel_hashes(),
        "script_args": {k: str(v) for k, v in vars(args).items()},
        "seed": args.seed,
        "gpu": provenance.gpu(),
        "software": provenance.software(),
        "ceilings": {},
        "sentinels": [],
        "kernels": {},
        "sections": {},
    }
    document["compiled"] = precompile.compile_all(
        major * 10 + minor, [p for s in plan for p in s.points], args.workers
    )
    print(f"compiled {len(document['compiled'])} variants in {time.monotonic() - begin:.0f} s")
    pool, timer = Pool(Device.gpu(), seed=args.seed), GraphTimer()
    run = Calibration(args.out, pool, timer, begin + args.budget, document)
    document["correctness"] = correctness.run_checks("cuda")
    run.broken = {c["kernel"] for c in document["correctness"] if not c["ok"]}
    document["ceilings"] = ceilings.measure_ceilings(pool, timer)
    print(f"broken kernels: {sorted(run.broken) or 'none'}; ceilings: {document['ceilings']}")
    run.write()
    run.run(plan)
    run.finish()
    return 1 if run.broken else 0


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0: done; 1: something failed and the files say what; 2: it could not start."""
    begin = time.monotonic()
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # triton 3.10 changes the default
    args = parse(arguments)
    sentence = refusal(args)
    if sentence:
        print(sentence, file=sys.stderr)
        return 2
    args.out.mkdir(parents=True, exist_ok=True)
    if args.dry:
        from kernels.calibrate.dry import run_dry  # noqa: PLC0415

        return run_dry(args.out, args.budget, args.seed, args.workers or 2)
    return calibrate(args, begin)


if __name__ == "__main__":
    sys.exit(main())
