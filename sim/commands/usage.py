"""What the files of the command line share."""

from __future__ import annotations

import argparse
from typing import Any

MAX_JOBS = 1024


class UserError(Exception):
    """Something the user can put right: printed as it is, exit code 2."""


def add_command(commands: Any, name: str, text: str, command: Any) -> argparse.ArgumentParser:
    """Add a command: a function from arguments to an exit code."""
    parser: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text)
    parser.set_defaults(command=command)
    return parser


def checked_jobs(given: int | None) -> int:
    """What -j says, 1 if it is not given. Raises UserError."""
    jobs = 1 if given is None else given
    if not 1 <= jobs <= MAX_JOBS:
        raise UserError(f"-j: must be 1 to {MAX_JOBS}, got {jobs}")
    return jobs
