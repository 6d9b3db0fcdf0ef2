"""Requests whose prompt and output are drawn together, from a table of real ones.

A table has cells of equal weight, each with a mean prompt and a mean output in tokens; any cell
is as likely as any other. derive_joint makes one from a list of requests: sorted by prompt and
split into parts of equal size, each part sorted by output and split into cells of equal size. So
both means are those of the source, and the outputs that go with a prompt are those of prompts of
that length.
"""

# annotations stay objects here, as in tracefile: subclasses in other modules inherit these
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from workloads import checks
from workloads.generator import MAX_REQUESTS
from workloads.sharing_generator import SharingGenerator
from workloads.streams import stream
from workloads.trace import FloatColumn, Trace

DATA = Path(__file__).parent / "data"
MAX_TOTAL_TOKENS = 2048  # prompt and output of one request: what the paper's models can hold
ROUNDS = 30  # of finding the factors of a scaled table; each leaves a tenth of the error or less


@dataclass(frozen=True)
class Joint(SharingGenerator):
    """Draws from a joint table. Subclasses name their file, and the means the paper prints, if any.

    num_requests is how many there are.
    arrivals are {kind: …}, an arrival process (kvsim list arrivals).
    The first requests of a longer list are those of a shorter one with the same seed.
    """

    num_requests: int
    arrivals: Mapping[str, object]
    scale_to_paper: bool = False

    file: ClassVar[str]
    paper_means: ClassVar[tuple[float, float] | None] = None

    def __post_init__(self) -> None:
        checks.whole("num_requests", self.num_requests, 1, MAX_REQUESTS)
        if not isinstance(self.scale_to_paper, bool):
            raise ValueError(f"scale_to_paper: must be true or false, got {self.scale_to_paper!r}")
        if self.scale_to_paper and self.paper_means is None:
            raise ValueError("scale_to_paper: must be false, as the paper prints no means")
        self.check()

    def load(self, seed: int) -> Trace:
        """Draw the requests."""
        draws = stream(seed, "lengths").random((self.num_requests, 3))
        cells = joint_table(self.file)
        rows = (draws[:, 0] * len(cells)).astype(np.int64)
        notes: Counter[str] = Counter()
        if self.scale_to_paper and self.paper_means is not None:
            cells, is_cut = scaled(cells, self.paper_means)
            notes["scaled: to the means of the paper"] = self.num_requests
            notes[f"clipped: {MAX_TOTAL_TOKENS} tokens after scaling"] = int(is_cut[rows].sum())
        # up or down at random, so that a mean of 34.2 tokens gives 34.2 tokens on average
        prompt = (cells[rows, 0] + draws[:, 1]).astype(np.int64)
        output = (cells[rows, 1] + draws[:, 2]).astype(np.int64)
        del draws, rows  # there may be ten million requests
        room = MAX_TOTAL_TOKENS - prompt
        notes[f"clipped: {MAX_TOTAL_TOKENS} tokens after rounding"] = int((output > room).sum())
        return self.trace(prompt, np.minimum(output, room, out=output), seed, notes)


@cache
def joint_table(file: str) -> FloatColumn:
    """Mean prompt and mean output of each cell, in tokens: shape (cells, 2)."""
    table: FloatColumn = np.loadtxt(DATA / file, delimiter=",", skiprows=1)
    table.setflags(write=False)
    return table


def scaled(cells: FloatColumn, means: tuple[float, float]) -> tuple[FloatColumn, NDArray[Any]]:
    """The cells with all prompts, and all outputs, times a factor that gives them these means.

    No cell gets more than MAX_TOTAL_TOKENS or less than one token of each kind; the factors make
    up for what that changes. Also says which cells were cut to MAX_TOTAL_TOKENS.
    """
    factors = np.ones(2)
    result = cells
    for _ in range(ROUNDS):
        factors *= np.array(means) / result.mean(axis=0)
        stretched = np.maximum(cells * factors, 1)
        prompt = np.minimum(stretched[:, 0], MAX_TOTAL_TOKENS - 1)
        output = np.minimum(stretched[:, 1], MAX_TOTAL_TOKENS - prompt)
        result = np.column_stack([prompt, output])
    return result, np.any(result < stretched, axis=1)
