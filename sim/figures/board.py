"""The moments of one run that are drawn, the pool they are of, and how large that becomes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sim.figures import style
from sim.figures.base import Results
from sim.figures.storyboard import DEVICE, HOST, Block, Moment, Piece, choose, moments
from sim.figures.tables import Group, numbers

MAX_PANELS = 10
MAX_BLOCKS, MAX_RANGES, MAX_SEQUENCES, MAX_LOGICAL = 32, 8, 12, 10
LIMITS = (
    f"at most {MAX_BLOCKS} blocks or {MAX_RANGES} ranges, {MAX_SEQUENCES} sequences and "
    f"{MAX_LOGICAL} blocks for each of them, in a pool of at most 4,096 slots"
)

# inches
WIDTH = style.WIDTH_IN - 0.1
TITLE, HEADER, SPACE = 0.3, 0.2, 0.12
LABEL, ROW, CELL = 1.12, 0.27, 0.44  # of a block table: names of sequences, a row, a cell
BLOCK_ROW, BLOCK_GAP, BLOCK_MIN = 0.43, 0.12, 0.62
PLACE = 0.65  # between a block table and the blocks
SLOT_MAX, SLOT_MIN = 0.2, 0.06


@dataclass(frozen=True)
class Board:
    """What is drawn of one group of runs.

    block_size is None for memory without blocks. shown are the physical blocks that are drawn,
    in order of their ids: all of a small pool, of others those that are ever held.
    """

    group: Group
    moments: list[Moment]
    notes: list[str]
    num_slots: int
    block_size: int | None
    shown: list[Block]
    num_unshown: int

    @property
    def num_logical(self) -> int:
        return max(len(table) for m in self.moments for table in m.tables.values())

    @property
    def has_sequences(self) -> bool:
        """Whether a request ever has several."""
        return any(sequence > 0 for m in self.moments for _, sequence in m.tables)

    @property
    def is_small(self) -> bool:
        if any(len(m.tables) > MAX_SEQUENCES for m in self.moments):
            return False
        if self.block_size is None:
            return all(len(self.ranges(m)) <= MAX_RANGES for m in self.moments)
        return len(self.shown) <= MAX_BLOCKS and self.num_logical <= MAX_LOGICAL

    def name(self, block: Block) -> str:
        """How a block is called: its id, with an h for those of the host."""
        place, start = block
        return f"{'h' * (place == HOST)}{start // (self.block_size or 1):,}"

    @property
    def names(self) -> dict[Block, str]:
        """What all blocks are called; empty for memory without blocks."""
        if self.block_size is None:
            return {}
        pieces = [piece for m in self.moments for piece in m.pieces.values()]
        known = {*self.shown, *(piece.source for piece in pieces)}
        known |= {block for m in self.moments for block in m.pieces}
        return {block: self.name(block) for block in known}

    def ranges(self, moment: Moment) -> list[tuple[int, int, Piece | None]]:
        """(first slot, slots, who holds them) of contiguous memory, holes included."""
        found: list[tuple[int, int, Piece | None]] = []
        end = 0
        for (_, start), piece in moment.pieces.items():
            if start > end:
                found.append((end, start - end, None))
            found.append((start, piece.num_slots, piece))
            end = start + piece.num_slots
        if end < self.num_slots:
            found.append((end, self.num_slots - end, None))
        return found

    def height(self, moment: Moment) -> float:
        """Inches of a panel."""
        if self.block_size is None:
            body = ROW * (len(self.ranges(moment)) + bool(moment.waiting))
        else:
            table = HEADER + ROW * (len(moment.tables) + bool(moment.waiting))
            body = max(table, self.num_block_rows * BLOCK_ROW)
        return TITLE + body + SPACE

    @property
    def cell_width(self) -> float:
        """Of a block table."""
        return min(CELL, 3.2 / self.num_logical)

    @property
    def blocks_left(self) -> float:
        """Where the physical blocks begin."""
        return LABEL + self.cell_width * self.num_logical + PLACE

    @property
    def block_width(self) -> float:
        size = self.block_size or 1
        return min(1.2, size * max(SLOT_MIN, min(SLOT_MAX, 1.1 / size)))

    @property
    def pitch(self) -> float:
        """From one block to the next."""
        return max(BLOCK_MIN, self.block_width) + BLOCK_GAP

    @property
    def blocks_per_row(self) -> int:
        return max(1, int((WIDTH - self.blocks_left + BLOCK_GAP) / self.pitch))

    @property
    def num_block_rows(self) -> int:
        """Rows of blocks: those of the device, then those of the host."""
        counts = [sum(block[0] == place for block in self.shown) for place in (DEVICE, HOST)]
        return sum(-(-count // self.blocks_per_row) for count in counts)


def make_board(results: Results, group: Group) -> Board | None:
    """What would be drawn of a group; None if it has recorded nothing."""
    blocks = results.blocks.get(group.first_run)
    if blocks is None or not len(blocks) or "moment" not in blocks:
        return None
    chosen, notes = choose(moments(blocks, results.requests.get(group.first_run)), MAX_PANELS)
    on_device = blocks[blocks["place"] == DEVICE]
    end = int((on_device["start_slot"] + on_device["num_slots"]).max())
    given = numbers(group.runs, "num_slots").iloc[0]
    num_slots = end if np.isnan(given) else max(int(given), end)
    num_blocks = numbers(group.runs, "num_blocks").iloc[0]
    block_size = None if np.isnan(num_blocks) else int(blocks["num_slots"].iloc[0])
    shown = sorted({block for moment in chosen for block in moment.pieces})
    num_unshown = 0
    if block_size is not None:
        whole = [(DEVICE, number * block_size) for number in range(int(num_blocks))]
        if len(whole) <= MAX_BLOCKS:
            shown = whole + [block for block in shown if block[0] == HOST]
        num_unshown = len(set(whole) - set(shown))
    return Board(group, chosen, notes, num_slots, block_size, shown, num_unshown)
