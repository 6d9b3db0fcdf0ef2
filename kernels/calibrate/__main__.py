"""`python -m kernels.calibrate`: see kernels/README.md."""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Of the budget: when compiling, checking and measuring ceilings stop, done or not.
PREPARE_SHARES = (0.4, 0.6, 0.65)
TRUE = ("1", "true", "on", "yes", "y")  # what Triton reads as true


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
    elif args.workers is not None and args.workers < 1:
        sentence = f"--workers must be at least 1, not {args.workers}."
    elif out_refusal(args.out):
        sentence = out_refusal(args.out)
    elif os.environ.get("TRITON_INTERPRET", "").lower() in TRUE:
        sentence = "TRITON_INTERPRET is set: interpreted kernels have no GPU times; unset it."
    else:
        missing = [m for m in ("torch", "triton") if importlib.util.find_spec(m) is None]
        if missing:
            needed = "calibration needs torch, triton, numpy and pyyaml."
            sentence = f"{' and '.join(missing)} cannot be imported; {needed}"
        elif not args.dry:
            sentence = machine_refusal(args.allow_dirty)
    return sentence


def out_refusal(out: Path) -> str | None:
    """Why nothing can be written into that folder, in one sentence; None if it can. Creates
    nothing: of a folder that does not exist yet, the nearest one above it is tried."""
    try:
        for name in ("calibration.json", "points.csv", "dry.json"):
            if (out / name).is_dir():
                return f"--out {out} cannot be used: {name} in it is a folder."
        nearest = next(p for p in (out, *out.absolute().parents) if p.exists())
        if not nearest.is_dir():
            return f"--out {out} cannot be a folder: {nearest} is a file."
        with tempfile.TemporaryFile(dir=nearest):
            return None
    except (OSError, ValueError) as problem:
        return f"--out {out} cannot be written: {problem}."


def machine_refusal(allow_dirty: bool) -> str | None:
    """Why this machine or checkout cannot be measured, in one sentence; None if it can."""
    import torch  # noqa: PLC0415

    from kernels.calibrate.provenance import git  # noqa: PLC0415

    if not torch.cuda.is_available():
        return "there is no GPU here; use --dry to rehearse without one."
    if git()["dirty"] and not allow_dirty:
        return "kernels/ differs from the commit; commit first, or use --allow-dirty."
    return None


def new_document(args: argparse.Namespace) -> dict[str, Any]:
    """What calibration.json says before anything has been compiled or timed."""
    from kernels.calibrate import provenance  # noqa: PLC0415
    from kernels.calibrate.output import SCHEMA  # noqa: PLC0415

    return {
        "schema": SCHEMA,
        "status": "incomplete",
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "git": provenance.git(),
        "kernel_files": provenance.kernel_hashes(),
        "script_args": {k: str(v) for k, v in vars(args).items()},
        "seed": args.seed,
        "gpu": provenance.gpu(),
        "software": provenance.software(),
        "failures": {},
        "compiled": [],
        "correctness": [],
        "pool_bytes": None,
        "ceilings": {},
        "sentinels": [],
        "kernels": {},
        "sections": {},
    }


def start_files(folder: Path, document: dict[str, Any]) -> None:
    """Replace what an earlier run left there, so that no moment shows old times as new ones."""
    from kernels.calibrate.output import write_json  # noqa: PLC0415

    (folder / "points.csv").unlink(missing_ok=True)
    write_json(folder / "calibration.json", document)


def attempt(document: dict[str, Any], name: str, work: Callable[[], Any]) -> None:
    """document[name] = work(); where it raises, the entry stays and "failures" says why."""
    try:
        document[name] = work()
    except Exception as problem:  # the points can still be timed
        document["failures"][name] = f"{type(problem).__name__}: {problem}"[:300]
        print(f"{name} failed: {document['failures'][name]}")


def left_out(document: dict[str, Any]) -> dict[str, str]:
    """One sentence for each of compiling and checking that the budget cut short."""
    from kernels.calibrate.sanity import OUT_OF_TIME  # noqa: PLC0415

    found = {}
    for step, cost in (("compiled", "compile when timed"), ("correctness", "are not timed")):
        count = sum(each.get("failure") == OUT_OF_TIME for each in document[step])
        if count:
            found[step] = f"{count} variants {OUT_OF_TIME}; they {cost}"
    return found


def calibrate(args: argparse.Namespace, begin: float) -> int:
    """The whole protocol on a GPU; returns the exit code. Whatever ends it early, the files hold
    what was done until then, and say what it was."""
    document = new_document(args)
    start_files(args.out, document)
    try:
        return measure(args, begin, document)
    except Exception as problem:
        from kernels.calibrate.output import write_json  # noqa: PLC0415

        reason = f"{type(problem).__name__}: {problem}".splitlines()[0][:300]
        document["status"], document["failures"]["run"] = "failed", reason
        write_json(args.out / "calibration.json", document)
        print(f"the calibration ended early: {reason}", file=sys.stderr)
        return 1


def measure(args: argparse.Namespace, begin: float, document: dict[str, Any]) -> int:
    """Compile, check, then time everything; returns the exit code."""
    import torch  # noqa: PLC0415

    from kernels.calibrate import ceilings, correctness, precompile, sanity  # noqa: PLC0415
    from kernels.calibrate.grid import sections  # noqa: PLC0415
    from kernels.calibrate.pool import Device, Pool  # noqa: PLC0415
    from kernels.calibrate.run import Calibration  # noqa: PLC0415
    from kernels.calibrate.timing import GraphTimer  # noqa: PLC0415
    from kernels.calibrate.variants import all_variants  # noqa: PLC0415

    device, plan = Device.gpu(), sections(args.seed)
    points = [p for s in plan for p in s.points]
    compile_by, check_by, ceilings_by = (begin + share * args.budget for share in PREPARE_SHARES)
    attempt(
        document,
        "compiled",
        lambda: precompile.compile_all(device.arch, points, args.workers, compile_by),
    )
    print(f"compiled {len(document['compiled'])} variants in {time.monotonic() - begin:.0f} s")
    variants = all_variants(points, device.num_sms)
    document["correctness"] = correctness.run_checks(variants, "cuda", deadline=check_by)
    broken = correctness.broken(document["correctness"])
    print(f"checked {len(variants)} variants, broken: {sorted(broken) or 'none'}")
    torch.cuda.empty_cache()
    pool, timer = Pool.largest(device, args.seed), GraphTimer()
    document["pool_bytes"] = pool.num_bytes
    run = Calibration(args.out, pool, timer, begin + args.budget, document, broken=broken)
    document["ceilings"], failures = ceilings.measure_ceilings(pool, timer, ceilings_by)
    document["ceilings"]["link_tb_s"] = sanity.link_tb_s(document["gpu"]["name"])
    document["failures"] |= left_out(document) | failures
    print(f"a pool of {pool.num_bytes / 2**30:.2f} GiB; ceilings: {document['ceilings']}")
    print(f"failed steps: {document['failures'] or 'none'}")
    run.write()
    run.run(plan)
    run.finish()
    return 1 if run.failed() else 0


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
