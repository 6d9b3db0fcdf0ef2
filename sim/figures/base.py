"""What a figure is made from, and what it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd
from matplotlib.figure import Figure

from sim.stored import Stored


class FigureError(Exception):
    """A figure that these results cannot give: one sentence."""


@dataclass(frozen=True)
class Results:
    """The tables of one experiment, as read from its files. Tables are keyed by run.

    cost_source says which model gave the times.
    """

    name: str
    summary: pd.DataFrame
    timelines: Mapping[str, pd.DataFrame]
    requests: Mapping[str, pd.DataFrame]
    blocks: Mapping[str, pd.DataFrame]
    cost_source: str


def tables_of(stored: Stored) -> Results:
    """What a folder has to draw from. Raises ResultsError."""
    timelines, requests, blocks = map(stored.tables, ("timeline", "requests", "blocks"))
    facts = stored.facts
    return Results(facts.name, stored.summary, timelines, requests, blocks, facts.cost_source)


@dataclass(frozen=True)
class Drawing:
    """A drawn figure and exactly the points in it."""

    figure: Figure
    points: pd.DataFrame
