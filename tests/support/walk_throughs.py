"""The paper's figures as runs: what was logged, moment by moment."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from command import ROOT, kvsim

Key = tuple[int, bool]  # the iteration, and whether it is its end


@dataclass(frozen=True)
class WalkThrough:
    """The block log of an experiment's only run, and its summary row."""

    points: pd.DataFrame
    summary: pd.Series
    block_size: int

    def at(self, iteration: int, end: bool = False) -> pd.DataFrame:
        """What is held during an iteration, or at the end of it."""
        points = self.points
        is_end = points["moment"] == "end"
        return points[(points["iteration"] == iteration) & (is_end == end)]

    def tables(self, iteration: int, end: bool = False) -> list[list[int]]:
        """The block table of each sequence."""
        rows = self.at(iteration, end)
        return [
            (table["start_slot"] // self.block_size).tolist()
            for _, table in rows.groupby(["request", "sequence"], sort=True)
        ]

    def filled(self, iteration: int) -> list[list[int]]:
        """How many slots of each block of each table are written."""
        grouped = self.at(iteration).groupby(["request", "sequence"], sort=True)
        return [table["num_written"].tolist() for _, table in grouped]

    def ref_counts(self, iteration: int, end: bool = False) -> dict[int, int]:
        """How many tables name each block that is held."""
        rows = self.at(iteration, end)
        counts = dict(zip(rows["start_slot"] // self.block_size, rows["num_holders"], strict=True))
        return {int(block): int(count) for block, count in counts.items()}


def walk_through(name: str, folder: Path, block_size: int = 1) -> WalkThrough:
    """Run an experiment of this repository in a folder, and read what its figure shows."""
    kvsim("run", ROOT / "experiments" / f"{name}.yaml", "--check", cwd=folder)
    results = folder / "results" / name
    points = pd.read_csv(results / "figures" / "block_tables.csv")
    return WalkThrough(points, pd.read_csv(results / "summary.csv").iloc[0], block_size)
