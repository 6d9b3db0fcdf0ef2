"""Prompts as lists of chained block ids: the form in which traces are published.

Equal ids mean prompts that are equal up to the end of that block. Runs know more than that, so
what two prompts share within a block is lost.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator

import numpy as np

from workloads.blockkeys import BlockKeys
from workloads.content import Content, IntColumn, Run
from workloads.sharing import prefix_hits


def block_ids(
    content: Content, block_size: int, namespaces: IntColumn | None = None
) -> Iterator[list[int]]:
    """The ids of each prompt's blocks, counted from 0 in order of appearance.

    A block's id stands for it, all blocks before it, and the namespace. The last block may be
    partial; it has the id of an earlier one only if that is the same and partial too.
    """
    keys, ids = BlockKeys(block_size), dict[Hashable, int]()
    spaces = [0] * len(content) if namespaces is None else namespaces.tolist()
    for request, space in enumerate(spaces):
        runs, root = content.runs(request), keys.root(space)
        blocks: list[Hashable] = list(keys.extend(root, runs))
        if rest := _runs_from(runs, len(blocks) * block_size):
            blocks.append((blocks[-1] if blocks else root, *rest))
        yield [ids.setdefault(block, len(ids)) for block in blocks]


def _runs_from(runs: list[Run], offset: int) -> list[Run]:
    """What follows the first offset tokens."""
    rest = []
    for source, start, length in runs:
        skipped = min(offset, length)
        offset -= skipped
        if length > skipped:
            rest.append((source, start + skipped, length - skipped))
    return rest


def ids_of_nothing_shared(prompt_tokens: IntColumn, block_size: int) -> Iterator[list[int]]:
    """Ids of blocks of which every one is new."""
    ends = np.cumsum(-(-prompt_tokens // block_size)).tolist()
    return (list(range(first, end)) for first, end in itertools.pairwise([0, *ends]))


def hits_lost(content: Content, block_size: int, namespaces: IntColumn | None = None) -> IntColumn:
    """Tokens of each prompt that an unbounded cache would serve, but not from block ids.

    A partial block counts as shared if an earlier prompt has the same one.
    """
    hits = prefix_hits(content, namespaces)
    seen: set[int] = set()
    lost = hits.copy()
    lengths = content.prompt_tokens().tolist()
    for request, ids in enumerate(block_ids(content, block_size, namespaces)):
        known = next((i for i, block in enumerate(ids) if block not in seen), len(ids))
        lost[request] -= min(known * block_size, lengths[request])
        seen.update(ids)
    return lost
