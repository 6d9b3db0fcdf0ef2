"""How much a page may show, so that it stays small: LADDER is gone down until it fits."""

from __future__ import annotations

from dataclasses import dataclass

MAX_BYTES = 5_000_000


@dataclass(frozen=True)
class Limits:
    """How much of everything may be shown: rows of runs, whether with all columns, plotted points
    of a figure, bytes of an SVG before its PNG is taken, of the resolved experiment and the player.
    """

    rows: int = 2_000
    all_columns: bool = True
    points: int = 200
    svg_bytes: int = 1_200_000
    has_figures: bool = True
    config_chars: int = 100_000
    has_player: bool = True


# what is left out until a page is small enough: how much is shown, and what that leaves out
LADDER: tuple[tuple[Limits, tuple[str, ...]], ...] = (
    (Limits(), ()),
    (Limits(points=20), ("all but 20 plotted points of each figure, which figures/*.csv have",)),
    (
        Limits(points=0, all_columns=False, svg_bytes=400_000),
        (
            "the plotted points, which figures/*.csv have",
            "the columns of summary.csv that are not in the table of runs",
            "figures as lines where those take more than 0.4 MB",
        ),
    ),
    (
        Limits(500, False, 0, 150_000, config_chars=20_000, has_player=False),
        (
            "the plotted points, which figures/*.csv have",
            "the columns of summary.csv that are not in the table of runs",
            "runs after the first 500, which summary.csv has",
            "figures of more than 0.15 MB, which are in figures/",
            "the player",
        ),
    ),
    (
        Limits(100, False, 0, 0, False, 5_000, False),
        (
            "all figures and their points, which are in figures/",
            "the columns of summary.csv that are not in the table of runs",
            "runs after the first 100, which summary.csv has",
            "the player",
        ),
    ),
)
