"""Requests as long as the first turns of ShareGPT conversations.

The PagedAttention paper's ShareGPT workload: the first message of a conversation and the first
reply, where both together have at most 2048 tokens. The lengths are those of the first turns of
ShareGPT V3 counted with the LLaMA tokenizer, start token included (datasets/traces/sharegpt.csv
of efeslab/Nanoflow, Apache-2.0): 55,857 requests, prompts of 154.6 tokens and outputs of 317.9 on
average. The paper (figure 11) prints 161.31 and 337.99 for the OPT tokenizer, 4.3 % and 6.3 %
more. (7,903 first turns counted with that one have 156.2 and 302.6, so the larger sample is also
the nearer one.)

The table has 128 parts by prompt of 32 cells by output, each of about 14 requests. As both means
of a cell add up to at most 2048, so does every request. What the means within a cell lose is
0.4 % of the standard deviation, and the last tenth of a percent of each tail.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from workloads.joint import Joint


@dataclass(frozen=True)
class ShareGPT(Joint):
    """First turns of ShareGPT conversations, up to 2048 tokens in all.

    scale_to_paper multiplies prompts and outputs so that their means are the 161.31 and 337.99
    tokens which the PagedAttention paper prints: a fit, no data. A request cut to 2048 tokens by
    it is counted.
    """

    kind: ClassVar[str] = "sharegpt"
    file: ClassVar[str] = "sharegpt_lengths.csv"
    paper_means: ClassVar[tuple[float, float]] = (161.31, 337.99)
