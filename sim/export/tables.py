"""All tables of an experiment in one folder: one file a table, with a column `run`.

columns.csv beside them has a row for each column of each table: its unit, and what it is. All files
take their places when the last one is written: an export that fails or is interrupted changes
nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from sim.export.meanings import COLUMNS as RUN_COLUMNS
from sim.export.meanings import LIKE_SUMMARY, column
from sim.results import files as results
from sim.stored import Stored
from sim.stored.files import read_table
from sim.stored.runs import SUFFIXES

WHOLE = ("summary", "points")  # tables of the experiment, not of a run
RUN = "run"
COLUMNS = "columns.csv"
TABLES = {*RUN_COLUMNS, *LIKE_SUMMARY}
Part = tuple[Path, str | None]  # a file, and the run that it is of


def write_tables(folder: Path, stored: Stored, suffix: str, runs: Sequence[str] = ()) -> list[Path]:
    """Write every table as .csv or .parquet, of some runs or all; the paths written.

    Tables that an earlier export has left in the folder, and that are not among these, are removed.
    Raises ResultsError if tables cannot be read, or files not be written.
    """
    _refuse_results(folder)
    earlier = _listed(folder)
    chosen = stored.choose(runs)
    names = sorted({name for run in chosen for name in stored.table_names(run)})
    paths, columns = [], []
    with ExitStack() as files:
        for name in [*WHOLE, *names]:
            parts = list(_parts(stored, name, chosen))
            if parts:
                paths.append(folder / f"{name}{suffix}")
                temporary = files.enter_context(results.replacing(paths[-1]))
                schema = _write(temporary, name, parts, suffix == ".csv")
                columns += [(name, key, *column(name, key)) for key in schema]
        paths.append(folder / COLUMNS)
        table = pd.DataFrame(columns, columns=["table", "column", "unit", "meaning"])
        table.to_csv(files.enter_context(results.replacing(paths[-1])), index=False)
    for name in earlier - {path.stem for path in paths}:
        results.remove(folder / f"{name}{suffix}")
    return paths


def _refuse_results(folder: Path) -> None:
    """Raise ResultsError for a folder of kvsim run, whose own tables would be written over."""
    if any((folder / name).exists() for name in ("experiment.json", results.MANIFEST)):
        raise results.ResultsError(
            f"{folder}: holds results, whose tables would be written over; "
            "accepted: a folder of its own"
        )


def _listed(folder: Path) -> set[str]:
    """The tables that an earlier export has written here, by its columns.csv."""
    try:
        names = pd.read_csv(folder / COLUMNS, usecols=["table"], dtype=str)["table"]
    except (OSError, ValueError):  # none, or somebody else's
        return set()
    return {name for name in names.dropna() if name in TABLES}


def _parts(stored: Stored, name: str, runs: Sequence[str]) -> Iterator[Part]:
    """The files that a table consists of, once the reader has found them right; the run of each."""
    if name in WHOLE:
        checked = stored.summary if name == "summary" else stored.points
        paths = [stored.path(name).with_suffix(suffix) for suffix in SUFFIXES]
        yield from [(path, None) for path in paths if checked is not None and path.exists()][:1]
        return
    for run in runs:
        path = stored.table_path(run, name)
        if path is not None:
            yield path, run


def _write(path: Path, name: str, parts: list[Part], is_csv: bool) -> list[str]:
    """Write parts of a table below each other, one at a time; the names of the columns."""
    schemas = [_read(*part).schema for part in parts]
    try:
        schema = pa.unify_schemas(schemas, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise results.ResultsError(
            f"{name}: the runs' tables differ in kind ({error}); run the experiment again"
        ) from None
    pieces = (_as(_read(*part), schema) for part in parts)
    if is_csv:
        _write_csv(path, pieces)
    else:
        with pq.ParquetWriter(path, schema) as writer:
            for piece in pieces:
                writer.write_table(piece)
    return list(schema.names)


def _write_csv(path: Path, tables: Iterable[pa.Table]) -> None:
    """Write tables below each other.

    With pandas, not with pyarrow, which writes 2.0 as 2: who guesses types by the first rows would
    take times for whole numbers.
    """
    with path.open("w", encoding="utf-8", newline="") as file:
        for number, table in enumerate(tables):
            counts = {pa.int64(): pd.Int64Dtype()}  # stay whole where some are missing
            frame = table.to_pandas(types_mapper=counts.get)
            frame.to_csv(file, index=False, header=number == 0, lineterminator="\n")


def _read(path: Path, run: str | None) -> pa.Table:
    """A table with the run in front, words as words. Raises ResultsError."""
    table = _stored(path).replace_schema_metadata(None)
    for i, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type) or pa.types.is_large_string(field.type):
            table = table.set_column(i, field.name, table.column(i).cast(pa.string()))
    if run is not None and RUN not in table.column_names:
        table = table.add_column(0, RUN, pa.array([run] * len(table), pa.string()))
    return table


def _stored(path: Path) -> pa.Table:
    """A table as it is stored. Raises ResultsError."""
    if path.suffix == ".parquet":
        try:
            with pq.ParquetFile(path) as file:
                return file.read()
        except (OSError, ValueError) as error:
            raise results.ResultsError(f"{path}: cannot be read: {error}") from error
    table = read_table(path)
    counts = [name for name in table if path.stem != "points" and str(name).startswith("num_")]
    for name in counts:
        values = table[name]
        if values.dtype.kind == "f" and (values.isna() | (values % 1 == 0)).all():
            table[name] = values.astype("Int64")  # CSV has no type for a count that may be missing
    if "reason" in table:  # words, also where there are none
        table["reason"] = table["reason"].astype("string")
    return pa.Table.from_pandas(table, preserve_index=False, nthreads=1)


def _as(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with all columns of a schema; those that it has not are empty."""
    columns = [
        table.column(field.name).cast(field.type)
        if field.name in table.column_names
        else pa.nulls(len(table), field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)
