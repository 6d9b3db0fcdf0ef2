"""The page of metrics: columns of summary.csv, and the other tables of a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sim.export.meanings import COLUMNS, ROWS
from sim.metrics import points
from sim.metrics import summary as metrics
from sim.metrics.docs import METRICS
from sim.reference.markdown import code, prose, table, text
from sim.results import files as results

TABLES: dict[str, Callable[..., Any]] = {
    "replicas.csv": metrics.replicas_table,
    "points.csv": points.points_table,
}


def metrics_page() -> str:
    """Every column with unit, formula and source."""
    rows = [
        (code(name), text(metric.unit), text(metric.formula), text(metric.source))
        for name, metric in METRICS.items()
    ]
    parts = [
        "# Metrics\n",
        "The columns of `summary.csv`, one row a run. A column with a dot is a key that the "
        "experiment sweeps. A cell is empty where a metric has no value: what is over queued time "
        "without any, what sharing saves of memory that shares nothing. `kvsim list metrics` "
        "prints the same.\n",
        prose(metrics.__doc__, 1, 2) + "\n",
        table(["column", "unit", "formula", "from"], rows),
        "## Files of an experiment\n",
        prose(results.__doc__, 1) + "\n",
    ]
    for name, columns in COLUMNS.items():
        cells = [(code(key), text(unit), text(meaning)) for key, (unit, meaning) in columns.items()]
        parts += [f"### {name}.parquet\n", f"{text(ROWS[name])}.\n".capitalize()]
        parts += [table(["column", "unit", "meaning"], cells)]
    for name, make in TABLES.items():
        parts += [f"### {name}\n", prose(make.__doc__) + "\n"]
    return "\n".join(parts)
