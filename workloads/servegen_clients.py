"""The client models that ServeGen publishes: how often each asks, and with which lengths.

A folder holds two files a client. chunk-N-trace.csv has no header; a line is a window of 600 s:
start in seconds, requests per second, coefficient of variation of the gaps, Gamma or Weibull, and
the two parameters of that distribution, shape and scale. A window without requests has rate 0 and
an empty distribution. chunk-N-dataset.json maps the start of each window of 6 h to input_tokens
and output_tokens, each a text that holds a Python dict {length: probability}, {} without requests.
Lengths of prompts and outputs are known apart, not which go together.
Published at github.com/alibaba/ServeGen (data/language), Apache-2.0; described in ServeGen (2025).
"""

from __future__ import annotations

import ast
import csv
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from workloads.files import blocks, lines, open_binary
from workloads.intake import shown
from workloads.trace import MAX_TOKENS, FloatColumn, IntColumn, TraceError

RATE_WINDOW_S = 600
LENGTH_WINDOW_S = 6 * 3600
MAX_FILE_BYTES = 1 << 26
MAX_WINDOWS = 1 << 20
MAX_RATE = 1e6
MIN_SHAPE = 0.01  # far below it Weibull draws are beyond doubles
NAME = re.compile(r"chunk-(\d{1,9})-trace\.csv(\.gz)?")
LITERAL = re.compile(r"\{[0-9eE.,:+\s-]*\}", re.ASCII)  # no nesting, so nothing deep to parse
LENGTHS = ("input_tokens", "output_tokens")


class Window(NamedTuple):
    """How often a client asks in a window; distribution is empty where it does not."""

    rate: float
    distribution: str
    shape: float


class Lengths(NamedTuple):
    """Token counts and the probability that one is at most each of them."""

    tokens: IntColumn
    cumulative: FloatColumn


@dataclass(frozen=True)
class Client:
    """One client: its number, its windows of 600 s by index, its lengths as they are written."""

    number: int
    windows: Mapping[int, Window]
    dataset: Mapping[str, Mapping[str, str]]
    dataset_path: str

    def lengths(self, window: int, name: str) -> Lengths:
        """input_tokens or output_tokens in a window of 600 s. Raises TraceError."""
        start = str(window * RATE_WINDOW_S // LENGTH_WINDOW_S * LENGTH_WINDOW_S)
        where = f"{self.dataset_path}: window {start}: {name}"
        cells = self.dataset.get(start)
        text = cells.get(name) if isinstance(cells, Mapping) else None
        table = _table(text)
        if table is None:
            raise TraceError(
                f"{where} is {shown(text)}; accepted: the text of a dict {{length: probability}}, "
                f"lengths from 0 to {MAX_TOKENS}, probabilities that add up to 1"
            )
        if not table:
            raise TraceError(f"{where} is empty, but the client has requests there")
        tokens = np.array(sorted(table), np.int64)
        cumulative = np.cumsum([table[int(count)] for count in tokens])
        return Lengths(tokens, cumulative / cumulative[-1])


def _table(text: object) -> dict[int, float] | None:
    """The probabilities in a text; empty if it says so, None if it is something else."""
    if not isinstance(text, str) or not LITERAL.fullmatch(text.strip()):
        return None
    try:
        table = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return None
    if not isinstance(table, dict):
        return None
    good = all(
        type(count) is int and 0 <= count <= MAX_TOKENS and isinstance(share, int | float)
        for count, share in table.items()
    )
    if not good or not all(0 <= share <= 1 for share in table.values()):
        return None
    return table if not table or math.isclose(sum(table.values()), 1, abs_tol=1e-3) else None


def read_clients(path: str) -> list[Client]:
    """All clients of a folder, by number. Raises TraceError if there is none or one is wrong."""
    folder = Path(path)
    if not folder.is_dir():
        raise TraceError(f"{path}: is no folder; accepted: a folder of chunk-N-trace.csv files")
    found = {int(m[1]): file for file in folder.iterdir() if (m := NAME.fullmatch(file.name))}
    if not found:
        raise TraceError(f"{path}: has no chunk-N-trace.csv; accepted: a folder of such files")
    return [_read_client(number, found[number]) for number in sorted(found)]


def _read_client(number: int, trace: Path) -> Client:
    beside = trace.with_name(f"chunk-{number}-dataset.json")
    packed = beside.with_name(f"{beside.name}.gz")
    dataset_path = str(packed if packed.exists() else beside)
    return Client(number, _read_windows(str(trace)), _read_dataset(dataset_path), dataset_path)


def _read_windows(path: str) -> dict[int, Window]:
    windows: dict[int, Window] = {}
    for block in blocks(path):
        for number, line in lines(block):
            start, window = _read_window(f"{path}: line {number}", line)
            if start in windows or len(windows) >= MAX_WINDOWS:
                raise TraceError(
                    f"{path}: line {number}: starts a window that stands before, or is one of more "
                    f"than {MAX_WINDOWS}; accepted: each window once"
                )
            windows[start] = window
    if not windows:
        raise TraceError(f"{path}: there are no windows; at least one is needed")
    return windows


def _read_window(where: str, line: bytes) -> tuple[int, Window]:
    """The index of a window, and the window."""
    cells = next(csv.reader([line.decode(errors="replace")]))
    if len(cells) != 6:
        raise TraceError(f"{where}: has {len(cells)} cells; accepted: 6, without a header")
    start = _number(where, "start", cells[0], 0, RATE_WINDOW_S * 1e9)
    if start % RATE_WINDOW_S:
        raise TraceError(f"{where}: start is {cells[0]}; accepted: a multiple of {RATE_WINDOW_S} s")
    rate = _number(where, "rate", cells[1], 0, MAX_RATE)
    distribution = cells[3].strip()
    if distribution not in ("Gamma", "Weibull") and (distribution or rate):
        raise TraceError(
            f"{where}: distribution is {shown(cells[3])}; accepted: Gamma, Weibull, or nothing "
            "where the rate is 0"
        )
    shape = _number(where, "shape", cells[4], MIN_SHAPE, 1e6) if rate else 1.0
    return int(start) // RATE_WINDOW_S, Window(rate, distribution, shape)


def _number(where: str, name: str, cell: str, low: float, high: float) -> float:
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not low <= value <= high:
        raise TraceError(
            f"{where}: {name} is {shown(cell)}; accepted: a number from {low:g} to {high:g}"
        )
    return value


def _read_dataset(path: str) -> Mapping[str, Mapping[str, str]]:
    with open_binary(path) as file:
        data = file.read(MAX_FILE_BYTES + 1)
    try:
        if len(data) > MAX_FILE_BYTES:
            raise ValueError
        dataset = json.loads(data)
    except (ValueError, RecursionError):
        dataset = None
    if not isinstance(dataset, dict):
        raise TraceError(
            f"{path}: is no JSON object of at most {MAX_FILE_BYTES} bytes; accepted: windows of "
            f"6 h by their start, each with {' and '.join(LENGTHS)}"
        )
    return dataset
