"""Copy-on-write and shared prompts, on the allocator itself."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np

from sim.allocators.base import Admission
from sim.allocators.paged_cow import PagedCow
from sim.claims.probes.geometry import model_named
from sim.hardware.hf_config import model_from_config
from sim.sequence import NUM_TOKENS, REQUEST, Limits, SequenceTable, new_requests
from workloads.content import ContentBuilder, own_prompt
from workloads.sequences import SequenceContent

GB = 1_000_000_000
LONGEST = 4096


class Sequences:
    """Sequences of one allocator that come, fork, get tokens and go."""

    def __init__(self, allocator: PagedCow, num_blocks: int) -> None:
        self.allocator, self.table = allocator, SequenceTable()
        allocator.bind(num_blocks * allocator.block_size, self.table, LONGEST)

    def enter(self, prompt: int, request: int = 0) -> int:
        """Admit a prompt; its row. Raises ValueError if it does not fit."""
        tokens = np.array([prompt]), np.array([LONGEST - prompt])
        requests = new_requests(np.zeros(1, np.int64), *tokens, Limits(LONGEST, tokens[1]))
        row = self.table.open(requests, 0)
        self.table.rows[row, REQUEST] = request
        verdict = self.allocator.admit(row, prompt - self.allocator.lookup(row))
        if verdict is not Admission.OK:
            raise ValueError(f"a prompt of {prompt} tokens does not fit: {verdict.name}")
        return row

    def fork(self, parent: int) -> int:
        """A new sequence that continues another; its row."""
        child = self.table.fork(parent)
        none = np.empty(0, np.int64)
        self.allocator.fork(np.array([parent]), np.array([child]), none)
        return child

    def write(self, row: int) -> None:
        """One token more. Raises ValueError if there is no room."""
        self.table.rows[row, NUM_TOKENS] += 1
        if self.allocator.append(np.array([row]), np.ones(1, np.int64)) != 1:
            raise ValueError("no block is free")

    def leave(self, row: int) -> None:
        """Free all that a sequence holds."""
        self.allocator.free(np.array([row]))
        self.table.close(row)

    def blocks(self, row: int) -> list[int]:
        """A sequence's block table."""
        held: list[int] = self.allocator.block_table(row).tolist()
        return held


def first_write_copies(prompt: int, block_size: int = 16) -> int:
    """Blocks that are no longer shared when B, forked from A after its prompt, writes a token.

    Raises ValueError if the allocator counts other copies than those that its tables show.
    """
    pool = Sequences(PagedCow(block_size, watermark=0.0), 64)
    a = pool.enter(prompt)
    b = pool.fork(a)
    shared = pool.blocks(a)
    pool.write(b)
    own = [new for old, new in zip(shared, pool.blocks(b), strict=False) if old != new]
    counted = pool.allocator.counters()["num_copied_blocks"]
    if counted != len(own) or pool.blocks(a) != shared:
        raise ValueError(f"{counted} copies are counted, {len(own)} blocks differ")
    return counted


def writes_in_place_when_alone(
    num_histories: int = 20, num_steps: int = 200, allocator: type[PagedCow] = PagedCow
) -> bool:
    """Whether in random histories of forks, tokens and ends no write goes to a block with others.

    A write into a block that its sequence holds alone must leave it there, one into a block that
    others hold must move it to a block with a count of 1 and leave theirs as they are. A full
    last block is not written: the token takes a new one.
    """
    return all(_writes_well(seed, num_steps, allocator) for seed in range(num_histories))


def _writes_well(seed: int, num_steps: int, allocator: type[PagedCow]) -> bool:
    rng = random.Random(seed)
    pool = Sequences(allocator(4, watermark=0.0), 512)
    rows = [pool.enter(rng.randint(1, 20))]
    for _ in range(num_steps):
        act = rng.random()
        if act < 0.1 and len(rows) < 12:
            rows.append(pool.fork(rng.choice(rows)))
        elif act < 0.15 and len(rows) > 1:
            pool.leave(rows.pop(rng.randrange(len(rows))))
        elif not _writes_one_well(pool, rng.choice(rows), rows):
            return False
    return True


def _writes_one_well(pool: Sequences, row: int, rows: list[int]) -> bool:
    others = {other: pool.blocks(other) for other in rows if other != row}
    before = pool.blocks(row)
    position = pool.table.rows.item(row, NUM_TOKENS) // pool.allocator.block_size
    holders = 1 + sum(before[-1] in table for table in others.values())
    pool.write(row)
    after = pool.blocks(row)
    is_new = position == len(before)
    stays = not is_new and holders == 1
    return (
        all(pool.blocks(other) == table for other, table in others.items())
        and pool.allocator.ref_counts()[after[position]] == 1
        and (is_new or (after[position] == before[position]) == stays)
        and after[:position] == before[:position]
    )


def system_prompt_spares(
    prompt: int, users: int, model: str | Mapping[str, Any], own: int = 16
) -> dict[str, float]:
    """Tokens and GB (1e9 bytes) that a system prompt spares which all users have in memory.

    Every user has own tokens behind it. tokens are what the block tables of all users hold less
    the slots that are taken. model is a preset, or the keys of a config.json.
    """
    allocator = PagedCow(16, watermark=0.0, shared_prefix_tokens=prompt)
    pool = Sequences(allocator, users * -(-(prompt + own) // 16))
    builder = ContentBuilder()
    for user in range(users):
        builder.add([(1, 0, prompt), (own_prompt(user), 0, own)], prompt + own)
    allocator.bind_content(SequenceContent(builder.build()))
    tables = [pool.blocks(pool.enter(prompt + own, user)) for user in range(users)]
    held = {block for table in tables for block in table}
    spared = (sum(map(len, tables)) - len(held)) * allocator.block_size
    chosen = model_named(model) if isinstance(model, str) else model_from_config("", model, "")
    return {"tokens": spared, "gb": spared * chosen.kv_bytes_per_token / GB}
