"""kvsim report: results as one HTML file. Part of the command line."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from sim.commands.usage import UserError, add_command

CLAIMS = "results/claims"


def add_report(commands: Any) -> None:
    """Add kvsim report."""
    text = "make one HTML file of an experiment's results, or of all claims"
    report = add_command(commands, "report", text, report_command)
    report.add_argument(
        "folder", metavar="RESULTS", nargs="?", help="for example results/quickstart"
    )
    report.add_argument(
        "--claims",
        action="store_true",
        help=f"of the verdicts on claims instead; RESULTS is {CLAIMS} if it is left out",
    )
    report.add_argument(
        "-o", "--out", metavar="FILE", help="where to write it (RESULTS/report.html)"
    )


def report_command(arguments: argparse.Namespace) -> int:
    """kvsim report."""
    from sim.report import write_claims_report, write_report
    from sim.results.files import ResultsError

    if arguments.folder is None and not arguments.claims:
        raise UserError(
            "report: RESULTS is missing; accepted: a folder that kvsim run has written, or --claims"
        )
    write = write_claims_report if arguments.claims else write_report
    out = None if arguments.out is None else Path(arguments.out)
    try:
        written = write(Path(arguments.folder or CLAIMS), out)
    except ResultsError as error:
        raise UserError(str(error)) from None
    print(written.line())
    return 0
