"""What a trace asks of a prefix cache: the blocks of each request, in order of arrival."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from sim.jit import compiled
from workloads.blockkeys import BlockKeys
from workloads.content import Content
from workloads.trace import IntColumn, Trace, TraceError

NEVER = 2**40  # the request that next uses a block that none does


@dataclass(frozen=True, eq=False)
class References:
    """The full blocks of all requests, one after the other.

    blocks[first[r] : first[r + 1]] are those of request r, numbered in order of first appearance:
    num_asked[r] of its prompt, which it looks for, and then those that its output fills.
    parent[b] is the block before block b, -1 for a first one. prompt_tokens[r] counts also what
    fills no block. turns[r] is its turn within its session, from 0 on, or -1.
    """

    block_size: int
    first: IntColumn
    blocks: IntColumn
    num_asked: IntColumn
    parent: IntColumn
    prompt_tokens: IntColumn
    turns: IntColumn

    @property
    def num_blocks(self) -> int:
        """Different blocks: what an unbounded cache holds in the end."""
        return len(self.parent)

    @cached_property
    def next_use(self) -> IntColumn:
        """For each reference the request that asks for the block next; NEVER without one.

        A block that is written again before it is asked for need not be kept until then.
        """
        found = np.empty(len(self.blocks), np.int64)
        coming = np.full(self.num_blocks, NEVER)
        _fill_next_use(self.first, self.blocks, self.num_asked, coming, found)
        return found

    @cached_property
    def prompt_blocks(self) -> tuple[IntColumn, IntColumn]:
        """The blocks of all prompts, and the request of each."""
        requests = np.repeat(np.arange(len(self.num_asked)), np.diff(self.first))
        is_asked = np.arange(len(self.blocks)) - self.first[requests] < self.num_asked[requests]
        return self.blocks[is_asked], requests[is_asked]

    def of(self, requests: IntColumn) -> References:
        """The references of some of the requests."""
        counts = np.diff(self.first)[requests]
        pieces = [self.blocks[self.first[r] : self.first[r + 1]] for r in requests]
        return replace(
            self,
            first=np.concatenate([[0], np.cumsum(counts)]),
            blocks=np.concatenate([np.empty(0, np.int64), *pieces]),
            num_asked=self.num_asked[requests],
            prompt_tokens=self.prompt_tokens[requests],
            turns=self.turns[requests],
        )

    def without_outputs(self) -> References:
        """The references of prompts alone: outputs write nothing."""
        first = np.concatenate([[0], np.cumsum(self.num_asked)])
        return replace(self, first=first, blocks=self.prompt_blocks[0])


@compiled
def _fill_next_use(
    first: IntColumn, blocks: IntColumn, num_asked: IntColumn, coming: IntColumn, found: IntColumn
) -> None:
    for request in range(len(num_asked) - 1, -1, -1):
        for i in range(first[request], first[request + 1]):
            found[i] = coming[blocks[i]]
            is_asked = i - first[request] < num_asked[request]
            coming[blocks[i]] = request if is_asked else NEVER


def references(trace: Trace, block_size: int) -> References:
    """The references of a trace in blocks of block_size tokens.

    Outputs are written, but for the KV of their last token, which no engine computes.
    Raises TraceError if the trace does not say what prompts share.
    """
    if trace.content is None:
        raise TraceError(f"{trace.source}: does not say what prompts share (no prefix identity)")
    keys, counts = _keys(trace, trace.content, block_size)
    appeared, blocks = np.unique(keys, return_inverse=True)
    blocks = blocks.astype(np.int64)
    first = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    before = np.concatenate([[-1], blocks[:-1]])[: len(blocks)]
    before[first[:-1][counts > 0]] = -1
    parent = np.full(len(appeared), -1)
    parent[blocks] = before
    return References(
        block_size,
        first,
        blocks,
        trace.prompt_tokens // block_size,
        parent,
        trace.prompt_tokens,
        _turns(trace),
    )


def _keys(trace: Trace, content: Content, block_size: int) -> tuple[IntColumn, IntColumn]:
    """The keys of all requests' blocks, and how many each request has."""
    keys = BlockKeys(block_size)
    pieces: list[IntColumn] = []
    counts = np.zeros(len(trace), np.int64)
    spaces = [0] * len(trace) if trace.namespace is None else trace.namespace.tolist()
    for request, space in enumerate(spaces):
        written = int(trace.output_tokens[request]) - 1
        runs = [*content.runs(request), *content.output_runs(request, written)]
        for piece in keys.stretches(keys.root(space), runs):
            pieces.append(np.arange(piece.start, piece.stop))
            counts[request] += len(piece)
    return np.concatenate([np.empty(0, np.int64), *pieces]), counts


def _turns(trace: Trace) -> IntColumn:
    turns = np.full(len(trace), -1)
    if trace.session is not None:
        so_far: dict[int, int] = {}
        for request, session in enumerate(trace.session.tolist()):
            turns[request] = so_far.get(session, 0)
            so_far[session] = int(turns[request]) + 1
    return turns
