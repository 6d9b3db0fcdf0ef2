"""Memory in a radix tree against a trie of tokens: who finds and holds what, and what may go.

The trie knows nothing of nodes, times or locks. So it says less than naive_tree does of what is
evicted next, and as much of what must never happen.
"""

from collections.abc import Sequence

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

from block_trie import Trie
from sim.allocators import ALLOCATORS, Admission
from sim.allocators.checked import CheckedAllocator
from sim.allocators.radix import Radix
from sim.sequence import FINAL_TOKENS, NUM_COMPUTED, NUM_TOKENS, Limits, SequenceTable, new_requests
from workloads.content import Run, token_runs
from workloads.sequences import SequenceContent

LONGEST, OUTPUT, MOST = 60, 4, 60

Words = tuple[int, ...]

words_of = st.lists(st.integers(0, 1), min_size=1, max_size=14).map(tuple)


class Texts(SequenceContent):
    """Prompts in tokens, and outputs that others may ask for as well."""

    def __init__(self) -> None:
        super().__init__()
        self.prompts: list[Words] = []

    def words(self, request: int) -> Words:
        """The prompt and its output, the same for the same prompt."""
        prompt = self.prompts[request]
        return (*prompt, *((sum(prompt) + i) % 2 for i in range(OUTPUT)))

    def runs(self, request: int, prompt_tokens: int, num_tokens: int) -> list[Run]:
        found = token_runs(np.array(self.words(request)[:num_tokens], np.int64)).tolist()
        return [(source, start, n) for source, start, n in found]


class Memory(RuleBasedStateMachine):
    """Sequences come, decode, end or lose their memory, in a pool that is often too small."""

    kind: str

    @initialize(size=st.sampled_from([1, 1, 3]), num_blocks=st.sampled_from([9, 20, 60]))
    def open_pool(self, size: int, num_blocks: int) -> None:
        self.size, self.num_blocks = size, num_blocks
        inner = ALLOCATORS[self.kind](block_size=size)
        assert isinstance(inner, Radix)
        self.inner, self.memory = inner, CheckedAllocator(inner)
        self.sequences, self.texts, self.trie = SequenceTable(), Texts(), Trie()
        self.rows: dict[int, int] = {}  # and the request of each
        self.memory.bind(num_blocks * size, self.sequences, LONGEST)
        self.memory.bind_content(self.texts)

    def pieces(self, words: Words) -> list[Words]:
        size = self.size
        return [words[i : i + size] for i in range(0, len(words) - size + 1, size)]

    def written(self, row: int) -> list[Words]:
        """What a row has written of its content, in whole blocks."""
        computed = self.sequences.rows.item(row, NUM_COMPUTED)
        return self.pieces(self.texts.words(self.rows[row])[:computed])

    def free(self) -> set[int]:
        return set(self.inner.free_blocks().tolist())

    def own(self) -> set[int]:
        """Blocks that rows hold beside the tree's."""
        tables = [(row, self.inner.block_table(row).tolist()) for row in self.rows]
        return {
            block
            for row, table in tables
            for block in table[self.inner.protected_len(row) // self.size :]
        }

    def forget(self, elsewhere: Sequence[int] = ()) -> None:
        """What is free again, or somebody's own, or stands elsewhere now, has been evicted."""
        given_away = self.free() | self.own() | set(elsewhere)
        self.trie.remove(given_away.intersection(self.trie.blocks()))

    @precondition(lambda self: len(self.texts.prompts) < MOST)
    @rule(words=words_of, num_outputs=st.integers(1, OUTPUT))
    def somebody_comes(self, words: Words, num_outputs: int) -> None:
        request = len(self.texts.prompts)
        self.texts.prompts.append(words)
        output = np.array([num_outputs])
        limits = Limits(LONGEST, output)
        table = new_requests(np.zeros(1, np.int64), np.array([len(words)]), output, limits)
        row = self.sequences.open(np.repeat(table, request + 1, axis=0), request)
        known = self.trie.find(self.pieces(words[:-1]))
        hit = self.memory.lookup(row)
        assert hit == len(known) * self.size
        if self.memory.admit(row, len(words) - hit) is not Admission.OK:
            self.sequences.close(row)
            return
        self.rows[row] = request
        blocks = self.inner.block_table(row).tolist()
        assert blocks[: len(known)] == known
        whole = self.pieces(words)
        before = self.trie.find(whole)
        self.forget([block for i, block in enumerate(blocks) if before[i : i + 1] != [block]])
        self.trie.put(whole, blocks[: len(whole)])

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def somebody_decodes(self, data: st.DataObject) -> None:
        row = data.draw(st.sampled_from([*self.rows]))
        cells = self.sequences.rows[row]
        if cells.item(NUM_TOKENS) + 1 >= cells.item(FINAL_TOKENS):
            return
        cells[NUM_TOKENS] += 1
        if self.memory.append(np.array([row]), np.array([1])) == 0:
            cells[NUM_TOKENS] -= 1
            assert not self.free()
            assert self.inner.evictable_size == 0
        self.forget()

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def somebody_leaves(self, data: st.DataObject) -> None:
        """For good, or because its memory is taken from it; then the tree gets nothing."""
        row = data.draw(st.sampled_from([*self.rows]))
        written, blocks = self.written(row), self.inner.block_table(row).tolist()
        cells = self.sequences.rows[row]
        is_done = cells.item(NUM_COMPUTED) + 1 == cells.item(FINAL_TOKENS)
        cells[NUM_TOKENS] += is_done  # the last token, which is never written
        self.memory.free(np.array([row]))
        self.sequences.close(row)
        del self.rows[row]
        if is_done:
            self.trie.put(written, blocks[: len(written)])

    @rule(num_tokens=st.integers(1, 12))
    def memory_is_short(self, num_tokens: int) -> None:
        wanted = min(num_tokens, self.inner.evictable_size)
        assert self.inner.evict(num_tokens) >= wanted
        self.forget()

    @invariant()
    def the_tree_holds_what_the_trie_does(self) -> None:
        """And so everything that a row has in the tree: an eviction may not take it."""
        if not hasattr(self, "trie"):
            return
        everywhere = set(range(1, self.num_blocks + 1))
        blocks = sorted(self.trie.blocks())
        assert blocks == sorted(everywhere - self.free() - self.own())
        for row in self.rows:
            in_tree = self.inner.protected_len(row) // self.size
            table = self.inner.block_table(row).tolist()[:in_tree]
            assert self.trie.find(self.written(row)[:in_tree]) == table


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["mini_sglang", "radix"])
def test_a_radix_cache_finds_and_keeps_what_a_trie_of_tokens_does(kind: str) -> None:
    machine = type(f"Memory_{kind}", (Memory,), {"kind": kind})
    run_state_machine_as_test(
        machine,
        settings=settings(
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
            max_examples=150,
            stateful_step_count=40,
        ),
    )
