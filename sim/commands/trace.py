"""kvsim trace: look at traces, check them, convert them, fetch them. Part of the command line."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.commands.policies import add_policies
from sim.commands.usage import UserError, add_command

if TYPE_CHECKING:
    from workloads.trace import Trace

FORMATS_READ = "a trace of any known format, gzip is unpacked; or a public trace's name"
NOT_PICTURES = (".svg", ".csv", ".pdf", ".jpg", ".jpeg")  # what --plot does not take


def add_trace(commands: Any) -> None:
    """Add kvsim trace and its commands."""
    text = "look at request traces, check, convert and fetch them"
    trace = commands.add_parser("trace", help=text, description=text)
    parts = trace.add_subparsers(required=True, metavar="COMMAND")
    info = add_command(parts, "info", "what is in a trace, on one screen", info_command)
    info.add_argument(
        "--plot",
        metavar="PNG",
        help="draw it: FILE.png for one trace, a folder for several; also as SVG and points.csv",
    )
    validate = add_command(
        parts, "validate", "read every row strictly; name every kind of problem", validate_command
    )
    for parser in (info, validate):
        parser.add_argument("files", nargs="+", metavar="FILE", help=FORMATS_READ)
        parser.add_argument("--json", action="store_true", help="print one object a file")
    _add_convert(parts)
    add_policies(parts)
    fetch = add_command(parts, "fetch", "download a public trace, or list them", fetch_command)
    fetch.add_argument("names", nargs="*", metavar="NAME", help="without a name, list them")
    fetch.add_argument(
        "--from", dest="base_url", metavar="URL", help="a server with the same files (GitHub)"
    )


def _add_convert(parts: Any) -> None:
    convert = add_command(
        parts, "convert", "write a trace in another format; say what is lost", convert_command
    )
    convert.add_argument("source", metavar="IN", help=FORMATS_READ)
    convert.add_argument("target", metavar="OUT", help="the file to write")
    convert.add_argument(
        "--to",
        metavar="FORMAT",
        help="canonical (which keeps everything; what OUT.parquet means), mooncake, vidur, azure",
    )
    convert.add_argument("--force", action="store_true", help="replace OUT if it is there")
    convert.add_argument("--limit", metavar="N", type=int, help="keep the first N requests")
    convert.add_argument("--start-s", metavar="S", type=float, help="keep arrivals from S on")
    convert.add_argument("--duration-s", metavar="S", type=float, help="keep arrivals for S")
    convert.add_argument("--on-bad-row", choices=["error", "drop"], help="error")
    convert.add_argument(
        "--zero-tokens", choices=["drop", "one"], help="of rows without a prompt or an output"
    )
    convert.add_argument("--unsorted", choices=["error", "sort"], help="error")
    convert.add_argument("--json", action="store_true", help="print one object")


def _each_file(files: list[str], show: Callable[[str], int]) -> int:
    """Show every file; a sentence for each that cannot be read. The worst exit code."""
    from workloads.trace import TraceError

    code = 0
    for name in files:
        try:
            code = max(code, show(name))
        except TraceError as error:
            sys.stdout.flush()
            print(error, file=sys.stderr)
            code = 2
    return code


def info_command(arguments: argparse.Namespace) -> int:
    """kvsim trace info."""
    from sim.commands import trace_text
    from workloads.inspection import inspect_file
    from workloads.publictraces import path_of

    pictures = _pictures(arguments.files, arguments.plot)
    shown = 0

    def show(name: str) -> int:
        nonlocal shown
        found = inspect_file(path_of(name))
        facts = found.facts()
        if arguments.json:
            print(json.dumps(facts, allow_nan=False, ensure_ascii=False))
        else:
            print("\n" * (shown > 0) + "\n".join(trace_text.info_lines(facts, found.about)))
        shown += 1
        if name in pictures:
            paths = _draw(found, pictures[name])
            if not arguments.json:
                print("\n".join(str(path) for path in paths))
        return 0

    return _each_file(arguments.files, show)


def _pictures(files: list[str], plot: str | None) -> dict[str, Path]:
    """Where the picture of each file goes, without the suffix."""
    if plot is None:
        return {}
    path = Path(plot)
    if path.suffix.lower() == ".png" and not path.is_dir():
        if len(files) > 1:
            raise UserError(f"--plot: {plot} is one picture for {len(files)} traces; name a folder")
        return {files[0]: path.with_suffix("")}
    if path.suffix.lower() in NOT_PICTURES:
        raise UserError(f"--plot: {plot} is no picture; accepted: a name in .png, or a folder")
    stems = [Path(name).name.split(".")[0] or "trace" for name in files]
    taken: dict[str, int] = {}
    places = {}
    for name, stem in zip(files, stems, strict=True):
        taken[stem] = taken.get(stem, 0) + 1
        places[name] = path / (stem if taken[stem] == 1 else f"{stem}-{taken[stem]}")
    return places


def _draw(found: Any, place: Path) -> list[Path]:
    from sim import figures
    from sim.figures.trace import draw_trace
    from sim.results.files import ResultsError

    try:
        # not .csv, which may be the trace's own name
        return figures.save(lambda: draw_trace(found), place.parent, place.name, "points.csv")
    except ResultsError as error:
        raise UserError(str(error)) from None


def validate_command(arguments: argparse.Namespace) -> int:
    """kvsim trace validate."""
    from sim.commands import trace_text
    from workloads.inspection import validate_file
    from workloads.publictraces import path_of

    def show(name: str) -> int:
        found = validate_file(path_of(name))
        if arguments.json:
            print(json.dumps(asdict(found), allow_nan=False, ensure_ascii=False))
        else:
            print("\n".join(trace_text.validation_lines(found)))
        return 1 if found.problems else 0

    return _each_file(arguments.files, show)


def convert_command(arguments: argparse.Namespace) -> int:
    """kvsim trace convert."""
    from sim.commands import trace_text
    from sim.results.files import ResultsError, file_digest, replacing
    from workloads.targets import TARGETS

    target = Path(arguments.target)
    name = _target_format(arguments.to, target, list(TARGETS))
    _check_replaceable(target, arguments.force)
    trace = _load(arguments)
    try:
        with replacing(target) as temporary:
            lost = TARGETS[name](trace, temporary)
        facts = {
            "file": str(target),
            "format": name,
            "rows": len(trace),
            "source": trace.source,
            "digest": trace.digest(),
            "sha256": file_digest(target),
            "notes": dict(trace.notes),
            "lost": lost,
        }
    except ResultsError as error:
        raise UserError(str(error)) from None
    if arguments.json:
        print(json.dumps(facts, allow_nan=False, ensure_ascii=False))
    else:
        print("\n".join(trace_text.conversion_lines(facts)))
    return 0


def _check_replaceable(target: Path, is_forced: bool) -> None:
    """Refuse to replace a file without --force, and anything else always."""
    try:
        is_there = os.path.lexists(target)
        if is_there and not target.is_file():
            raise UserError(f"{target}: is there already, and no regular file; it is not replaced")
    except OSError as error:
        raise UserError(f"{target}: cannot be written: {error.strerror}") from None
    if is_there and not is_forced:
        raise UserError(f"{target}: is there already; --force replaces it")


def _target_format(to: str | None, target: Path, known: list[str]) -> str:
    if to is None and target.suffix == ".parquet":
        return "canonical"
    if to not in known:
        what = "is missing" if to is None else f"{to!r} is unknown"
        raise UserError(f"--to: {what}; accepted: {', '.join(known)}")
    return to


def _load(arguments: argparse.Namespace) -> Trace:
    """The trace to convert, sliced as asked."""
    from workloads import open_file
    from workloads.publictraces import path_of
    from workloads.trace import TraceError

    names = ("limit", "start_s", "duration_s", "on_bad_row", "zero_tokens", "unsorted")
    given = {name: value for name in names if (value := getattr(arguments, name)) is not None}
    try:
        return replace(open_file(path_of(arguments.source)), **given).load(seed=0)
    except TraceError as error:
        raise UserError(_in_words_of_options(str(error))) from None
    except ValueError as error:
        parameter, rest = str(error).split(":", maxsplit=1)
        raise UserError(f"--{parameter.replace('_', '-')}:{rest}") from None


def _in_words_of_options(sentence: str) -> str:
    """What a workload calls 'unsorted: sort' is --unsorted sort here."""
    return sentence.replace("'unsorted: sort'", "--unsorted sort")


def fetch_command(arguments: argparse.Namespace) -> int:
    """kvsim trace fetch."""
    from sim import catalog
    from workloads.fetch import GITHUB, FetchError, fetch

    if not arguments.names:
        print("\n".join(catalog.public_trace_lines()))
    for name in arguments.names:
        try:
            print(fetch(name, arguments.base_url or GITHUB), flush=True)
        except (FetchError, ValueError) as error:
            raise UserError(str(error)) from None
    return 0
