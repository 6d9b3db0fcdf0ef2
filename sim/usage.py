"""What the files of the command line share."""

from __future__ import annotations

import argparse
from typing import Any


class UserError(Exception):
    """Something the user can put right: printed as it is, exit code 2."""


def add_command(commands: Any, name: str, text: str, command: Any) -> argparse.ArgumentParser:
    """Add a command: a function from arguments to an exit code."""
    parser: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text)
    parser.set_defaults(command=command)
    return parser
