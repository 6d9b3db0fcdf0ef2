"""Requests as long as English sentences of WMT16 and their German translations.

The PagedAttention paper's translation workload, whose prompts begin with a shared instruction and
examples: 80 tokens with one, 341 with five (section 6.4), which `prefix: [80]` puts in front. The
lengths are those of newstest2016, English to German (Helsinki-NLP/OPUS-MT-testsets, commit
ac0f19c0, whose text is for research; the table holds none), counted with the LLaMA tokenizer:
2,999 sentences, prompts of 27.32 tokens and outputs of 36.29 on average. The paper prints no
means.

Long sentences have long translations: the rank correlation is 0.956. The table has 50 parts by
prompt of 20 cells by output, each of about 3 sentences.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from workloads.joint import Joint


@dataclass(frozen=True)
class WMT16(Joint):
    """Sentences of WMT16 to translate from English into German, without the shared prefix.

    scale_to_paper must be false, as the paper prints no means.
    """

    kind: ClassVar[str] = "wmt16"
    file: ClassVar[str] = "wmt16_lengths.csv"
