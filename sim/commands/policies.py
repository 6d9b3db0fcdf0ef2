"""kvsim trace policies: what a prefix cache finds under each policy. Part of the command line."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.commands.usage import UserError, add_command

if TYPE_CHECKING:
    import pandas as pd

    from workloads.trace import Trace

BLOCK_SIZE = 16


def add_policies(parts: Any) -> None:
    """Add kvsim trace policies."""
    text = "what a prefix cache finds under each eviction policy, and could find at most"
    parser = add_command(parts, "policies", text, policies_command)
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="a trace of any known format; a public trace's name; an experiment's .yaml, of which "
        "the workload is taken",
    )
    parser.add_argument(
        "--block-size", metavar="N,…", default=str(BLOCK_SIZE), help="for all, or one a FILE (16)"
    )
    parser.add_argument(
        "--capacity",
        metavar="N,…",
        help="in tokens; by default what an unbounded cache holds, halved ten times",
    )
    parser.add_argument("--policy", metavar="NAME,…", help="all (kvsim list policies)")
    parser.add_argument("--out", metavar="FOLDER", help="write summary.csv and figures there")
    parser.add_argument("--json", action="store_true", help="print one object a row")


def policies_command(arguments: argparse.Namespace) -> int:
    """kvsim trace policies."""
    import pandas as pd

    from sim.policies import POLICIES
    from sim.policies.text import policy_lines

    sizes = _block_sizes(arguments.block_size, len(arguments.files))
    capacities = None if arguments.capacity is None else _numbers("capacity", arguments.capacity)
    policies = list(POLICIES) if arguments.policy is None else arguments.policy.split(",")
    _each_once("capacity", capacities or [])
    _each_once("policy", policies)
    labels = _labels(arguments.files, sizes)
    found: list[dict[str, Any]] = []
    for label, file, size in zip(labels, arguments.files, sizes, strict=True):
        mine = _rows(label, (file, size), capacities, policies)
        found += mine
        if arguments.json:
            print("\n".join(json.dumps(row, allow_nan=False) for row in mine), flush=True)
        else:
            print("\n".join(policy_lines(pd.DataFrame(mine))), flush=True)
    if arguments.out is not None:
        paths = _write(pd.DataFrame(found), Path(arguments.out))
        if not arguments.json:
            print("\n".join(str(path) for path in paths))
    return 0


def _numbers(option: str, text: str) -> list[int]:
    """Whole numbers with commas between them."""
    from sim.config.yaml_nodes import MAX_NUMBER

    parts = text.split(",")
    if not all(part.strip().isascii() and part.strip().isdigit() for part in parts):
        raise UserError(f"--{option}: must be whole numbers with commas between, got {text!r}")
    numbers = [int(part) for part in parts]
    for number in numbers:
        if number > MAX_NUMBER:
            raise UserError(f"--{option}: {number}; accepted: at most {MAX_NUMBER}")
    return numbers


def _each_once(option: str, values: Sequence[int | str]) -> None:
    """Rows of the same name would be one curve."""
    twice = next((value for i, value in enumerate(values) if value in values[:i]), None)
    if twice is not None:
        raise UserError(f"--{option}: {twice} is named twice")


def _labels(files: Sequence[str], sizes: Sequence[int]) -> list[str]:
    """What tables and figures call the traces: names, paths where names are alike, or both.

    One file may come with several block sizes.
    """
    labels = [Path(file).name.split(".")[0] or file for file in files]
    for longer in (files, [f"{file}, blocks of {n}" for file, n in zip(files, sizes, strict=True)]):
        counts = Counter(labels)
        labels = [
            label if counts[label] == 1 else more
            for label, more in zip(labels, longer, strict=True)
        ]
    twice = [label for label, count in Counter(labels).items() if count > 1]
    if twice:
        raise UserError(f"FILE: {twice[0]}: named twice")
    return labels


def _block_sizes(text: str, num_files: int) -> list[int]:
    from sim.config.keys import MAX_REPLAY_BLOCK

    sizes = _numbers("block-size", text)
    if len(sizes) not in {1, num_files}:
        raise UserError(f"--block-size: {len(sizes)} sizes for {num_files} traces")
    for size in sizes:
        if not 1 <= size <= MAX_REPLAY_BLOCK:
            raise UserError(f"--block-size: {size}; accepted: 1 to {MAX_REPLAY_BLOCK}")
    return sizes * (num_files // len(sizes))


def _rows(
    label: str, source: tuple[str, int], capacities: list[int] | None, policies: list[str]
) -> list[dict[str, Any]]:
    """What policies find in a file's trace, in blocks of a size."""
    from sim.policies import references
    from sim.policies.sweep import default_capacities, rows
    from workloads.trace import TraceError

    file, block_size = source
    try:
        asked = references(_load(file), block_size)
        if capacities is None:
            capacities = default_capacities(asked)
        return list(rows(label, asked, capacities, policies))
    except TraceError as error:
        raise UserError(str(error)) from None
    except ValueError as error:
        raise UserError(f"--{error}") from None


def _load(file: str) -> Trace:
    """The trace of a file, of a name, or of an experiment's workload."""
    from sim.config.experiment import load_experiment
    from sim.config.point import ConfigError
    from sim.config.replays import ReplaySpec
    from sim.config.runspec import load_trace
    from workloads import open_file
    from workloads.publictraces import path_of

    if Path(file).suffix not in {".yaml", ".yml"}:
        return open_file(path_of(file)).load(seed=0)
    try:
        spec = load_experiment(file).runs()[0]
    except ConfigError as error:
        raise UserError(str(error)) from None
    if isinstance(spec, ReplaySpec):
        raise UserError(f"{file}: names policies itself; kvsim run {file} replays them")
    if spec.skip:
        raise UserError(f"{file}: {spec.skip}")
    return load_trace(spec.config["workload"], Path(spec.folder), spec.seed)


def _write(table: pd.DataFrame, folder: Path) -> list[Path]:
    from sim import figures
    from sim.figures.policies import draw_policies
    from sim.results.files import ResultsError, replacing

    summary = folder / "summary.csv"
    try:
        with replacing(summary) as temporary:
            table.to_csv(temporary, index=False, lineterminator="\n")
        drawn = figures.save(lambda: draw_policies(table), folder / "figures", "prefix_policies")
    except ResultsError as error:
        raise UserError(str(error)) from None
    return [summary, *drawn]
