"""All tables of an experiment in one folder: one file a table, with a column `run`.

columns.csv beside them has a row for each column of each table: its unit, and what it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq

from sim import results
from sim.export.meanings import meaning, unit
from sim.export.source import Source

WHOLE = ("summary", "points")  # tables of the experiment, not of a run
RUN = "run"


def write_tables(folder: Path, source: Source, suffix: str) -> list[Path]:
    """Write every table as .csv or .parquet; the paths written.

    Raises ResultsError if tables cannot be read, or files not be written.
    """
    paths, columns = [], []
    for name in [*WHOLE, *source.tables()]:
        parts = list(_parts(source, name))
        if not parts:
            continue
        path = folder / f"{name}{suffix}"
        schema = _write(path, parts)
        paths.append(path)
        columns += [(name, column, unit(column), meaning(name, column)) for column in schema]
    path = folder / "columns.csv"
    table = pd.DataFrame(columns, columns=["table", "column", "unit", "meaning"])
    results.write_csv(path, table)
    return [*paths, path]


def _parts(source: Source, name: str) -> Iterator[tuple[Path, str | None]]:
    """The files that a table consists of, and the run of each."""
    if name in WHOLE:
        path = source.folder / f"{name}.csv"
        if path.exists():
            yield path, None
        return
    for run in source.runs:
        found = source.path(run, name)
        if found is not None:
            yield found, run


def _write(path: Path, parts: list[tuple[Path, str | None]]) -> list[str]:
    """Write parts below each other, one at a time; the names of the columns."""
    schemas = [_read(*part).schema for part in parts]
    try:
        schema = pa.unify_schemas(schemas, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise results.ResultsError(
            f"{path.stem}: the runs' tables differ in kind ({error}); run the experiment again"
        ) from None
    with results.replacing(path) as temporary:
        is_csv = path.suffix == ".csv"
        writer = pc.CSVWriter(temporary, schema) if is_csv else pq.ParquetWriter(temporary, schema)
        with writer:
            for part in parts:
                writer.write_table(_as(_read(*part), schema))
    return list(schema.names)


def _read(path: Path, run: str | None) -> pa.Table:
    """A table with the run in front, words as words. Raises ResultsError."""
    table = pa.Table.from_pandas(results.read_table(path), preserve_index=False, nthreads=1)
    table = table.replace_schema_metadata(None)
    for i, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            table = table.set_column(i, field.name, table.column(i).cast(pa.string()))
    if run is not None and RUN not in table.column_names:
        table = table.add_column(0, RUN, pa.array([run] * len(table), pa.string()))
    return table


def _as(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with all columns of a schema; those that it has not are empty."""
    columns = [
        table.column(field.name).cast(field.type)
        if field.name in table.column_names
        else pa.nulls(len(table), field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)
