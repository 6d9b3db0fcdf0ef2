"""A simulated run beside the measured one: python -m sim.costs.fit --compare RESULTS MEASURED.

RESULTS is a folder that kvsim run has written, MEASURED one of LLMServingSim's measured vLLM runs:
requests.jsonl[.gz] with times of queueing, first and last token in seconds, timeseries.csv with
what the server logged once a second. Latencies count from the arrival; server and client clocks
are laid over each other at the first request, which waited for nobody. KV use is the share of
blocks held by requests, cached ones of nobody not counted, as the server logs it.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd

from sim.costs.fit.tables import TableError
from sim.costs.forms import Floats
from sim.figures import style
from sim.results import files as results
from sim.stored import open_folder
from sim.stored.files import AGAIN, read_json

REQUEST_COLUMNS = ("arrival_time", "queued_ts", "first_token_ts", "last_token_ts", "output_toks")
SERIES_COLUMNS = ("t", "running", "waiting", "kv_cache_pct")
PERCENTILES = (10, 50, 90, 99)


@dataclass(frozen=True)
class Observed:
    """One run: seconds of each request, and what was seen once a second (second, running, waiting,
    kv_frac; kv_frac is NaN where nobody logged it).
    """

    ttft_s: Floats
    tpot_s: Floats
    makespan_s: float
    series: pd.DataFrame


def read_measured(folder: Path) -> Observed:
    """What the engine did. Raises TableError."""
    try:
        path = next(path for path in sorted(folder.glob("requests.jsonl*")))
        content = path.read_bytes()
        lines = gzip.decompress(content) if path.suffix == ".gz" else content
        rows = pd.DataFrame([json.loads(line) for line in lines.splitlines()])
        series = pd.read_csv(folder / "timeseries.csv")
        times = _numbers(rows, path.name, REQUEST_COLUMNS)
        logged = _numbers(series, "timeseries.csv", SERIES_COLUMNS)
    except StopIteration:
        raise TableError(f"{folder}: has no requests.jsonl") from None
    except (OSError, ValueError, EOFError, zlib.error) as error:
        raise TableError(f"{folder}: is no measured run: {error}") from None
    arrival = times["arrival_time"] - times["arrival_time"][0] + times["queued_ts"][0]
    used = logged["kv_cache_pct"] / 100
    table = pd.DataFrame(
        {
            "second": logged["t"],
            "running": logged["running"],
            "waiting": logged["waiting"],
            "kv_frac": used if used.any() else np.nan,
        }
    )
    tpot = _tpot(times["last_token_ts"] - times["first_token_ts"], times["output_toks"] - 1)
    end = float(times["last_token_ts"].max() - arrival.min())
    return Observed(times["first_token_ts"] - arrival, tpot, end, table)


def _numbers(rows: pd.DataFrame, name: str, columns: Sequence[str]) -> dict[str, Floats]:
    """Columns as finite numbers. Raises ValueError with the file, the row and the column."""
    found = {}
    for column in columns:
        if column not in rows.columns or not len(rows):
            raise ValueError(f"{name} has no {column}")
        found[column] = pd.to_numeric(rows[column], errors="coerce").to_numpy(np.float64)
        bad = np.flatnonzero(~np.isfinite(found[column]))
        if len(bad):
            value = rows[column].iloc[bad[0]]
            raise ValueError(f"{name}, row {bad[0] + 1}: {column} is {value!r}, no number")
    return found


def _tpot(seconds: Floats, gaps: Floats) -> Floats:
    """Seconds a token after the first, of requests that have one."""
    return np.asarray(seconds[gaps > 0] / gaps[gaps > 0])


def read_simulated(folder: Path) -> Observed:
    """The only run of an experiment's results. Raises TableError."""
    try:
        stored = open_folder(folder)
        stored.check_runs()
        requests, timeline = (stored.tables(name) for name in ("requests", "timeline"))
        if len(requests) != 1 or len(timeline) != 1:
            raise TableError(f"{folder}: must hold one run, as kvsim run makes it")
        ((run, requests_table),) = requests.items()
        summary = read_json(folder / "runs" / run / "summary.json", AGAIN)
        return _observed(folder, requests_table, timeline[run], summary)
    except results.ResultsError as error:
        raise TableError(str(error)) from None


