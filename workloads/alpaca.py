"""Requests as long as the instructions of Stanford Alpaca and their answers.

The PagedAttention paper's Alpaca workload: an instruction with its input as the prompt, without a
template around it, and the answer as the output. The lengths are those of the first 3,750 rows of
a subset of 5,000 (data/alpaca_5000.json of tatsu-lab/stanford_alpaca, commit 5e69c500, whose text
is CC-BY-NC-4.0; the table holds none), counted with the OPT tokenizer, one start token a prompt.
One row with an empty answer is left out: 3,749 requests, prompts of 18.96 tokens and outputs of
58.74 on average. The paper (figure 11) prints 19.31 and 58.45, 1.9 % more and 0.5 % less.

Long instructions have short answers: the rank correlation is -0.256. The table is small enough
for each request to be a cell of its own, so nothing is lost within cells.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from workloads.joint import Joint


@dataclass(frozen=True)
class Alpaca(Joint):
    """Instructions and answers of Stanford Alpaca.

    scale_to_paper multiplies prompts and outputs so that their means are the 19.31 and 58.45
    tokens which the PagedAttention paper prints: a fit, no data.
    """

    kind: ClassVar[str] = "alpaca"
    file: ClassVar[str] = "alpaca_lengths.csv"
    paper_means: ClassVar[tuple[float, float]] = (19.31, 58.45)
