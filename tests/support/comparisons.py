"""Folders as kvsim run writes them, with numbers of one's own."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from sim.results import files as results

Rows = Sequence[Mapping[str, Any]]


def folder_of(path: Path, rows: Rows, **config: Any) -> Path:
    """A folder with these rows; what a row does not say is filled in."""
    usual = {"experiment": path.name, "status": "finished", "allocator": "paged", "reason": None}
    full = []
    for number, row in enumerate(rows):
        begin = {"experiment": path.name, "run": f"run-{number}", "seed": number}
        full.append({**begin, **usual, **row})
    names = dict.fromkeys(name for row in full for name in row)
    cells = [name for name in names if "." in name]
    front = ["experiment", "run", "seed", "status", "allocator", *cells, "reason"]
    columns = front + [name for name in names if name not in front]
    path.mkdir(parents=True, exist_ok=True)
    results.write_csv(path / "summary.csv", pd.DataFrame(full, columns=columns))
    facts = {
        "name": path.name,
        "config": {"name": path.name, **config},
        "runs": [row["run"] for row in full],
        "cost_source": "linear: assumed coefficients",
    }
    results.write_json(path / "experiment.json", facts)
    return path


def values_of(metric: str, values: Sequence[float], **cells: Any) -> list[dict[str, Any]]:
    """A row a seed."""
    return [{"seed": seed, metric: value, **cells} for seed, value in enumerate(values)]


def with_requests(path: Path, run: str, latencies: Any, digest: str = "d") -> None:
    """Give a run of a folder its table of requests: end-to-end latencies, a second apart."""
    where = path / "runs" / run
    where.mkdir(parents=True, exist_ok=True)
    arrival = np.arange(len(latencies), dtype=float)
    table = {
        "request": np.arange(len(latencies)),
        "arrival_s": arrival,
        "output_tokens": 11,
        "first_token_s": arrival + 0.1,
        "finish_s": arrival + latencies,
        "status": "finished",
    }
    pd.DataFrame(table).to_parquet(where / "requests.parquet")
    results.write_json(where / "summary.json", {"run": run})
    results.write_manifest(where, {"key": run, "trace": {"digest": digest}})
    keys = path / "runs" / "keys.json"
    known = json.loads(keys.read_text()) if keys.exists() else {}
    results.write_json(keys, {**known, run: run})
