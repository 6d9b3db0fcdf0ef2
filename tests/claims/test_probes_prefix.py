"""vLLM's documented prefix cache, and caches with other rules."""

from __future__ import annotations

import pytest

from sim.allocators.cached_blocks import KEY
from sim.allocators.prefix import Prefix
from sim.claims.probes import prefix
from sim.sequence import IntArray


def test_the_documentations_example_is_that_of_its_releases() -> None:
    found = prefix.documented_example()
    assert found["free_queue"] == [7, 8, 9, 4, 3, 2, 6, 5, 1, 0]
    newer = prefix.documented_example("prepend_unhashed")
    assert newer["free_queue"] == [6, 4, 7, 8, 9, 3, 2, 5, 1, 0]
    assert found["hit_tokens_req1"] == newer["hit_tokens_req1"] == 8


def test_an_equal_block_is_kept_twice_and_whose_it_is_hangs_on_the_free_queue() -> None:
    found = prefix.duplicated_blocks(6, 3, 4)
    assert found == {"req1": [0, 1, 2], "req2_first_two": [0, 3]}
    newer = prefix.duplicated_blocks(6, 3, 4, "prepend_unhashed")
    assert newer["req2_first_two"] == [0, 2]
    assert prefix.duplicated_blocks(9, 3, 4)["req2_first_two"] == [0, 1]


class GivesBackInOrder(Prefix):
    """Frees a sequence's blocks first block first."""

    def free(self, rows: IntArray) -> None:
        for row in rows.tolist():
            table = self._table[row]
            held = len(self.block_table(row))
            table[:held] = table[:held][::-1].copy()
        super().free(rows)


class TakesTheTail(Prefix):
    """Says that its free queue begins at the other end."""

    def free_list(self) -> IntArray:
        return super().free_list()[::-1]

    def check(self, rows: IntArray) -> None:
        """Nothing: what it says of its queue is not so."""


@pytest.mark.parametrize(
    ("kind", "broken"),
    [
        (Prefix, set()),
        (GivesBackInOrder, {"freed_to_tail_reversed"}),
        (TakesTheTail, {"freed_to_tail_reversed", "taken_from_head"}),
    ],
)
def test_a_cache_that_breaks_a_rule_is_seen(
    monkeypatch: pytest.MonkeyPatch, kind: type[Prefix], broken: set[str]
) -> None:
    monkeypatch.setattr(prefix, "Prefix", kind)
    found = prefix.cache_rules(seeds=2)
    assert {name for name, holds in found.items() if not holds} == broken


def test_only_blocks_that_are_full_may_be_found() -> None:
    pool, memory = prefix._pool(20, 4, "append")
    pool.know([[(1, 0, 10)]], [4])
    row = pool.enter_known(0)
    assert prefix._finds_only_full(pool, memory)
    memory._blocks[memory.block_table(row)[-1], KEY] = 0  # as if it were full
    assert not prefix._finds_only_full(pool, memory)
