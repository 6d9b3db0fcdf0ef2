"""An allocator on trial: a pool of KV slots, with a table and requests of its own."""

from __future__ import annotations

import numpy as np

from sim.allocators.base import Admission, Allocator
from sim.sequence import NUM_TOKENS, PROMPT_TOKENS, IntArray, Limits, SequenceTable, new_requests


class Trial:
    """An allocator bound to num_slots slots, and how many requests it has admitted."""

    def __init__(self, allocator: Allocator, num_slots: int, max_model_len: int) -> None:
        self.allocator = allocator
        self.sequences = SequenceTable()
        self.max_model_len = max_model_len
        self.num_admitted = 0
        allocator.bind(num_slots, self.sequences, max_model_len)

    @property
    def rows(self) -> IntArray:
        """The sequence table as it is now."""
        return self.sequences.rows

    @property
    def num_blocks(self) -> int:
        """Blocks of the pool, 0 for memory without blocks."""
        return self.allocator.num_blocks or 0

    def open(self, prompt: int, output: int, max_tokens: int | None = None) -> int:
        """The row of a new request; max_tokens is what the allocator may know of its output."""
        most = output if max_tokens is None else max_tokens
        arrival, prompts, outputs, limits = np.array([[0], [prompt], [output], [most]], np.int64)
        requests = new_requests(arrival, prompts, outputs, Limits(self.max_model_len, limits))
        return self.sequences.open(requests, 0)

    def admit(self, row: int) -> Admission:
        """Admit a row and write its prompt, if that fits."""
        answer = self.allocator.admit(row, self.rows.item(row, PROMPT_TOKENS))
        self.num_admitted += answer is Admission.OK
        return answer

    def write(self, rows: list[int]) -> bool:
        """Let each row write a token; whether all could."""
        self.rows[rows, NUM_TOKENS] += 1
        ones = np.ones(len(rows), np.int64)
        return self.allocator.append(np.array(rows, np.int64), ones) == len(rows)

    def end(self, rows: list[int]) -> None:
        """The rows' sequences end."""
        self.allocator.free(np.array(rows, np.int64))
        for row in rows:
            self.sequences.close(row)

    def fork(self, parents: list[int], ending: list[int]) -> list[int]:
        """Sequences that begin as copies of the parents; then the ending rows give up theirs."""
        children = [self.sequences.fork(parent) for parent in parents]
        both = np.array(parents, np.int64), np.array(children, np.int64)
        self.allocator.fork(*both, np.array(ending, np.int64))
        for row in ending:
            self.sequences.close(row)
        return children

    def table(self, row: int, block_size: int) -> list[int]:
        """The blocks that a row holds, in order."""
        ranges = self.allocator.held_ranges(row)
        return [int(start) // block_size for start, _ in ranges.tolist()]
