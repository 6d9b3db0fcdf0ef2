"""What prompts share: the best that any prefix cache could do with a trace.

An unbounded cache that has seen every earlier prompt serves the longest prefix that the next one
has in common with any of them. It is found in a radix tree over runs: the time is one step a
run, not a token or a block.
"""

from __future__ import annotations

import numpy as np

from workloads.content import Content, IntColumn, Run


class PrefixTree:
    """Prompts seen so far, as a radix tree whose edges are runs."""

    def __init__(self) -> None:
        self._root: _Children = {}

    def insert(self, runs: list[Run]) -> int:
        """Add a prompt; return how many of its first tokens an earlier one began with."""
        children, matched, is_seen = self._root, 0, True
        for source, first, count in runs:
            start, length = first, count
            while length:
                edge = children.get((source, start))
                if edge is None:
                    is_seen = False
                    edge = children[source, start] = _Edge(length, {})
                elif edge.length > length:
                    rest = _Edge(edge.length - length, edge.children)
                    edge.length, edge.children = length, {(source, start + length): rest}
                if is_seen:
                    matched += edge.length
                children = edge.children
                start, length = start + edge.length, length - edge.length
        return matched


class _Edge:
    """length tokens from the key's source and start on, and what follows them."""

    __slots__ = ("children", "length")

    def __init__(self, length: int, children: _Children) -> None:
        self.length = length
        self.children = children


_Children = dict[tuple[int, int], _Edge]


def prefix_hits(
    content: Content,
    namespaces: IntColumn | None = None,
    output_tokens: IntColumn | None = None,
) -> IntColumn:
    """Tokens of each prompt that an unbounded cache of all earlier requests would serve.

    In the order of the requests. Outputs are cached too if their lengths are given. Requests of
    different namespaces share nothing.
    """
    trees: dict[int, PrefixTree] = {}
    spaces = [0] * len(content) if namespaces is None else namespaces.tolist()
    hits = []
    for request, space in enumerate(spaces):
        tree = trees.setdefault(space, PrefixTree())
        prompt = content.runs(request)
        hits.append(tree.insert(prompt))
        if output_tokens is not None:
            tree.insert([*prompt, *content.output_runs(request, int(output_tokens[request]))])
    return np.array(hits, np.int64)


def block_hits(hits: IntColumn, prompt_tokens: IntColumn, block_size: int) -> IntColumn:
    """The same in blocks of block_size tokens, a partial last one counting as one if it is whole.

    Raises ValueError if hits end within a block that is not a prompt's last.
    """
    inside = (hits % block_size != 0) & (hits != prompt_tokens)
    if inside.any():
        row = int(np.flatnonzero(inside)[0])
        raise ValueError(f"request {row}: {hits[row]} tokens are no blocks of {block_size}")
    return -(-hits // block_size)
