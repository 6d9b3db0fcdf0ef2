"""One panel of a storyboard: block tables and physical blocks, or the ranges of contiguous memory.

Everything is in inches from the upper left corner of the panel.
"""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, Rectangle

from sim.figures import style
from sim.figures.board import BLOCK_ROW, HEADER, LABEL, ROW, SLOT_MIN, TITLE, WIDTH, Board
from sim.figures.storyboard import COPY, DEVICE, HOST, Block, Moment, Piece, change, listed, title

BOX = 0.2  # the height of a block
FEW, SLOT, LONG = 10, 0.15, 1.85  # of a range: more slots alike are one box of this width
RANGE_LEFT = 2.3
EDGE, STRONG, GONE = "#9A9A9A", "black", "#B00020"
NORMAL_PT, SMALL_PT, TINY_PT = 6.5, 6, 5
TERMS = ("token_states", "reserved", "internal", "external", "free")
WORDS = {
    "token_states": "written",
    "reserved": "reserved",
    "internal": "never used",
    "external": "external",
    "free": "free",
}
DOT: dict[str, Any] = {"linestyle": "none", "marker": "o", "color": "white", "markersize": 2.2}


def draw_panel(ax: Axes, board: Board, moment: Moment, last: Moment | None) -> None:
    """Draw a moment; last is the one before, None for an empty pool."""
    ax.set(xlim=(0, WIDTH), ylim=(board.height(moment) - TITLE, 0))
    ax.axis("off")
    text = title(last, moment, board.names)
    ax.set_title(style.clean(text, 118), fontsize=8)
    if board.block_size is None:
        _Ranges(ax, board, moment).draw()
    else:
        _Blocks(ax, board, moment, last).draw()


def runs(piece: Piece) -> list[tuple[str, int]]:
    """The slots of a piece as (term, count), in order."""
    internal = piece.num_slots - piece.num_written - piece.num_reserved
    parts = zip(TERMS, (piece.num_written, piece.num_reserved, internal), strict=False)
    return [(term, count) for term, count in parts if count]


class _Panel:
    """What both kinds of panels are made of."""

    def __init__(self, ax: Axes, board: Board, moment: Moment) -> None:
        self.ax, self.board, self.moment = ax, board, moment

    def text(self, x: float, y: float, text: str, **how: Any) -> None:
        plain: dict[str, Any] = {"fontsize": SMALL_PT, "ha": "center", "va": "center"}
        self.ax.text(x, y, text, **plain | how)

    def box(self, x: float, y: float, width: float, height: float, **how: Any) -> None:
        plain: dict[str, Any] = {"facecolor": "none", "edgecolor": EDGE, "linewidth": 0.6}
        self.ax.add_patch(Rectangle((x, y), width, height, **plain | how))

    def name(self, y: float, text: str, **how: Any) -> None:
        """What a row is about."""
        self.text(LABEL - 0.08, y + ROW / 2, text, ha="right", fontsize=NORMAL_PT, **how)


