"""Requests with prompts and outputs drawn from distributions, each independently of the other.

Real prompts and outputs are not independent: sharegpt and alpaca draw both together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from workloads import checks
from workloads.distributions import LENGTH_DISTRIBUTIONS, LengthDistribution
from workloads.generator import MAX_REQUESTS
from workloads.sharing_generator import SharingGenerator
from workloads.streams import stream
from workloads.trace import Trace


@dataclass(frozen=True)
class Synthetic(SharingGenerator):
    """Requests from distributions: num_requests, arrivals, prompt_tokens, output_tokens.

    num_requests is how many there are.
    arrivals are {kind: …}, an arrival process (kvsim list arrivals).
    prompt_tokens and output_tokens are {kind: …}, a distribution (kvsim list lengths), or a bare
    number of tokens for all.
    Arrivals, prompts and outputs draw from streams of their own: changing one leaves the others
    as they were, and the first requests of a longer list are those of a shorter one.
    """

    num_requests: int
    arrivals: Mapping[str, object]
    prompt_tokens: int | Mapping[str, object]
    output_tokens: int | Mapping[str, object]

    kind: ClassVar[str] = "synthetic"
    nested: ClassVar[Mapping[str, Mapping[str, type]]] = {
        **SharingGenerator.nested,
        "prompt_tokens": LENGTH_DISTRIBUTIONS,
        "output_tokens": LENGTH_DISTRIBUTIONS,
    }

    def __post_init__(self) -> None:
        checks.whole("num_requests", self.num_requests, 1, MAX_REQUESTS)
        self.check()
        self.lengths()

    def lengths(self) -> dict[str, LengthDistribution]:
        """The distributions of both lengths. Raises ValueError "<length>.<parameter>: …"."""
        given = {"prompt_tokens": self.prompt_tokens, "output_tokens": self.output_tokens}
        return {
            name: checks.build(name, spec, LENGTH_DISTRIBUTIONS) for name, spec in given.items()
        }

    def load(self, seed: int) -> Trace:
        """Draw the requests. Raises TraceError if a table of quantiles cannot be used."""
        notes: Counter[str] = Counter()
        prompt, output = (
            distribution.draw(name, self.num_requests, stream(seed, name), notes)
            for name, distribution in self.lengths().items()
        )
        return self.trace(prompt, output, seed, notes)
