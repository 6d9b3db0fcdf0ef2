"""One file of results: JSON, CSV or Parquet. What cannot be read is one sentence."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import pandas as pd
import pyarrow as pa
from pandas.api.types import infer_dtype
from pydantic import ValidationError

from sim.results.files import ResultsError

AGAIN = "run the experiment again"
MAX_DEPTH = 80  # of JSON, far above any experiment
MAX_CELL = 1 << 24  # characters of a CSV cell, far above any name


@dataclass(frozen=True)
class Cells:
    """A CSV file as text: the names of its columns, and its rows."""

    columns: list[str]
    rows: list[list[str]]


def read_json(path: Path, accepted: str) -> dict[str, Any]:
    """A JSON file that holds an object. Raises ResultsError, which says what is accepted."""
    try:
        data = json.loads(_text(path), parse_constant=_no_number)
        json.dumps(data, ensure_ascii=False).encode("utf-8")
        _check_depth(data, MAX_DEPTH)
    except ResultsError as error:
        raise ResultsError(f"{error}; {accepted}") from None
    except RecursionError:
        raise ResultsError(f"{path}: is nested too deeply; {accepted}") from None
    except json.JSONDecodeError as error:
        raise ResultsError(f"{path}: is not JSON (line {error.lineno}); {accepted}") from None
    except UnicodeEncodeError:
        raise ResultsError(f"{path}: has half a character; {accepted}") from None
    except ValueError as error:
        raise ResultsError(f"{path}: is not JSON ({error}); {accepted}") from None
    if not isinstance(data, dict):
        raise ResultsError(f"{path}: is no JSON object; {accepted}")
    return data


def sentence_of(error: ValidationError) -> str:
    """The first of what a model finds wrong in data: where, and what."""
    first = error.errors(include_url=False)[0]
    where = ".".join(map(str, first["loc"]))
    what = first["msg"].removeprefix("Value error, ")
    return f"{where}: {what[:1].lower()}{what[1:]}"


def read_table(path: Path) -> pd.DataFrame:
    """A table that was written here, by its suffix. Raises ResultsError if it cannot be read."""
    if path.suffix == ".parquet":
        return _parquet(path)
    text = _text(path)
    for _ in _lines(path, text):
        pass  # pandas fills short rows, shifts long ones, and renames columns that are there twice
    try:
        table = pd.read_csv(io.StringIO(text), low_memory=False)
    except (ValueError, OverflowError) as error:
        raise ResultsError(f"{path}: cannot be read: {_one_line(error)}; {AGAIN}") from None
    for name in table:
        is_whole = table[name].dtype == object and "integer" in infer_dtype(table[name])
        if is_whole:  # beyond 64 bits
            raise ResultsError(f"{path}: {name} has a number that is too large; {AGAIN}")
    return table


def read_cells(path: Path) -> Cells:
    """A CSV file as text. Raises ResultsError if it cannot be read, as read_table does."""
    lines = _lines(path, _text(path))
    return Cells(next(lines), list(lines))


def _text(path: Path) -> str:
    """A file's text, without the mark that some editors put before it."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ResultsError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ResultsError(f"{path}: is not UTF-8 (byte {error.start + 1:,})") from None
    except ValueError:  # a path with a null byte in it
        raise ResultsError(f"{str(path)!r}: is no path") from None


def _lines(path: Path, text: str) -> Iterator[list[str]]:
    """The header of a CSV file, then its rows; each has as many cells as the header.

    Raises ResultsError.
    """
    csv.field_size_limit(MAX_CELL)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        head = next(reader, [])
        if not head:
            raise ResultsError(f"{path}: is empty; {AGAIN}")
        twice = next((name for name in head if head.count(name) > 1), None)
        if twice is not None:
            raise ResultsError(f"{path}: has column {twice!r} twice; {AGAIN}")
        yield head
        for row in reader:
            if row and len(row) != len(head):
                raise ResultsError(
                    f"{path}: line {reader.line_num} has {len(row)} cells, the header {len(head)}; "
                    f"{AGAIN}"
                )
            if row:
                yield row
    except csv.Error as error:
        raise ResultsError(
            f"{path}: line {reader.line_num} is not CSV: {_one_line(error)}; {AGAIN}"
        ) from None


def _parquet(path: Path) -> pd.DataFrame:
    try:
        return pd.read_parquet(path)
    except OSError as error:
        reason = error.strerror or f"cannot be read: {_one_line(error)}"
        raise ResultsError(f"{path}: {reason}; {AGAIN}") from None
    except (ValueError, KeyError, TypeError, pa.ArrowException) as error:
        raise ResultsError(f"{path}: cannot be read: {_one_line(error)}; {AGAIN}") from None


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


def _check_depth(data: Any, most: int) -> None:
    """Raise RecursionError if data is nested deeper: others that walk it need not look."""
    if most == 0:
        raise RecursionError
    inner = data.values() if isinstance(data, dict) else data if isinstance(data, list) else ()
    for value in inner:
        _check_depth(value, most - 1)


def _no_number(name: str) -> NoReturn:
    """NaN and Infinity, which Python reads and JSON has not."""
    raise ValueError(f"{name} is no number")
