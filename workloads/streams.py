"""Independent random numbers for every purpose, from one seed."""

from __future__ import annotations

import numpy as np

# a purpose keeps its number for ever: what it draws depends on it
STREAMS = {
    "arrivals": 0,
    "lengths": 1,
    "prompt_tokens": 2,
    "output_tokens": 3,
    "turns": 4,
    "think": 5,
    "later_tokens": 6,
    "prefix_tokens": 7,
    "prefix_picks": 8,
    "num_samples": 9,
    "beam_width": 10,
    "beams": 11,
    "combined": 12,
}


def stream(seed: int, purpose: str, *part: int) -> np.random.Generator:
    """The random numbers of one seed for one purpose, or for a numbered part of it.

    Purposes do not share a stream, so another arrival process leaves the lengths as they were.
    """
    sequence = np.random.SeedSequence(seed, spawn_key=(STREAMS[purpose], *part))
    return np.random.Generator(np.random.PCG64(sequence))
