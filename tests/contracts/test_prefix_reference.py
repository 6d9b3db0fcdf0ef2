"""The prefix cache against a naive one: lists and dictionaries, one token tuple a block."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from sim.allocators import Admission
from sim.allocators.checked import CheckedAllocator
from sim.allocators.prefix import Prefix
from sim.sequence import NUM_TOKENS, Limits, SequenceTable, new_requests
from workloads.content import Run, token_runs
from workloads.sequences import SequenceContent

MAX_MODEL_LEN = 24

Tokens = tuple[int, ...]


class Words(SequenceContent):
    """Sequences spelled out, token by token."""

    def __init__(self) -> None:
        super().__init__()
        self.words: Tokens = ()

    def runs(self, request: int, prompt_tokens: int, num_tokens: int) -> list[Run]:
        runs = token_runs(np.array(self.words[:num_tokens], np.int64))
        return [(source, start, length) for source, start, length in runs.tolist()]


@dataclass
class Sequence:
    """A sequence of the naive cache."""

    words: Tokens
    blocks: list[int] = field(default_factory=list)
    computed: int = 0


class NaiveCache:
    """The rules of the engine, in lists: every step looks at everything."""

    def __init__(self, num_blocks: int, size: int, free_order: str) -> None:
        self.size, self.free_order = size, free_order
        self.free = list(range(1, num_blocks))
        self.refs = [0] * num_blocks
        self.content: dict[int, Tokens] = {}  # what a block is findable by, in order of insertion

    def find(self, words: Tokens) -> list[int]:
        hits = []
        for end in range(self.size, len(words), self.size):
            same = [block for block, content in self.content.items() if content == words[:end]]
            if not same:
                break
            hits.append(same[0])
        return hits

    def admit(self, sequence: Sequence, num_tokens: int, count: int) -> bool:
        words = sequence.words[:num_tokens]
        hits = self.find(words)
        need = -(-num_tokens // self.size) - len(hits)
        if need + sum(block in self.free for block in hits) > len(self.free):
            return False
        for block in hits:
            if block in self.free:
                self.free.remove(block)
            self.refs[block] += 1
        sequence.blocks = hits
        sequence.computed = len(hits) * self.size
        return self.write(sequence, count)

    def write(self, sequence: Sequence, count: int) -> bool:
        end = sequence.computed + count
        need = -(-end // self.size) - len(sequence.blocks)
        if need > len(self.free):
            return False
        for _ in range(need):
            block = self.free.pop(0)
            self.content.pop(block, None)
            self.refs[block] = 1
            sequence.blocks.append(block)
        for i in range(sequence.computed // self.size, end // self.size):
            full = (i + 1) * self.size
            if full < len(sequence.words):  # the last token of all is never written
                self.content[sequence.blocks[i]] = sequence.words[:full]
        sequence.computed = end
        return True

    def release(self, sequence: Sequence) -> None:
        front = []
        for block in reversed(sequence.blocks):
            self.refs[block] -= 1
            if self.refs[block] == 0:
                prepends = self.free_order == "prepend_unhashed" and block not in self.content
                (front if prepends else self.free).append(block)
        self.free = front + self.free
        sequence.blocks, sequence.computed = [], 0


class PrefixMachine(RuleBasedStateMachine):
    """Random sequences over two letters, so that many begin alike."""

    @initialize(
        num_blocks=st.integers(3, 14),
        size=st.sampled_from([1, 2, 3]),
        free_order=st.sampled_from(["prepend_unhashed", "append"]),
    )
    def open_pool(self, num_blocks: int, size: int, free_order: str) -> None:
        self.allocator = CheckedAllocator(Prefix(size, free_order=free_order))
        self.sequences, self.content = SequenceTable(), Words()
        self.allocator.bind(num_blocks * size, self.sequences, MAX_MODEL_LEN)
        self.allocator.bind_content(self.content)
        self.naive = NaiveCache(num_blocks, size, free_order)
        self.held: dict[int, Sequence] = {}

    @rule(
        prompt=st.lists(st.integers(0, 1), min_size=1, max_size=16),
        output=st.lists(st.integers(0, 1), min_size=1, max_size=7),
        chunk=st.integers(1, 16),
    )
    def a_request_arrives(self, prompt: list[int], output: list[int], chunk: int) -> None:
        sequence = Sequence((*prompt, *output))
        lengths = [np.array([n]) for n in (0, len(prompt), len(output), len(output))]
        request = new_requests(*lengths[:3], Limits(MAX_MODEL_LEN, lengths[3]))
        self.content.words = sequence.words
        row = self.sequences.open(request, 0)
        found = self.naive.find(tuple(prompt))
        assert self.allocator.lookup(row) == len(found) * self.naive.size
        count = min(chunk, len(prompt) - self.allocator.lookup(row))
        verdict = self.allocator.admit(row, count)
        assert (verdict is Admission.OK) == self.naive.admit(sequence, len(prompt), count)
        if verdict is Admission.OK:
            self.held[row] = sequence
        else:
            self.sequences.close(row)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), count=st.integers(1, 6))
    def a_sequence_grows(self, data: st.DataObject, count: int) -> None:
        row = data.draw(st.sampled_from(sorted(self.held)))
        sequence = self.held[row]
        count = min(count, len(sequence.words) - 1 - sequence.computed)
        cells = self.sequences.rows[row]
        cells[NUM_TOKENS] = max(cells[NUM_TOKENS], sequence.computed + count)
        served = self.allocator.append(np.array([row]), np.array([count]))
        assert bool(served) == self.naive.write(sequence, count)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def a_sequence_ends(self, data: st.DataObject) -> None:
        row = data.draw(st.sampled_from(sorted(self.held)))
        self.allocator.free(np.array([row]))
        self.sequences.close(row)
        self.naive.release(self.held.pop(row))

    @invariant()
    def both_look_alike(self) -> None:
        if not hasattr(self, "naive"):
            return
        assert self.allocator.free_list().tolist() == self.naive.free
        assert self.allocator.ref_counts().tolist() == self.naive.refs
        assert self.allocator.findable()[:, 0].tolist() == sorted(self.naive.content)
        for row, sequence in self.held.items():
            assert self.allocator.block_table(row).tolist() == sequence.blocks


@pytest.mark.timeout(600)
def test_the_prefix_cache_does_what_a_naive_one_does() -> None:
    run_state_machine_as_test(
        PrefixMachine,
        settings=settings(
            max_examples=150,
            stateful_step_count=40,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