def _observed(
    folder: Path, requests: pd.DataFrame, timeline: pd.DataFrame, summary: Mapping[str, Any]
) -> Observed:
    """The tables and the summary of a run as they are compared. Raises TableError."""
    num_unfinished = int(requests["finish_s"].isna().sum())
    if num_unfinished:
        raise TableError(f"{folder}: {num_unfinished} of its requests did not finish")
    ttft = requests["first_token_s"] - requests["arrival_s"]
    decoding = (requests["finish_s"] - requests["first_token_s"]).to_numpy()
    tpot = _tpot(decoding, (requests["output_tokens"] - 1).to_numpy())
    start = float(requests["arrival_s"].min())
    seconds = np.arange(1, int(summary["makespan_s"]) + 1)
    at = np.searchsorted(timeline["start_s"].to_numpy(), start + seconds, side="right") - 1
    held = timeline["token_states"] + timeline["reserved"] + timeline["internal"]
    block = summary["num_slots"] / summary["num_blocks"]
    series = pd.DataFrame(
        {
            "second": seconds,
            "running": timeline["num_running"].to_numpy()[at],
            "waiting": timeline["num_waiting"].to_numpy()[at],
            "kv_frac": (held / (summary["num_slots"] - block)).to_numpy()[at],
        }
    )
    return Observed(ttft.to_numpy(), tpot, float(summary["makespan_s"]), series)


def comparison(simulated: Observed, measured: Observed) -> pd.DataFrame:
    """One row a metric: measured, simulated, and by how many percent the latter is off."""
    rows = []
    found = metrics_of(simulated)
    for name, real in metrics_of(measured).items():
        ours = found.get(name, np.nan)
        if not (np.isnan(real) or np.isnan(ours)):
            rows.append((name, real, ours, 100 * (ours / real - 1)))
    table = pd.DataFrame(rows, columns=["metric", "measured", "simulated", "error_percent"])
    return table.round({"measured": 5, "simulated": 5, "error_percent": 2})


def metrics_of(run: Observed) -> dict[str, float]:
    """The numbers that are compared; seconds, sequences, fractions."""
    waits = run.series["waiting"] > 0
    queued = run.series[waits]
    found = {
        "makespan_s": run.makespan_s,
        "num_running_mean while requests wait": float(queued["running"].mean()),
        "kv_frac while requests wait": float(queued["kv_frac"].mean()),
        "num_running_max": float(run.series["running"].max()),
        "seconds with requests waiting": float(waits.sum()),
    }
    for name, values in (("ttft_s", run.ttft_s), ("tpot_s", run.tpot_s)):
        if not len(values):
            continue
        found[f"{name}_mean"] = float(values.mean())
        found |= {f"{name}_p{p}": float(np.percentile(values, p)) for p in PERCENTILES}
    return found


def compare(results_folder: Path, measured_folder: Path) -> tuple[pd.DataFrame, list[Path]]:
    """Write comparison.csv and comparison.png beside the results. Raises TableError."""
    simulated, measured = read_simulated(results_folder), read_measured(measured_folder)
    table = comparison(simulated, measured)
    paths = [results_folder / "comparison.csv", results_folder / "figures" / "comparison.png"]
    try:
        results.write_csv(paths[0], table)
        paths[1].parent.mkdir(parents=True, exist_ok=True)
        with mpl.style.context(str(style.STYLE)):
            _draw(simulated, measured, results_folder, paths[1])
    except (results.ResultsError, OSError) as error:
        raise TableError(str(error)) from None
    return table, paths


def _draw(simulated: Observed, measured: Observed, folder: Path, path: Path) -> None:
    facts = open_folder(folder).facts
    figure, body = style.new_figure(5.2)
    panels = body.subplots(2, 2)
    for i, (label, run) in enumerate((("measured", measured), ("simulated", simulated))):
        color, line = style.color_of(i), style.LINE_STYLES[i]
        for axes, values in ((panels[0, 0], run.ttft_s), (panels[0, 1], run.tpot_s)):
            share = np.arange(1, len(values) + 1) / len(values)
            axes.plot(np.sort(values), share, line, color=color, label=label)
        series = run.series
        panels[1, 0].plot(series["second"], series["running"], line, color=color)
        panels[1, 0].plot(series["second"], series["waiting"], line, color=color, alpha=0.4)
        if series["kv_frac"].notna().any():
            panels[1, 1].plot(series["second"], series["kv_frac"], line, color=color)
    for axes, name in ((panels[0, 0], "TTFT (s)"), (panels[0, 1], "TPOT (s)")):
        axes.set_xlabel(name)
        axes.set_ylabel("share of requests")
    panels[0, 1].set_xlim(left=0)
    panels[1, 0].set_ylabel("running (pale: waiting)")
    panels[1, 1].set_ylabel("KV slots in use (%)")
    style.percent_axis(panels[1, 1].yaxis)
    for axes in panels[1]:
        axes.set_xlabel("time (s)")
        axes.set_ylim(bottom=0)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    style.legend(body, handles, labels, 2)
    style.head(figure, facts.name, "a measured run of vLLM 0.19 and its simulation")
    style.foot(figure, facts.cost_source, ["Nothing was fitted to this run."])
    figure.savefig(path, dpi=110)
