"""Prompts put together from a front, the history of their conversation, and their own text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from workloads.content import Content, IntColumn, Run, own_output, own_prompt
from workloads.prefixes import Prefix
from workloads.turns import Plan

Cells = NDArray[np.int64]  # shape (requests, runs a request, 3); a run may have no token


def front_cells(
    parts: Sequence[Prefix], has_before: NDArray[np.bool_], seed: int, notes: Counter[str]
) -> Cells:
    """The fronts of prompts. has_before says which rows begin with an earlier prompt.

    Sources are numbered from 1 on, one for each text of each part.
    """
    first_source = 1
    columns = [np.empty((len(has_before), 0, 3), np.int64)]
    for number, part in enumerate(parts):
        picks, tokens = part.draw(len(has_before), seed, number, notes)
        length = tokens[picks]
        if not part.every_turn:
            length[has_before] = 0
        columns.append(np.stack([picks + first_source, np.zeros_like(picks), length], axis=2))
        first_source += part.size()
    return np.concatenate(columns, axis=1)


def with_own_text(front: Cells, own_tokens: IntColumn, text: IntColumn) -> Cells:
    """Fronts, each followed by the own text of the row that text names."""
    zeros = np.zeros_like(text)
    own = np.stack([own_prompt(text), zeros, own_tokens], axis=1)
    return np.concatenate([front, own[:, np.newaxis]], axis=1)


def separate(cells: Cells) -> Content:
    """Prompts that contain no other: their cells are all."""
    is_run = cells[:, :, 2] > 0
    return _content(is_run.sum(axis=1), cells[is_run])


def grown(
    cells: Cells, plan: Plan, output_tokens: IntColumn, limit: int | None, notes: Counter[str]
) -> Content:
    """Prompts that begin with their parent's prompt and output; limit keeps the last tokens."""
    prompts: list[list[Run]] = []
    outputs = output_tokens.tolist()
    for parent, fresh in zip(plan.parent.tolist(), _runs(cells), strict=True):
        before = (*prompts[parent], (own_output(parent), 0, outputs[parent])) if parent >= 0 else ()
        runs = [*before, *fresh]
        if limit is not None and sum(length for _, _, length in runs) > limit:
            notes["cut: beginnings of prompts beyond max_prompt_tokens"] += 1
            runs = last_tokens(runs, limit)
        prompts.append(runs)
    flat = np.array(list(chain.from_iterable(prompts)), np.int64).reshape(-1, 3)
    return _content(np.array([len(runs) for runs in prompts]), flat)


def _runs(cells: Cells) -> Iterator[list[Run]]:
    for row in cells:
        yield [(source, start, length) for source, start, length in row.tolist() if length]


def last_tokens(runs: list[Run], count: int) -> list[Run]:
    """The last count tokens of runs that have more."""
    kept: list[Run] = []
    for source, start, length in reversed(runs):
        used = min(length, count)
        kept.append((source, start + length - used, used))
        count -= used
        if not count:
            break
    return kept[::-1]


def _content(counts: IntColumn, runs: IntColumn) -> Content:
    source, start, length = (np.ascontiguousarray(column) for column in runs.T)
    first_run = np.concatenate([[0], np.cumsum(counts)])
    return Content(first_run, source, start, length, own_output(np.arange(len(counts))))
