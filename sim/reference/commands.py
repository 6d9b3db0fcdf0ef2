"""The page of commands, from the parsers themselves, and of exit codes."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from sim.cli import EXIT_CODES, build_parser
from sim.reference.markdown import code, table, text


def commands_page() -> str:
    """Every command with its arguments."""
    parts = [
        "# Commands\n",
        "Results go to standard output, progress and problems to standard error.\n",
        "## Exit codes\n",
        table(["code", "meaning"], [(str(key), text(said)) for key, said in EXIT_CODES.items()]),
    ]
    for name, parser in _commands(build_parser(), "kvsim"):
        about = text(parser.description or "")
        parts += [f"## {name}\n", f"{about[:1].upper()}{about[1:]}.\n", _arguments(parser)]
    return "\n".join(parts)


def _commands(
    parser: argparse.ArgumentParser, name: str
) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Commands and commands within them, that do something."""
    groups = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    for group in groups:
        for word, inner in group.choices.items():
            yield from _commands(inner, f"{name} {word}")
    if not groups:
        yield name, parser


def _arguments(parser: argparse.ArgumentParser) -> str:
    rows = []
    for action in parser._actions:
        if isinstance(action, argparse._HelpAction):
            continue
        value = _value(action)
        names = ", ".join(action.option_strings) or value
        shown = f"{names} {value}" if action.option_strings and value else names
        rows.append((code(shown), text((action.help or "").replace("%%", "%"))))
    return table(["argument", "what it does"], rows) if rows else ""


def _value(action: argparse.Action) -> str:
    """What an argument takes, in words of its help."""
    if action.nargs == 0:
        return ""
    if action.metavar is None and action.choices is not None:
        value = "{" + ",".join(map(str, action.choices)) + "}"
    else:
        value = str(action.metavar or action.dest)
    forms = {"?": f"[{value}]", "*": f"[{value} …]", "+": f"{value} …"}
    return forms.get(str(action.nargs), value)
