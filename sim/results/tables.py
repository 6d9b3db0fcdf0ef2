"""The tables that runs leave. Each kind has one schema, so that those of all runs are one table.

Their first column is `run`, the key of the summary. Times are seconds. Text is dictionary-coded
with 32-bit codes, however many different ones there are. A table is made and written piece by
piece: that of ten million requests is never in memory as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray
from pandas.api.types import is_numeric_dtype

from sim.allocators.terms import TERM_NAMES
from sim.engine.fleet import FleetRun
from sim.engine.simulation import Run
from sim.metrics.facts import reasons_of, timeline_of
from sim.recording.blocklog import COLUMNS as BLOCK_COLUMNS
from sim.results import files as results
from sim.sequence import (
    ARRIVAL_NS,
    FINAL_TOKENS,
    FINISH_NS,
    FIRST_SCHEDULED_NS,
    FIRST_TOKEN_NS,
    NEVER_NS,
    NUM_GENERATED,
    NUM_PREEMPTIONS,
    PROMPT_TOKENS,
    STATUS,
    STATUS_NAMES,
    IntArray,
)

Codes = NDArray[np.int32]

NS_PER_S = 1_000_000_000
PIECE = 1 << 20  # rows that are made and written at once: a row group of the file
TEXT = pa.dictionary(pa.int32(), pa.string())

TIMELINE_COLUMNS = ("start_s", "width_s", *TERM_NAMES, "num_running", "num_waiting", "queued_frac")
REQUEST_COLUMNS = {
    "request": "int64",
    "arrival_s": "float64",
    "prompt_tokens": "int64",
    "output_tokens": "int64",
    "wanted_output_tokens": "int64",
    "first_scheduled_s": "float64",
    "first_token_s": "float64",
    "finish_s": "float64",
    "num_preemptions": "int64",
    "status": "category",
    "reason": "category",
    "replica": "int64",
}


def schema_of(columns: Mapping[str, str]) -> pa.Schema:
    """A run's schema: run, and columns by their pandas types."""
    types = {"category": TEXT, "int64": pa.int64(), "float64": pa.float64()}
    return pa.schema([("run", TEXT), *((name, types[kind]) for name, kind in columns.items())])


REQUESTS = schema_of(REQUEST_COLUMNS)
TIMELINE = schema_of(dict.fromkeys(TIMELINE_COLUMNS, "float64"))
BLOCKS = schema_of(BLOCK_COLUMNS)


def arrow_table(table: pd.DataFrame, schema: pa.Schema, run_id: str) -> pa.Table:
    """A table of one run, or a piece of it, as it is stored: NaN is null."""
    run = pa.DictionaryArray.from_arrays(np.zeros(len(table), np.int32), pa.array([run_id]))
    columns = [run]
    for field in list(schema)[1:]:
        values = table[field.name]
        if field.type == TEXT:
            codes = values.cat.codes.to_numpy(np.int32)
            names = pa.array(list(values.cat.categories), pa.string())
            columns.append(pa.DictionaryArray.from_arrays(codes, names))
        else:
            columns.append(pa.array(values.to_numpy(), field.type, from_pandas=True))
    return pa.Table.from_arrays(columns, schema=schema)


def write_rows(folder: Path, name: str, schema: pa.Schema, pieces: Iterable[pd.DataFrame]) -> None:
    """Write a table of the run whose folder it is. Raises ResultsError."""
    stored = (arrow_table(piece, schema, folder.name) for piece in pieces)
    results.write_parquet(folder / f"{name}.parquet", schema, stored)


def timeline_table(run: Run | FleetRun) -> pd.DataFrame:
    """Averages over equal buckets of time, from the first arrival on.

    start_s and width_s are seconds, the six terms slots, num_running and num_waiting sequences,
    queued_frac the share of the bucket in which a request waited for memory or max_num_seqs.
    The last bucket ends with the run.
    """
    timeline = timeline_of(run)
    starts = timeline.pop("start_ns")
    widths = timeline.pop("width_ns")
    widths = [min(w, run.end_ns - s) for s, w in zip(starts, widths, strict=True)]
    table = {"start_s": np.array(starts) / NS_PER_S, "width_s": np.array(widths) / NS_PER_S}
    for name in (*TERM_NAMES, "num_running", "num_waiting", "queued"):
        cells = [value / width for value, width in zip(timeline[name], widths, strict=True)]
        table["queued_frac" if name == "queued" else name] = np.array(cells)
    return pd.DataFrame(table)