class _Blocks(_Panel):
    """Block tables on the left, physical blocks on the right."""

    def __init__(self, ax: Axes, board: Board, moment: Moment, last: Moment | None) -> None:
        super().__init__(ax, board, moment)
        self.before = {} if last is None else last.pieces
        self.change = change(last, moment)
        self.middles: dict[Block, tuple[float, float]] = {}

    def draw(self) -> None:
        self._tables()
        y = 0.0
        for place, word in ((DEVICE, "GPU"), (HOST, "host")):
            blocks = [block for block in self.board.shown if block[0] == place]
            y = self._rows(y, word, blocks)
        self._arrows()

    def _tables(self) -> None:
        cell = self.board.cell_width
        gray = {"color": style.NOTE_COLOR}
        self.text(LABEL - 0.08, HEADER / 2, "logical block", ha="right", **gray)
        for i in range(self.board.num_logical):
            self.text(LABEL + (i + 0.5) * cell, HEADER / 2, str(i), **gray)
        y = HEADER
        for (request, sequence), table in self.moment.tables.items():
            self.name(y, f"request {request}" + f", seq. {sequence}" * self.board.has_sequences)
            for i, block in enumerate(table):
                self._cell(LABEL + i * cell, y, block)
            y += ROW
        if self.moment.waiting:
            text = f"{listed(self.moment.waiting)} wait{'s' * (len(self.moment.waiting) == 1)}"
            self.text(LABEL, y + ROW / 2, text, ha="left", fontsize=NORMAL_PT, **gray)

    def _cell(self, x: float, y: float, block: Block) -> None:
        width, piece = self.board.cell_width, self.moment.pieces[block]
        share = piece.num_written / piece.num_slots
        blue = style.tint(style.TERM_COLORS["token_states"])
        self.box(x, y, width * share, ROW, facecolor=blue, edgecolor="none")
        self.box(x, y, width, ROW)
        name, filled = self.board.name(block), f"{piece.num_written} of {piece.num_slots}"
        self.text(x + width / 2, y + 0.36 * ROW, name, fontsize=7.5, weight="bold")
        self.text(x + width / 2, y + 0.78 * ROW, filled, fontsize=TINY_PT)

    def _rows(self, y: float, word: str, blocks: list[Block]) -> float:
        """Draw the blocks of one side; return where the next side begins."""
        board, left = self.board, self.board.blocks_left
        if blocks:
            self.text(left - 0.1, y + 0.27, word, ha="right", color=style.NOTE_COLOR)
        for i, block in enumerate(blocks):
            row, column = divmod(i, board.blocks_per_row)
            self._block(left + column * board.pitch, y + row * BLOCK_ROW, block)
        return y + -(-len(blocks) // board.blocks_per_row) * BLOCK_ROW

    def _block(self, x: float, y: float, block: Block) -> None:
        width, top = self.board.block_width, y + 0.17
        self.middles[block] = (x + width / 2, top + BOX / 2)
        piece = self.moment.pieces.get(block)
        how = {"weight": "bold"} if piece is not None else {"color": style.NOTE_COLOR}
        self.text(x, y + 0.08, self.board.name(block), ha="left", fontsize=7.5, **how)
        if piece is None:
            self._slots(x, top, [("free", self.board.block_size or 1)])
            if block in self.change.freed:
                self.box(x, top, width, BOX, edgecolor=GONE, linewidth=1.2, linestyle="--")
                self._note(x, y, "freed", color=GONE)
            return
        self._slots(x, top, runs(piece))
        self._dots(x, top, block, piece)
        self._note(x, y, self._refs(block, piece))
        if block in self.change.taken or block in self.change.moved:
            self.box(x, top, width, BOX, edgecolor=STRONG, linewidth=1.6)

    def _note(self, x: float, y: float, text: str, **how: Any) -> None:
        """A few words above a block or, if that is narrow, beside it."""
        width = self.board.block_width
        if width >= 0.7:
            self.text(x + width, y + 0.08, text, ha="right", **how)
        else:
            self.text(x + width + 0.05, y + 0.17 + BOX / 2, text, ha="left", **how)

    def _refs(self, block: Block, piece: Piece) -> str:
        """The reference count and, if it has changed, the one before; nothing for a plain 1."""
        count = len(piece.holders)
        before = count
        if block in self.before and block not in self.change.moved:
            before = len(self.before[block].holders)
        if count == before:
            return f"ref {count}" if count > 1 else ""
        return f"ref {before} → {count}"

    def _slots(self, x: float, y: float, parts: list[tuple[str, int]]) -> None:
        """A block's slots, each a cell if there is room for it."""
        width = self.board.block_width
        slot = width / sum(count for _, count in parts)
        left = x
        for term, count in parts:
            step = 1 if slot >= 0.99 * SLOT_MIN else count
            for _ in range(0, count, step):
                color = style.TERM_COLORS[term]
                self.box(left, y, slot * step, BOX, facecolor=color, edgecolor="white")
                left += slot * step
        self.box(x, y, width, BOX)

    def _dots(self, x: float, y: float, block: Block, piece: Piece) -> None:
        """Mark the slots that have just been written."""
        slot = self.board.block_width / piece.num_slots
        if slot < 0.99 * SLOT_MIN:
            return
        old = self.before.get(self.change.moved.get(block, block))
        first = 0 if old is None else min(old.num_written, piece.num_written)
        xs = [x + (i + 0.5) * slot for i in range(first, piece.num_written)]
        self.ax.plot(xs, [y + BOX / 2] * len(xs), **DOT)

    def _arrows(self) -> None:
        """From each block that was copied or swapped to the one that it went to."""
        for block, source in self.change.moved.items():
            if source not in self.middles or block not in self.middles:
                continue
            is_copy = self.moment.pieces[block].moved == COPY
            arrow = FancyArrowPatch(
                self.middles[source],
                self.middles[block],
                connectionstyle="arc3,rad=-0.35",
                arrowstyle="-|>",
                mutation_scale=8,
                linewidth=1.2,
                linestyle="-" if is_copy else (0, (4, 2)),
                color=STRONG,
                zorder=5,
            )
            self.ax.add_patch(arrow)


class _Ranges(_Panel):
    """The whole of contiguous memory, a range or a hole a row, in order of address."""

    def draw(self) -> None:
        y = 0.0
        is_lost = self.moment.num_external > 0
        for start, size, piece in self.board.ranges(self.moment):
            if piece is None:
                self.name(y, "a hole", color=style.NOTE_COLOR)
                parts = [("external" if is_lost else "free", size)]
            else:
                (request, sequence), *_ = piece.holders
                self.name(y, f"request {request}" + f", seq. {sequence}" * self.board.has_sequences)
                parts = runs(piece)
            where = f"slots {start:,} to {start + size - 1:,}"
            self.text(RANGE_LEFT - 0.08, y + ROW / 2, where, ha="right", color=style.NOTE_COLOR)
            self._slots(RANGE_LEFT, y + (ROW - BOX) / 2, parts)
            y += ROW
        if self.moment.waiting:
            self._waiting(y, is_lost)

    def _waiting(self, y: float, is_lost: bool) -> None:
        self.name(y, listed(self.moment.waiting))
        text = "waits" if len(self.moment.waiting) == 1 else "wait"
        if is_lost:
            text += (
                f": {self.moment.num_external:,} slots are free, which is enough for request "
                f"{self.moment.waiting[0]}, but no hole is large enough"
            )
        self.text(RANGE_LEFT, y + ROW / 2, text, ha="left", fontsize=NORMAL_PT)

    def _slots(self, x: float, y: float, parts: list[tuple[str, int]]) -> None:
        for term, count in parts:
            color = style.TERM_COLORS[term]
            if count <= FEW:
                for _ in range(count):
                    self.box(x, y, SLOT, BOX, facecolor=color, edgecolor="white")
                    x += SLOT
                continue
            self.box(x, y, LONG, BOX, facecolor=color, edgecolor="white")
            ink = style.text_color(color)
            words = f"{count:,} {WORDS[term]}"
            self.text(x + LONG / 2, y + BOX / 2, words, color=ink, fontsize=NORMAL_PT)
            x += LONG
