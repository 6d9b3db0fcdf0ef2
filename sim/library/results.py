"""What an experiment has given, as tables and pictures, from its folder."""

from __future__ import annotations

import io
import shutil
import weakref
from os import PathLike
from pathlib import Path
from typing import Any

import matplotlib.style
import pandas as pd
from matplotlib.figure import Figure

from sim import figures
from sim.figures.base import Drawing, FigureError
from sim.figures.style import STYLE
from sim.library.plain import count_of, path_of
from sim.results.files import ResultsError
from sim.stored import Stored, open_folder
from sim.stored.folder import RUNS

FORMS = ("png", "svg", "pdf")


class Picture:
    """A figure of the results: a notebook shows it.

    figure is matplotlib's, points the table of exactly what is drawn.
    """

    def __init__(self, drawing: Drawing) -> None:
        self.figure: Figure = drawing.figure
        self.points: pd.DataFrame = drawing.points

    def __repr__(self) -> str:
        return f"<Picture of {len(self.points)} points>"

    def _repr_png_(self) -> tuple[bytes, dict[str, str]]:
        """The picture, and what is on it in words, for who cannot see it."""
        return self._bytes("png"), {
            "alt": f"{self.figure.get_suptitle()} ({len(self.points)} points)"
        }

    def save(self, path: str | PathLike[str]) -> None:
        """Write it as PNG, SVG or PDF; which one, the suffix says. Raises ResultsError."""
        place = path_of(path, "path", "the path of a file")
        form = place.suffix.removeprefix(".").lower()
        if form not in FORMS:
            raise ResultsError(f"{place}: unknown suffix; accepted: .{', .'.join(FORMS)}")
        try:
            place.write_bytes(self._bytes(form))
        except OSError as error:
            raise ResultsError(f"{place}: cannot be written: {error.strerror}") from None

    def _bytes(self, form: str) -> bytes:
        buffer = io.BytesIO()
        metadata = figures.METADATA.get(form)
        with matplotlib.style.context(STYLE, after_reset=True):
            self.figure.savefig(buffer, format=form, metadata=metadata)
        return buffer.getvalue()


class Results:
    """The tables of one experiment. Made by `sim.run` and `sim.read`.

    Columns end in their units: _s seconds, _bytes, _frac shares in [0, 1]; counts begin with num_.

    >>> import sim
    >>> results = sim.read("results/worked_example")
    >>> results.name, len(results.runs)
    ('worked_example', 3)
    >>> results.summary.loc[2, ["allocator", "num_finished"]].to_dict()
    {'allocator': 'paged', 'num_finished': 3}
    """

    def __init__(self, stored: Stored) -> None:
        """Raises ResultsError if the summary cannot be read."""
        facts, self._stored = stored.facts, stored
        self.folder: Path = stored.folder
        self.name: str = facts.name
        self.description: str = facts.description
        self.config: dict[str, Any] = facts.config
        """The resolved experiment, every default filled in."""
        self.runs: list[str] = facts.runs
        self.notes: list[str] = facts.budget
        """Where the size of the pool comes from, and what else is worth knowing, in lines."""
        self.cost_source: str = facts.cost_source
        """Where iteration times come from."""
        self.summary: pd.DataFrame = stored.summary
        """One row a run, in the order of runs (summary.csv)."""

    def __repr__(self) -> str:
        return f"<Results of {self.name}: {len(self.runs)} runs>"

    @property
    def points(self) -> pd.DataFrame:
        """One row a point: means over seeds. Raises ResultsError if there is one seed only."""
        points = self._stored.points
        if points is None:
            path = self._stored.path("points")
            raise ResultsError(f"{path}: is not there: of one seed the summary has all")
        return points

    @property
    def problems(self) -> list[str]:
        """A sentence for each run that has failed or stalled."""
        rows = self.summary.to_dict("records")
        fine = {"finished", "skipped"}
        found = [row for row in rows if row.get("status", "finished") not in fine]
        return [f"{row['run']}: {row['status']}: {row['reason']}" for row in found]

    def requests(self, run: str | int | None = None) -> pd.DataFrame:
        """One row a request: arrival_s, prompt_tokens, first_token_s, finish_s, status, ….

        run is a name or number of `runs`; it may be left out if there is one. Raises ResultsError.
        """
        return self._table(run, "requests")

    def timeline(self, run: str | int | None = None) -> pd.DataFrame:
        """One row a bucket of time: start_s, width_s, slots of each kind, num_running, …."""
        return self._table(run, "timeline")

    def blocks(self, run: str | int | None = None) -> pd.DataFrame:
        """Who holds which slots, iteration by iteration, of pools of up to 4,096 slots.

        Recorded if the experiment's figures have pool_map or block_tables.
        """
        return self._table(run, "blocks")

    def replicas(self, run: str | int | None = None) -> pd.DataFrame:
        """One row a replica, with the columns of the summary."""
        return self._table(run, "replicas")

    def _table(self, run: str | int | None, name: str) -> pd.DataFrame:
        chosen, stored = self._name_of(run), self._stored
        if not stored.has_runs or chosen not in stored.manifests:
            folder = self.folder / RUNS / chosen
            raise ResultsError(f"{folder}: is not there; run the experiment to have its tables")
        table = stored.table(chosen, name)
        if table is None:
            has = ", ".join(stored.table_names(chosen)) or "no tables"
            raise ResultsError(f"{self.folder}: {chosen} has no {name}; accepted: one of {has}")
        return table

    def _name_of(self, run: str | int | None) -> str:
        """The name of a run. Raises ResultsError if there is none such."""
        run = count_of(run)
        if run is None and len(self.runs) == 1:
            return self.runs[0]
        if isinstance(run, int) and 0 <= run < len(self.runs):
            return self.runs[run]
        if isinstance(run, str) and run in self.runs:
            return run
        shown = ", ".join(self.runs[:10]) + (", …" if len(self.runs) > 10 else "")
        raise ResultsError(f"{self.folder}: no run {run!r}; accepted: {shown}, or a number")

    def figure(self, name: str) -> Picture:
        """Draw one of the figures, from these tables alone.

        Raises ResultsError for an unknown name, or if there is nothing to draw.
        """
        if not isinstance(name, str) or name not in figures.FIGURES:
            raise ResultsError(f"unknown figure {name!r}; accepted: {', '.join(figures.FIGURES)}")
        with matplotlib.style.context(STYLE, after_reset=True):
            try:
                return Picture(figures.FIGURES[name](figures.tables_of(self._stored)))
            except FigureError as error:
                raise ResultsError(f"{name}: {error}") from None


def read(folder: str | PathLike[str]) -> Results:
    """Read what `sim.run` or `kvsim run` has written.

    Of a folder without the tables of single runs, the summary is all there is. Raises ResultsError
    if the folder holds no finished experiment, or runs that the summary was not made from.

    >>> import sim
    >>> sim.read("results/fig02_memory_waste").points["token_states_frac_queued"].round(2).tolist()
    [0.18, 0.18, 0.26, 0.24, 0.39, 0.36, 0.96]
    >>> sim.read("no/such/folder")
    Traceback (most recent call last):
    ...
    sim.results.files.ResultsError: no/such/folder: no such folder; ...
    """
    folder = path_of(folder, "folder", "the path of a folder that kvsim run has written")
    stored = open_folder(folder)
    stored.check_runs_if_any()
    return Results(stored)


def read_and_keep(folder: Path) -> Results:
    """Read a folder that goes away with the results. Raises ResultsError."""
    results = read(folder)
    weakref.finalize(results, shutil.rmtree, folder, ignore_errors=True)
    return results