def requests_tables(run: Run | FleetRun) -> Iterator[pd.DataFrame]:
    """One row a request, in pieces. Times are NaN if they never came.

    replica is the number of the one it was sent to: 0 without replicas, -1 if it never arrived at
    any.
    """
    count = len(run.requests)
    statuses, status_codes = _statuses(run.requests[:, STATUS])
    reasons, reason_codes = _reasons(reasons_of(run), count)
    replica_of = (
        run.replica_of if isinstance(run, FleetRun) else np.broadcast_to(np.int64(0), count)
    )
    for first in range(0, count, PIECE):
        piece = slice(first, min(first + PIECE, count))
        table = _numbers(run.requests[piece], first)
        status = status_codes[run.requests[piece, STATUS]]
        table["status"] = pd.Categorical.from_codes(status, statuses)
        table["reason"] = pd.Categorical.from_codes(reason_codes[piece], reasons)
        table["replica"] = replica_of[piece]
        yield pd.DataFrame(table)


def _numbers(requests: IntArray, first: int) -> dict[str, object]:
    """The columns that follow from the rows alone; first is the number of the first request."""
    wanted = requests[:, FINAL_TOKENS] - requests[:, PROMPT_TOKENS]
    table: dict[str, object] = {
        "request": np.arange(first, first + len(requests)),
        "arrival_s": requests[:, ARRIVAL_NS] / NS_PER_S,
        "prompt_tokens": requests[:, PROMPT_TOKENS],
        "output_tokens": requests[:, NUM_GENERATED],
        "wanted_output_tokens": np.maximum(wanted, 0),  # 0 of a prompt beyond max_model_len
    }
    for name, column in (
        ("first_scheduled_s", FIRST_SCHEDULED_NS),
        ("first_token_s", FIRST_TOKEN_NS),
        ("finish_s", FINISH_NS),
    ):
        times = requests[:, column]
        table[name] = np.where(times == NEVER_NS, np.nan, times / NS_PER_S)
    table["num_preemptions"] = requests[:, NUM_PREEMPTIONS]
    return table


def _statuses(status: IntArray) -> tuple[pd.Index[str], Codes]:
    """The names of the outcomes that occur, in order, and the place of each outcome in them."""
    found = [number for number in range(len(STATUS_NAMES)) if (status == number).any()]
    names = sorted(STATUS_NAMES[number] for number in found)
    codes = np.full(len(STATUS_NAMES), -1, np.int32)
    codes[found] = [names.index(STATUS_NAMES[number]) for number in found]
    return pd.Index(names), codes


def _reasons(reason_of: Mapping[int, str], count: int) -> tuple[pd.Index[str], Codes]:
    """The reasons that occur, in order, "" for none, and the place of each request's in them."""
    found = set(reason_of.values())
    if len(reason_of) < count:
        found.add("")
    names = sorted(found)
    place = {name: code for code, name in enumerate(names)}
    codes = np.zeros(count, np.int32)
    for request, reason in reason_of.items():
        codes[request] = place[reason]
    return pd.Index(names), codes


def summary_to_arrow(table: pd.DataFrame) -> pa.Table:
    """The summary as it is stored: counts stay whole numbers, numbers and text what they are.

    A column in which values of several kinds stand, such as a swept key that is a word or a
    number, is text, as in the CSV file. One without any value is a count if it is called num_…,
    text if it is the reason, and otherwise a number. `run` is coded as in the other tables, since
    libraries join columns of one type.
    """
    return pa.table({str(name): _stored(str(name), table[name]) for name in table.columns})


def _stored(name: str, values: pd.Series) -> pa.Array:
    """One column of the summary."""
    known = values.dropna()
    if not len(known):
        empty = pa.int64() if name.startswith("num_") else pa.float64()
        return pa.nulls(len(values), pa.string() if name == "reason" else empty)
    if is_numeric_dtype(values.dtype):
        return pa.array(values, from_pandas=True)
    if all(isinstance(value, bool) for value in known):
        return pa.array(values, pa.bool_(), from_pandas=True)
    pairs = zip(values, values.notna(), strict=True)
    text = pa.array([str(value) if is_known else None for value, is_known in pairs], pa.string())
    return text.dictionary_encode() if name == "run" else text
