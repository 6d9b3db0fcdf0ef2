"""The command line of fitting: fit, score, draw.

    python -m sim.costs.fit                       fit all shipped profiles again
    python -m sim.costs.fit h100 a100-80          fit these
    python -m sim.costs.fit kernels/calibrations/h200   fit to measurements of our own kernels
    python -m sim.costs.fit --score [--json]      errors on rows kept out
    python -m sim.costs.fit --figures DIR         a picture of each profile
    python -m sim.costs.fit --compare RESULTS MEASURED    a run beside a measured one

Tables are read from $KVSIM_CALIBRATION_DIR, or else $KVSIM_SHARED/calibration. Exit code 2: the
input is wrong, said in one sentence.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sim.config.plugins import guess
from sim.costs.fit.recipes import RECIPES
from sim.costs.fit.tables import TableError
from sim.costs.profile import FOLDER, Profile, ProfileError, load_profile, write_profile

PAPER = "a100-40-2023"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m sim.costs.fit",
        description="Fit cost profiles to measured points, and score them on rows kept out.",
    )
    parser.add_argument("what", nargs="*", metavar="WHAT", help="profiles, or calibration folders")
    parser.add_argument("--json", action="store_true", help="print scores as one object")
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument("--score", action="store_true", help="errors on rows kept out")
    modes.add_argument("--figures", metavar="DIR", help="draw the profiles")
    modes.add_argument(
        "--compare", nargs=2, metavar=("RESULTS", "MEASURED"), help="a run beside a measured one"
    )
    parser.add_argument(
        "--out", metavar="DIR", default=str(FOLDER), help="where profiles are written"
    )
    arguments = parser.parse_args(argv)
    if arguments.what and (arguments.score or arguments.compare):
        parser.error(f"unexpected {arguments.what[0]}: --score and --compare take no WHAT")
    if arguments.json and not arguments.score:
        parser.error("--json goes with --score")
    try:
        if arguments.score:
            _score(arguments.json)
        elif arguments.compare:
            _compare(*map(Path, arguments.compare))
        elif arguments.figures:
            _draw(Path(arguments.figures), arguments.what)
        else:
            _fit(arguments.what, Path(arguments.out))
    except (TableError, ProfileError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def tables_folder() -> Path:
    """Where tables are. Raises TableError if no variable says it, or there is no such folder."""
    own, shared = os.environ.get("KVSIM_CALIBRATION_DIR"), os.environ.get("KVSIM_SHARED")
    if not own and not shared:
        raise TableError("KVSIM_CALIBRATION_DIR is not set, nor is KVSIM_SHARED: no tables to read")
    folder = Path(own) if own else Path(str(shared)) / "calibration"
    if not folder.is_dir():
        raise TableError(f"{folder}: {'is no folder' if folder.exists() else 'no such folder'}")
    return folder


def _fit(what: Sequence[str], out: Path) -> None:
    from sim.costs.fit.build import build_profile, paper_profile
    from sim.costs.fit.calibrations import build_calibrated, is_calibration

    names = [*RECIPES, PAPER]
    unknown = [name for name in what if name not in names and not is_calibration(Path(name))]
    if unknown:
        said = f"unknown profile {unknown[0]!r}{guess(unknown[0], names)}"
        raise TableError(f"{said}, or a calibration folder")
    built: dict[str, Profile] = {}
    for name in what or names:
        if is_calibration(Path(name)):
            built[name] = build_calibrated(Path(name), print)
        elif name == PAPER:
            built[name] = paper_profile(built.get("a100-80") or load_profile("a100-80"))
        else:
            built[name] = build_profile(name, tables_folder(), print)
    _write(out, list(built.values()))


def _write(out: Path, profiles: Sequence[Profile]) -> None:
    """Write profiles, once all could be fitted."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        for profile in profiles:
            write_profile(out / f"{profile.name}.yaml", profile)
            print(out / f"{profile.name}.yaml")
    except OSError as error:
        raise TableError(f"{out}: cannot be written: {error.strerror}") from None


def _score(as_json: bool) -> None:
    from sim.costs.fit.score import score

    scores = score(tables_folder(), lambda line: print(f"note: {line}", file=sys.stderr))
    if as_json:
        print(json.dumps(scores, allow_nan=False))
        return
    for name, tables in scores.items():
        for table, cells in tables.items():
            print(f"{name:<14} {table:<22} {cells['mape']:>6.2f} %  {cells['rows']:>7,} rows")
            for kind, cell in _sorted(cells["by_kind"]):
                print(f"{'':<14}   {kind:<50} {cell['mape']:>6.2f} %  {cell['rows']:>7,}")


def _sorted(kinds: dict[str, Any]) -> list[tuple[str, Any]]:
    return sorted(kinds.items())


def _compare(results: Path, measured: Path) -> None:
    from sim.costs.fit.compare import compare

    table, paths = compare(results, measured)
    print(table.to_string(index=False))
    for path in paths:
        print(path)


def _draw(folder: Path, names: Sequence[str]) -> None:
    from sim.costs.fit.figures import draw_profiles

    for path in draw_profiles(folder, names, tables_folder()):
        print(path)
