"""Requests as long as the first turns of ShareGPT conversations.

The PagedAttention paper's ShareGPT workload: the first message of a conversation and the first
reply, where both together have at most 2048 tokens. The lengths come from a table of quantiles,
data/sharegpt_lengths.csv, which derive_sharegpt makes from the first turns of ShareGPT V3 counted
with the LLaMA tokenizer, start token included (datasets/traces/sharegpt.csv of efeslab/Nanoflow,
Apache-2.0): 55,857 requests, prompts of 154.6 tokens and outputs of 317.9 on average. (The paper
prints 161.3 and 338.0 for the OPT tokenizer; 7,903 first turns counted with that one have 156.2
and 302.6, so the larger sample is also the nearer one.)

The table. Requests are sorted by prompt and split into 128 parts of equal size, each part is
sorted by output and split into 32 cells of equal size, and a cell stands for its about 14
requests by their mean prompt and mean output. Any cell is as likely as any other. So both means
are those of the source, the outputs that go with a prompt are those of prompts of that length,
and as both means of a cell add up to at most 2048, so does every request. What the means within a
cell lose is 0.4 % of the standard deviation, and the last tenth of a percent of each tail.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import ClassVar

import numpy as np

from workloads import checks
from workloads.generator import MAX_REQUESTS, Generator, stream
from workloads.trace import FloatColumn, Trace

LENGTHS = Path(__file__).parent / "data" / "sharegpt_lengths.csv"
MAX_TOTAL_TOKENS = 2048


@dataclass(frozen=True)
class ShareGPT(Generator):
    """First turns of ShareGPT conversations, up to 2048 tokens in all: num_requests, arrivals.

    The first requests of a longer list are those of a shorter one with the same seed.
    """

    num_requests: int
    arrivals: Mapping[str, object]

    kind: ClassVar[str] = "sharegpt"

    def __post_init__(self) -> None:
        checks.whole("num_requests", self.num_requests, 1, MAX_REQUESTS)
        self.process()

    def load(self, seed: int) -> Trace:
        """Draw the requests."""
        arrival_ns = self.arrival_times_ns(self.num_requests, seed)
        draws = stream(seed, "lengths").random((self.num_requests, 3))
        cells = quantile_table()
        means = cells[(draws[:, 0] * len(cells)).astype(np.int64)]
        # up or down at random, so that a mean of 34.2 tokens gives 34.2 tokens on average
        prompt, output = np.floor(means + draws[:, 1:]).astype(np.int64).T
        np.minimum(output, MAX_TOTAL_TOKENS - prompt, out=output)
        return Trace(arrival_ns, prompt, output, source=self.kind)


@cache
def quantile_table() -> FloatColumn:
    """Mean prompt and mean output of each cell, in tokens: shape (cells, 2)."""
    table: FloatColumn = np.loadtxt(LENGTHS, delimiter=",", skiprows=1)
    table.setflags(write=False)
    return table
