"""kvsim's own trace files: Parquet with every column of a trace, and content as runs.

One row a request, in order of arrival. Columns have the names of Trace's fields and are int64,
times in nanoseconds; those that the source does not know are not there. Content is more of them:

    prompt_runs     list of {source, start, length}: see workloads.content
    output_source   the source of the output, where nothing more is known of it
    output_runs     what is known of the outputs from their first tokens on; only if something is

The metadata key kvsim.trace holds JSON: the schema's version, the trace's digest,
has_output_identity, where it came from, and what reading that dropped or altered. A trace that is
written and read back has the same digest; a file that holds another one is damaged, and refused
whatever on_bad_row says. Pages have checksums.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from workloads.content import Content, IntColumn, RunColumns, Runs
from workloads.files import LFS_POINTER, open_binary
from workloads.intake import shown
from workloads.readers import read_parquet
from workloads.rows import Column, Rows
from workloads.rules import whole_number_rule
from workloads.trace import COLUMNS, MAX_TOKENS, REQUIRED, Trace, TraceError
from workloads.tracefile import TraceFile

SCHEMA = 1
KEY = b"kvsim.trace"
RUNS, OUTPUT_SOURCE, OUTPUT_RUNS = "prompt_runs", "output_source", "output_runs"
RUN_CELLS = ("source", "start", "length")
RUNS_TYPE = pa.large_list(pa.struct([(name, pa.int64()) for name in RUN_CELLS]))
FACTS = {"schema", "digest", "has_output_identity", "source", "notes"}
BEFORE = "when converted: "
MAX_OFFSET = 2**62  # of a token in its source


@dataclass(frozen=True)
class Canonical(TraceFile):
    """A trace that kvsim trace convert has written: path to the Parquet file."""

    kind: ClassVar[str] = "canonical"
    columns: ClassVar[Sequence[Column]] = tuple(
        Column(name, name, whole_number_rule(low, high), optional=name not in REQUIRED)
        for name, (low, high) in COLUMNS.items()
    )

    @classmethod
    def recognizes(cls, path: str, start: bytes) -> bool:
        return start.startswith(b"PAR1") and _metadata(path) is not None

    def read(self, columns: Sequence[Column]) -> Rows:
        facts = self._facts()
        rows = self._as_written(facts)
        asked = {column.field for column in columns}
        rows.fields = {name: cells for name, cells in rows.fields.items() if name in asked}
        return rows

    def _as_written(self, facts: Mapping[str, Any]) -> Rows:
        """All rows with all columns. Raises TraceError if they are not the trace once written."""
        rows = read_parquet(self.path, self.columns, "error")
        for name in (*COLUMNS, RUNS, OUTPUT_SOURCE, OUTPUT_RUNS):
            rows.notes.pop(f"ignored: column {name!r}", None)
        rows.notes.update(_notes_before(facts))
        rows.content = self._content()
        rows.has_output_identity = facts["has_output_identity"]
        digest = rows.to_trace().digest()
        if digest != facts["digest"]:
            raise TraceError(
                f"{self.path}: is damaged: its digest is {digest}, the metadata says "
                f"{shown(facts['digest'])}"
            )
        return rows

    def _facts(self) -> Mapping[str, Any]:
        """The metadata. Raises TraceError if there is none, or of another version."""
        with open_binary(self.path) as file:
            if file.read(len(LFS_POINTER)) == LFS_POINTER:
                raise TraceError(f"{self.path}: is a Git LFS pointer; fetch the file with git lfs")
        facts = _metadata(self.path)
        if facts is None:
            raise TraceError(f"{self.path}: is not a trace that kvsim trace convert has written")
        if facts.get("schema") != SCHEMA:
            raise TraceError(
                f"{self.path}: has schema version {facts.get('schema')!r}; accepted: {SCHEMA}"
            )
        if facts.keys() != FACTS or type(facts["has_output_identity"]) is not bool:
            raise TraceError(
                f"{self.path}: is damaged: its metadata is not {', '.join(sorted(FACTS))}, as "
                "kvsim trace convert writes it"
            )
        return facts

    def _content(self) -> Content | None:
        """The runs of all rows, None if the file has none. Raises TraceError if they are none."""
        with open_binary(self.path) as file:
            try:
                table = pq.ParquetFile(file, page_checksum_verification=True)
                names = table.schema_arrow.names
                if RUNS not in names:
                    return None
                outputs = [OUTPUT_RUNS] if OUTPUT_RUNS in names else []
                found = table.read([RUNS, OUTPUT_SOURCE, *outputs]).combine_chunks()
                return _content(found)
            except (pa.ArrowException, OSError, KeyError, ValueError, OverflowError):
                raise TraceError(
                    f"{self.path}: {RUNS}, {OUTPUT_SOURCE} or {OUTPUT_RUNS} is damaged; accepted: "
                    "as kvsim trace convert writes them"
                ) from None


def _metadata(path: str) -> dict[str, Any] | None:
    """What the file says of itself; None if it is no file of ours."""
    with open_binary(path) as file:
        try:
            metadata = pq.ParquetFile(file).schema_arrow.metadata or {}
            facts = json.loads(metadata[KEY])
        except (pa.ArrowException, OSError, KeyError, ValueError, RecursionError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            return None
    return facts if isinstance(facts, dict) else None


def _notes_before(facts: Mapping[str, Any]) -> Counter[str]:
    """What the first reading of the source dropped or altered."""
    notes = facts.get("notes")
    if not isinstance(notes, dict):
        return Counter()
    return Counter({f"{BEFORE}{reason}": n for reason, n in notes.items() if isinstance(n, int)})


def _content(table: pa.Table) -> Content:
    """Content from its columns. Raises ValueError if a number is none or out of range."""
    sources = table.column(OUTPUT_SOURCE).combine_chunks()
    if sources.null_count:
        raise ValueError
    outputs = None
    if OUTPUT_RUNS in table.column_names:
        outputs = Runs(*_from_lists(table.column(OUTPUT_RUNS)))
    return Content(*_from_lists(table.column(RUNS)), _int64(sources), outputs)


def _as_lists(runs: Runs) -> pa.Array:
    """Runs as a column of lists, one a request."""
    cells = [pa.array(cell) for cell in (runs.source, runs.start, runs.length)]
    lists = pa.StructArray.from_arrays(cells, names=list(RUN_CELLS))
    return pa.LargeListArray.from_arrays(pa.array(runs.first_run), lists)


def _from_lists(column: pa.ChunkedArray) -> RunColumns:
    """first_run, source, start, length. Raises ValueError if a number is none or out of range."""
    lists = column.combine_chunks().cast(RUNS_TYPE)
    runs = lists.flatten()
    cells = [runs.field(name) for name in RUN_CELLS]
    if any(array.null_count for array in (lists, runs, *cells)):
        raise ValueError
    source, start, length = (_int64(cell) for cell in cells)
    if len(length) and (length.min() < 1 or length.max() > MAX_TOKENS):
        raise ValueError
    if len(start) and (start.min() < 0 or start.max() > MAX_OFFSET):
        raise ValueError
    first_run = lists.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    return first_run - first_run[0], source, start, length


def _int64(array: pa.Array) -> IntColumn:
    column: IntColumn = array.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return column


def write_canonical(trace: Trace, path: Path) -> dict[str, int]:
    """Write a trace with everything it has. Nothing is lost, so nothing is returned."""
    pq.write_table(canonical_table(trace), path, compression="zstd", write_page_checksum=True)
    return {}


def canonical_table(trace: Trace) -> pa.Table:
    """A trace as an Arrow table, metadata included."""
    columns = {name: getattr(trace, name) for name in COLUMNS}
    arrays = {name: pa.array(column) for name, column in columns.items() if column is not None}
    if trace.content is not None:
        arrays[RUNS] = _as_lists(trace.content)
        arrays[OUTPUT_SOURCE] = pa.array(trace.content.output_source)
        if trace.content.outputs is not None:
            arrays[OUTPUT_RUNS] = _as_lists(trace.content.outputs)
    notes: Counter[str] = Counter()
    for reason, count in trace.notes.items():
        notes[reason.removeprefix(BEFORE)] += count
    facts = {
        "schema": SCHEMA,
        "digest": trace.digest(),
        "has_output_identity": trace.has_output_identity,
        "source": Path(trace.source).name,
        "notes": notes,
    }
    return pa.table(arrays).replace_schema_metadata({KEY: json.dumps(facts)})
