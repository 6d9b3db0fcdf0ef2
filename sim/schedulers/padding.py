"""Prompts that are computed together and padded to the longest of them."""

from __future__ import annotations


class PaddedBatch:
    """The prompts of one iteration, as vLLM v0 (0.2.7) counts them."""

    def __init__(self) -> None:
        self._num_seqs = 0
        self._num_tokens = 0
        self._longest = 0

    def padded_with(self, num_seqs: int, length: int) -> int:
        """Tokens, padding included, if num_seqs prompts of this length join."""
        return (self._num_seqs + num_seqs) * max(self._longest, length)

    def paddings_with(self, num_seqs: int, length: int) -> int:
        """Tokens that are padding if num_seqs prompts of this length join."""
        return self.padded_with(num_seqs, length) - self._num_tokens - num_seqs * length

    @property
    def is_empty(self) -> bool:
        return self._num_seqs == 0

    def add(self, num_seqs: int, length: int) -> None:
        self._num_seqs += num_seqs
        self._num_tokens += num_seqs * length
        self._longest = max(self._longest, length)
