"""kvsim capacity: how many requests fit into which GPUs. Part of the command line.

With an experiment or a trace it searches the highest rate instead: sim.commands.slo.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sim.commands.slo import add_slo_options, slo_command
from sim.commands.usage import UserError, add_command

if TYPE_CHECKING:
    from sim.hardware.capacity import Row, Serving
    from sim.hardware.types import Device, Model

MAX_LENGTHS = 8
MAX_GPUS = 1024
Found = TypeVar("Found")


def add_capacity(commands: Any) -> None:
    """Add kvsim capacity."""
    text = "how many requests the memory of GPUs holds; with --slo, the highest rate it sustains"
    parser = add_command(commands, "capacity", text, capacity_command)
    parser.add_argument(
        "--model", metavar="NAME,…", help="presets (kvsim list models), config.json"
    )
    parser.add_argument("--device", metavar="NAME,…", help="GPUs (kvsim list devices)")
    parser.add_argument(
        "--tensor-parallel-size",
        metavar="N,…",
        default="1",
        help="GPUs a model is divided over (1)",
    )
    parser.add_argument("--max-model-len", metavar="N", help="tokens; by default the model's own")
    parser.add_argument(
        "--lengths", metavar="N,…", default="512,2048,8192", help="of requests, in tokens"
    )
    parser.add_argument("--block-size", metavar="N", default="16", help="tokens a block (16)")
    parser.add_argument(
        "--gpu-memory-utilization", metavar="X", type=float, default=0.9, help="(0.9)"
    )
    parser.add_argument("--dtype", metavar="NAME", default="auto", help="of the weights")
    parser.add_argument("--kv-cache-dtype", metavar="NAME", default="auto", help="for example fp8")
    for term in ("activation", "non-torch"):
        parser.add_argument(
            f"--{term}-gib", metavar="X", type=float, default=0.0, help="of each GPU (0)"
        )
    parser.add_argument("--out", metavar="DIR", help="write tables and a picture there")
    parser.add_argument("--json", action="store_true", help="print one object")
    add_slo_options(parser)


def capacity_command(arguments: argparse.Namespace) -> int:
    """kvsim capacity."""
    if any(given is not None for given in (arguments.file, arguments.trace, arguments.slo)):
        return slo_command(arguments)
    for option in ("model", "device"):
        if getattr(arguments, option) is None:
            raise UserError(
                f"--{option}: is missing; accepted: --model and --device, or FILE and --slo"
            )
    from sim.hardware.capacity import capacity_rows

    rows = list(
        capacity_rows(
            _each(arguments.model, _model),
            _each(arguments.device, _device),
            _each(arguments.tensor_parallel_size, _whole("--tensor-parallel-size", MAX_GPUS)),
            _serving(arguments),
            _lengths(arguments.lengths),
        )
    )
    if arguments.json:
        print(json.dumps({"capacity": rows}, allow_nan=False))
    else:
        _print(rows)
    if arguments.out is not None:
        for path in _write(rows, Path(arguments.out)):
            if not arguments.json:
                print(path)
    return 0 if any(not row["reason"] for row in rows) else 1


def _each(text: str, read: Callable[[str], Found]) -> list[Found]:
    """The parts between commas, each read once."""
    return [read(part.strip()) for part in dict.fromkeys(text.split(","))]


def _model(name: str) -> Model:
    from sim.hardware.keys import read_model

    errors: list[str] = []
    found = read_model(name, Path(), lambda path, sentence: errors.append(sentence))
    if found is None:
        raise UserError(f"--model: {errors[0]}")
    return found


def _device(name: str) -> Device:
    from sim.hardware.keys import read_device

    errors: list[str] = []
    found = read_device(name, lambda path, sentence: errors.append(sentence))
    if found is None:
        raise UserError(f"--device: {errors[0]}")
    return found


def _whole(option: str, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and 1 <= int(text) <= most):
            raise UserError(f"{option}: must be whole numbers from 1 to {most:,}, got {text!r}")
        return int(text)

    return read


def _lengths(text: str) -> list[int]:
    from sim.hardware.types import MAX_MODEL_LEN

    found = _each(text, _whole("--lengths", MAX_MODEL_LEN))
    if len(found) > MAX_LENGTHS:
        raise UserError(f"--lengths: {len(found)} are given; accepted: at most {MAX_LENGTHS}")
    return found


def _serving(arguments: argparse.Namespace) -> Serving:
    """What the engine is told. Raises UserError."""
    from typing import get_args

    from sim.config.plugins import guess
    from sim.config.pool import DType, KvDType
    from sim.hardware.capacity import Serving
    from sim.hardware.types import GIB, MAX_MODEL_LEN

    for option, accepted in (("dtype", get_args(DType)), ("kv_cache_dtype", get_args(KvDType))):
        value = getattr(arguments, option)
        if value not in accepted:
            name = option.replace("_", "-")
            raise UserError(f"--{name}: unknown {value!r}{guess(value, list(accepted))}")
    if not 0 < arguments.gpu_memory_utilization <= 1:
        raise UserError(
            f"--gpu-memory-utilization: must be above 0 and at most 1, "
            f"got {arguments.gpu_memory_utilization:g}"
        )
    for option in ("activation_gib", "non_torch_gib"):
        if not 0 <= getattr(arguments, option) < 1024:
            raise UserError(f"--{option.replace('_', '-')}: must be 0 to 1024")
    longest = arguments.max_model_len
    return Serving(
        arguments.gpu_memory_utilization,
        _whole("--block-size", 1 << 20)(arguments.block_size),
        None if longest is None else _whole("--max-model-len", MAX_MODEL_LEN)(longest),
        arguments.dtype,
        arguments.kv_cache_dtype,
        int(arguments.activation_gib * GIB),
        int(arguments.non_torch_gib * GIB),
    )


def _print(rows: Sequence[Row]) -> None:
    """GiB of each GPU, blocks, and requests at a time."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="", pad_edge=False)
    lengths = [key for key in max(rows, key=len) if key.startswith("requests_of_")]
    heads = ["model", "device", "GPUs", "memory GiB", "weights", "activat.", "non-torch", "KV GiB"]
    heads += ["blocks", "max len", "at max len"]
    heads += [f"at {int(key.rpartition('_')[2]):,}" for key in lengths]
    for number, head in enumerate(heads):
        table.add_column(head, justify="left" if number < 2 else "right", no_wrap=True)
    for row in rows:
        first = [row["model"], row["device"], str(row["tensor_parallel_size"])]
        if row["reason"]:
            table.add_row(*first, "-")
            continue
        terms = ("memory", "weights", "activations", "non_torch", "kv")
        cells = [f"{row[f'{term}_gib']:.2f}" for term in terms]
        cells += [f"{row['num_blocks']:,}", f"{row['max_model_len']:,}"]
        cells.append(f"{row['max_concurrency']:.2f}")
        table.add_row(*first, *cells, *(f"{row[key]:,}" if key in row else "" for key in lengths))
    console = Console(markup=False, highlight=False)
    if not console.is_terminal:
        console = Console(markup=False, highlight=False, width=180)
    console.print(table)
    print("Each GPU's share; requests at a time if all are as long as that, in paged memory.")
    if not any(row.get("activations_gib") for row in rows):
        print("Activations are not predicted, so blocks are an upper bound; --activation-gib.")
    for row in rows:
        if row["reason"]:
            where = f"{row['model']} on {row['tensor_parallel_size']} x {row['device']}"
            print(f"{where}: {row['reason']}")


def _write(rows: Sequence[Row], folder: Path) -> list[Path]:
    import pandas as pd

    from sim import figures
    from sim.figures.capacity import draw_capacity
    from sim.results.files import ResultsError, write_csv

    table = pd.DataFrame(list(rows))
    try:
        write_csv(folder / "capacity.csv", table)
        drawn: list[Path] = []
        if (table["reason"] == "").any():
            drawn = figures.save(lambda: draw_capacity(table), folder / "figures", "capacity")
    except ResultsError as error:
        raise UserError(str(error)) from None
    return [folder / "capacity.csv", *drawn]
