"""A storyboard of a small run: block tables beside the physical blocks, one panel a change.

It is read like the PagedAttention paper's figures 3 and 6 to 9 (Kwon et al., SOSP 2023).
"""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from sim.figures import style
from sim.figures.base import Drawing, FigureError, Results
from sim.figures.board import LIMITS, Board, make_board
from sim.figures.board_panels import DOT, FEW, GONE, STRONG, TERMS, draw_panel, runs
from sim.figures.storyboard import COPY, SWAP, Moment, change
from sim.figures.tables import groups

TERM_WORDS = {
    "token_states": "holds a token",
    "reserved": "reserved, will be written",
    "internal": "held, never to be written",
    "external": "free, but no use to who waits",
    "free": "free",
}


def draw_block_tables(results: Results) -> Drawing:
    """The first run that is small enough, at most MAX_PANELS moments of it."""
    all_groups = groups(results.summary)
    boards = (make_board(results, group) for group in all_groups)
    board = next((board for board in boards if board is not None and board.is_small), None)
    if board is None:
        raise FigureError(f"no run that has recorded its blocks is small enough: {LIMITS}")
    heights = [board.height(moment) for moment in board.moments]
    figure, body = style.new_figure(1.25 + sum(heights))
    panels = body.subplots(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
    for ax, (last, moment) in zip(panels, _steps(board), strict=True):
        draw_panel(ax, board, moment, last)
    label = style.clean(board.group.label, 60)
    what = "who holds which range" if board.block_size is None else "block tables"
    style.head(figure, results.name, f"{what}, {label}")
    _legend_and_notes(figure, results, board, len(all_groups))
    return Drawing(figure, _points(board))


def _steps(board: Board) -> Iterator[tuple[Moment | None, Moment]]:
    """Each moment with the one before."""
    return zip([None, *board.moments], board.moments, strict=False)


def _legend_and_notes(figure: Figure, results: Results, board: Board, num_groups: int) -> None:
    handles, labels = zip(*_entries(board), strict=True)
    style.legend(figure.subfigs[0], handles, labels, columns=4)
    if board.block_size is None:
        notes = [f"More than {FEW} slots alike are one box with their number."]
    else:
        notes = [
            "Left: each row is a sequence's block table; a cell names the physical block and how "
            "many of its slots are filled. Right: the physical blocks.",
            "ref: how many block tables name a block, if that is not 1.",
        ]
    if board.num_unshown:
        notes.append(f"Not drawn, because nobody holds them: {board.num_unshown} blocks.")
    notes += board.notes
    cached = max(moment.num_cached for moment in board.moments)
    if cached:
        notes.append(f"Drawn as free: at most {cached} slots whose content is cached.")
    if num_groups > 1:
        notes.append(f"1 of {num_groups} allocators is drawn.")
    style.foot(figure, results.cost_source, notes)


def _entries(board: Board) -> Iterator[tuple[Artist, str]]:
    """The legend: what occurs in the panels."""
    pieces = [piece for moment in board.moments for piece in moment.pieces.values()]
    terms = {term for piece in pieces for term, _ in runs(piece)} | {"free"}
    if board.block_size is None and any(moment.num_external for moment in board.moments):
        terms.add("external")
    for term in TERMS:
        if term in terms:
            yield Patch(facecolor=style.TERM_COLORS[term]), TERM_WORDS[term]
    if board.block_size is None:
        return
    dot = DOT | {"markeredgecolor": style.TERM_COLORS["token_states"], "markersize": 5}
    yield Line2D([], [], **dot), "just written"
    yield Patch(facecolor="none", edgecolor=STRONG, linewidth=1.6), "just taken"
    if any(change(last, moment).freed for last, moment in _steps(board)):
        yield Patch(facecolor="none", edgecolor=GONE, linestyle="--", linewidth=1.2), "just freed"
    if any(piece.moved == COPY for piece in pieces):
        yield Line2D([], [], color=STRONG, marker=">", markersize=3), "copied on write"
    if any(piece.moved == SWAP for piece in pieces):
        swap = Line2D([], [], color=STRONG, linestyle="--", marker=">", markersize=3)
        yield swap, "to the host and back"


def _points(board: Board) -> pd.DataFrame:
    """Every cell of every block table that is drawn, and how many tables name its block."""
    parts = []
    for panel, moment in enumerate(board.moments):
        rows = moment.held.reset_index(drop=True)
        places = zip(rows["place"], rows["start_slot"].tolist(), strict=True)
        counts = [len(moment.pieces[str(place), start].holders) for place, start in places]
        rows = rows.assign(num_holders=counts)
        rows.insert(0, "run", board.group.first_run)
        rows.insert(1, "label", board.group.label)
        rows.insert(2, "panel", panel)
        rows.insert(3, "iteration", moment.iteration)
        parts.append(rows)
    points = pd.concat(parts, ignore_index=True)
    return points.astype(dict.fromkeys(("moment", "place", "moved"), object))
