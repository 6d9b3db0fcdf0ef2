"""kvsim claims: measure the claims of papers, and say which hold. Part of the command line."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.commands.usage import UserError, add_command, checked_jobs

if TYPE_CHECKING:
    from sim.claims.record import Judged
    from sim.claims.statement import Claim

FOLDER = "experiments/claims"
RESULTS = "results"
CELL = 90  # characters of a value in the table; an explained claim has all
WIDTH = 180  # of a table that goes to a file or a pipe


def add_claims(commands: Any) -> None:
    """Add kvsim claims."""
    text = "measure the claims of papers and posts, and judge each"
    parser = add_command(commands, "claims", text, claims_command)
    parser.add_argument(
        "ids", nargs="*", metavar="ID", help="only these; a single one is explained"
    )
    for name in ("source", "verdict", "kind"):
        parser.add_argument(f"--{name}", metavar="NAME", help=f"only claims of this {name}")
    parser.add_argument("--fast", action="store_true", help="leave out what takes long")
    parser.add_argument("--json", action="store_true", help="print one object")
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--recorded", action="store_true", help="the verdicts that are kept, without measuring"
    )
    how.add_argument(
        "--record", action="store_true", help="keep the verdicts and make the pages from them"
    )
    parser.add_argument(
        "--figures", action="store_true", help="draw the papers' figures, printed numbers and ours"
    )
    parser.add_argument(
        "-j", dest="jobs", metavar="N", type=int, default=1, help="runs at a time (1)"
    )
    parser.add_argument(
        "--claims", metavar="DIR", default=FOLDER, help=f"where they are ({FOLDER})"
    )
    parser.add_argument("--out", metavar="DIR", default=RESULTS, help=f"results ({RESULTS})")


def claims_command(arguments: argparse.Namespace) -> int:
    """kvsim claims."""
    from sim.claims.record import keeping, read_record, regressions
    from sim.config.yaml_nodes import ConfigError
    from sim.results.files import ResultsError

    record = Path(arguments.out) / "claims" / "verdicts.json"
    try:
        claims = _chosen(arguments)
        before = read_record(record, claims) if arguments.recorded or record.exists() else []
        judged = before if arguments.recorded else _measured(arguments, claims)
        differing = regressions(judged, before) if record.exists() else []
        if arguments.record:
            judged, sentences = keeping(judged, before)
            differing += sentences
            _keep(arguments, record, judged)
        judged = [one for one in judged if arguments.verdict in {None, one.verdict}]
    except (ConfigError, ResultsError, ValueError) as error:
        raise UserError(str(error)) from None
    _print(arguments, judged)
    undrawn = _draw(arguments, judged) if arguments.figures else []
    for sentence in undrawn:
        print(sentence, file=sys.stderr)
    for sentence in differing:
        print(sentence, file=sys.stderr)
    return 1 if (differing and not arguments.record) or undrawn else 0


def _chosen(arguments: argparse.Namespace) -> list[Claim]:
    """The claims that the command line asks for. Raises ConfigError, UserError."""
    from sim.claims.statement import load_claims
    from sim.claims.verdicts import VERDICTS
    from sim.config.plugins import guess

    claims = load_claims(Path(arguments.claims))
    checked_jobs(arguments.jobs)
    picks = ("ids", "source", "kind", "verdict", "fast")
    for option in ("record", "figures"):
        if getattr(arguments, option) and any(getattr(arguments, pick) for pick in picks):
            raise UserError(f"--{option} needs all claims; accepted: without ID, filters, --fast")
    known: dict[str, list[str]] = {
        "ID": [claim.id for claim in claims],
        "source": sorted({claim.stated.source for claim in claims}),
        "kind": sorted({str(claim.stated.kind) for claim in claims}),
        "verdict": list(VERDICTS),
    }
    asked = {
        "ID": arguments.ids,
        "source": [arguments.source],
        "kind": [arguments.kind],
        "verdict": [arguments.verdict],
    }
    for key, names in asked.items():
        for name in names:
            if name is not None and name not in known[key]:
                raise UserError(f"claims: unknown {key} {name!r}{guess(name, known[key])[:400]}")
    return [
        claim
        for claim in claims
        if (not arguments.ids or claim.id in arguments.ids)
        and arguments.source in {None, claim.stated.source}
        and arguments.kind in {None, claim.stated.kind}
        and not (arguments.fast and claim.stated.slow)
    ]


def _measured(arguments: argparse.Namespace, claims: Sequence[Claim]) -> list[Judged]:
    from sim.claims.measure import run_all
    from sim.claims.record import judge_claim

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    tables = run_all(claims, Path(arguments.out), arguments.jobs, say)
    return [judge_claim(claim, tables) for claim in claims]


def _keep(arguments: argparse.Namespace, record: Path, judged: Sequence[Judged]) -> None:
    """Write the record and the pages that are made from it."""
    from sim.claims import tables
    from sim.claims.record import write_record
    from sim.results.files import replacing

    readme = Path("README.md")
    write_record(record, judged)
    with replacing(Path(arguments.claims) / "README.md") as temporary:
        temporary.write_text(tables.page(judged), encoding="utf-8")
    if readme.exists():
        text = tables.with_section(readme.read_text(encoding="utf-8"), judged)
        with replacing(readme) as temporary:
            temporary.write_text(text, encoding="utf-8")


def _print(arguments: argparse.Namespace, judged: Sequence[Judged]) -> None:
    from sim.claims import tables

    if arguments.json:
        data = {"claims": [one.as_data() for one in judged]}
        print(json.dumps(data, allow_nan=False, ensure_ascii=False))
    elif len(arguments.ids) == 1 and judged:
        print("\n".join(tables.explain(judged[0], f"kvsim claims {arguments.ids[0]}")))
    else:
        _print_table(judged)


def _draw(arguments: argparse.Namespace, judged: Sequence[Judged]) -> list[str]:
    """Draw the figures; what could not be drawn."""
    from sim.claims.pictures import draw_all
    from sim.config.yaml_nodes import ConfigError
    from sim.results.files import ResultsError

    out = Path(arguments.out)
    try:
        paths, problems = draw_all(
            Path(arguments.claims) / "figures", judged, out, out / "claims" / "figures"
        )
    except (ConfigError, ResultsError) as error:
        raise UserError(str(error)) from None
    if not arguments.json:
        print("\n".join(map(str, paths)))
    return problems


def _print_table(judged: Sequence[Judged]) -> None:
    from rich.console import Console
    from rich.table import Table

    from sim.claims import tables
    from sim.claims.text import measured_text

    table = Table(box=None, header_style="", pad_edge=False)
    for name in ("claim", "expected", "measured", "verdict"):
        table.add_column(name, overflow="fold")
    for one in judged:
        texts = tables.expected_text(one), measured_text(one.measured)
        cells = (text if len(text) <= CELL else text[: CELL - 1] + "…" for text in texts)
        table.add_row(one.claim.id, *cells, one.verdict)
    console = Console(markup=False, highlight=False)
    if not console.is_terminal:
        console = Console(markup=False, highlight=False, width=WIDTH)
    console.print(table)
    console.print(f"{len(judged)} claims: {tables.counts(judged)}")
