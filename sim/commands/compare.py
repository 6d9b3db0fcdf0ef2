"""kvsim compare: two experiments side by side, from their results. Part of the command line."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from sim.commands.usage import UserError, add_command


def add_compare(commands: Any) -> None:
    """Add kvsim compare."""
    text = "two experiments side by side, or two parts of one, with significance"
    parser = add_command(commands, "compare", text, compare_command)
    parser.add_argument("a", metavar="A", help="for example results/base")
    parser.add_argument("b", metavar="B", nargs="?", help="A itself if it is left out")
    for letter in ("a", "b"):
        parser.add_argument(
            f"--{letter}",
            dest=f"choose_{letter}",
            metavar="KEY=VALUE",
            action="append",
            default=[],
            help=f"of {letter.upper()} only the rows with that cell; may be repeated",
        )
    parser.add_argument("--by", metavar="KEY,…", help="match rows by these cells")
    parser.add_argument("--metric", metavar="NAME,…", help="columns of summary.csv to compare")
    parser.add_argument(
        "--fail-if-worse",
        metavar="NAME,…",
        help="exit code 1 if A is found to be better in one of these",
    )
    parser.add_argument("--out", metavar="DIR", help="write compare.csv and a figure there")
    parser.add_argument("--json", action="store_true", help="print one object")


def compare_command(arguments: argparse.Namespace) -> int:
    """kvsim compare."""
    from sim.compare.comparison import compare
    from sim.compare.report import as_json, facts_of, print_comparison, write_comparison
    from sim.compare.sides import CompareError, read_side
    from sim.compare.verdicts import A_BETTER
    from sim.results.files import ResultsError

    guarded = _guarded(arguments.fail_if_worse)
    if arguments.b is None and not (arguments.choose_a and arguments.choose_b):
        raise UserError(
            "compare: B is missing; accepted: two folders, or one with --a KEY=VALUE and "
            "--b KEY=VALUE"
        )
    try:
        first = read_side("A", Path(arguments.a), arguments.choose_a)
        second = read_side("B", Path(arguments.b or arguments.a), arguments.choose_b)
        found = compare(first, second, _names(arguments.by), _names(arguments.metric), guarded)
        facts = facts_of(found)
        paths = [] if arguments.out is None else write_comparison(facts, Path(arguments.out))
    except CompareError as error:
        raise UserError(f"compare: {error}") from None
    except ResultsError as error:
        raise UserError(str(error)) from None
    if arguments.json:
        print(as_json(facts))
    else:
        print_comparison(facts)
        for path in paths:
            print(path)
    is_worse = any(row["metric"] in guarded and row["verdict"] == A_BETTER for row in found.rows)
    return 1 if is_worse else 0


def _names(text: str | None) -> list[str]:
    return [] if text is None else [part.strip() for part in text.split(",") if part.strip()]


def _guarded(text: str | None) -> list[str]:
    """The metrics of --fail-if-worse. Raises UserError."""
    from sim.compare.metrics import BETTER, better

    names = _names(text)
    for name in names:
        if not better(name):
            raise UserError(
                f"--fail-if-worse: {name!r} has no better direction; accepted: "
                f"{', '.join(BETTER)}, and their statistics (ttft_s_p99)"
            )
    return names
