"""vAttention's pages: tokens of one, places of a batch that keep them, and who gives them back."""

from typing import Any

import numpy as np
import pytest

from sim.allocators import Admission
from sim.allocators.vattention import VAttention
from sim.costs.linear import Constant
from sim.engine.simulation import Memory, Run, simulate
from sim.hardware.by_name import MODELS
from sim.schedulers import Fcfs
from sim.sequence import IntArray, Limits, SequenceTable, new_requests

LLAMA_3_8B = {"kv_bytes_per_token": 2 * 32 * 8 * 128 * 2, "layers": 32}
YI_6B = {"kv_bytes_per_token": 2 * 32 * 4 * 128 * 2, "layers": 32}
YI_34B_ON_TWO = {"kv_bytes_per_token": 2 * 60 * 4 * 128 * 2, "layers": 60}


def request_of(prompt: int, output: int = 64) -> IntArray:
    zero, prompts, outputs = (np.array([n], np.int64) for n in (0, prompt, output))
    return new_requests(zero, prompts, outputs, Limits(1000, outputs))


class Pool:
    """Eight pages of 4 tokens, nothing kept free, nothing mapped ahead."""

    def __init__(self, **knobs: Any) -> None:
        self.memory = VAttention(**{"block_size": 4, "watermark": 0.0, "map_ahead": False} | knobs)
        self.sequences = SequenceTable()
        self.memory.bind(32, self.sequences, 1000)

    def put(self, prompt: int) -> int:
        row = self.sequences.open(request_of(prompt), 0)
        assert self.memory.admit(row, prompt) == Admission.OK
        return row

    def write(self, row: int, count: int) -> None:
        assert self.memory.append(np.array([row]), np.array([count])) == 1

    def drop(self, *rows: int) -> None:
        self.memory.free(np.array(rows))
        for row in rows:
            self.sequences.close(row)

    def pages(self, row: int) -> list[int]:
        return self.memory.block_table(row).tolist()

    def counts(self) -> tuple[int, int, int]:
        """Pages taken, mapped and unmapped so far."""
        found = self.memory.counters()
        names = ("num_pages_taken", "num_pages_mapped", "num_pages_unmapped")
        taken, mapped, unmapped = (found[name] for name in names)
        return taken, mapped, unmapped


@pytest.mark.parametrize(
    ("model", "tokens"),
    [
        (LLAMA_3_8B, [32, 64, 128, 1024]),
        (YI_6B, [64, 128, 256, 2048]),
        (YI_34B_ON_TWO, [64, 128, 256, 2048]),
    ],
)
def test_the_tokens_of_a_page_follow_from_the_model(
    model: dict[str, int], tokens: list[int]
) -> None:
    """A page holds page / (KV heads x head_dim x 2 bytes) tokens of one tensor of one layer."""
    found = []
    for page_size_kib in (64, 128, 256, 2048):
        memory = VAttention(page_size_kib=page_size_kib, **model)  # type: ignore[arg-type]
        memory.bind(1 << 16, SequenceTable(), 4096)
        found.append(memory.block_size)
    assert found == tokens


def test_the_model_s_own_numbers_are_those_of_the_preset() -> None:
    model = MODELS["llama-3-8b"]
    assert {"kv_bytes_per_token": model.kv_bytes_per_token, "layers": model.layers} == LLAMA_3_8B


def test_a_page_that_no_tokens_fill_loses_its_rest() -> None:
    """1,536 bytes a token: 42 tokens a page of 64 KiB, and 1,024 bytes that are no token's.

    10,000 tokens are 15,360,000 bytes of each tensor: 234 whole pages, of 9,828 tokens.
    """
    memory = VAttention(64, kv_bytes_per_token=2 * 24 * 1536, layers=24)
    memory.bind(10_000, SequenceTable(), 4096)
    assert (memory.block_size, memory.num_blocks) == (42, 234)
    assert memory.usage().external == 10_000 - 9_828


def test_a_finished_request_s_pages_serve_the_next_one_at_its_place() -> None:
    pool = Pool()
    pool.drop(pool.put(10))
    assert pool.memory.usage().free == 32
    assert pool.memory.num_mapped_blocks() == 3
    row = pool.put(6)
    assert pool.pages(row) == [0, 1]
    assert pool.counts() == (5, 3, 0)
    pool.write(row, 3)  # nine tokens: the third page is mapped already
    assert pool.pages(row) == [0, 1, 2]
    assert pool.counts() == (6, 3, 0)


def test_without_deferral_pages_are_unmapped_at_once() -> None:
    pool = Pool(deferred_reclamation=False)
    pool.drop(pool.put(10))
    assert pool.memory.num_mapped_blocks() == 0
    pool.put(6)
    assert pool.counts() == (5, 5, 3)


def test_who_lacks_pages_takes_what_is_mapped_and_not_needed_from_the_last_place_on() -> None:
    """Places keep 3, 2 and 3 of 8 pages, and the first one is taken and needs its three.

    17 tokens go to the second place, need five pages and find two: the last place's three are
    unmapped, and mapped here.
    """
    pool = Pool()
    pool.drop(*[pool.put(n) for n in (12, 8, 12)])
    first, second = pool.put(12), pool.put(17)
    assert pool.pages(first) == [0, 1, 2]
    assert pool.pages(second)[:2] == [3, 4]
    assert sorted(pool.pages(second)[2:]) == [5, 6, 7]
    assert pool.counts() == (16, 11, 3)
    assert pool.memory.usage().free == 0


def test_a_place_gives_all_that_it_does_not_need_at_once() -> None:
    """As above, but one page is wanted of the last place: all three are unmapped, one is mapped."""
    pool = Pool()
    pool.drop(*[pool.put(n) for n in (12, 8, 12)])
    pool.put(12)
    pool.put(9)
    assert pool.counts() == (14, 9, 3)
    assert pool.memory.num_mapped_blocks() == 6


def test_a_running_request_gives_back_what_it_does_not_need() -> None:
    pool = Pool()
    pool.drop(pool.put(32))
    first = pool.put(4)
    assert pool.memory.num_mapped_blocks() == 8
    second = pool.put(28)
    assert len(pool.pages(second)) == 7
    assert pool.pages(first) == [0]
    assert pool.counts() == (16, 15, 7)


@pytest.mark.parametrize(("prompt", "place"), [(8, 2), (4, 1), (12, 0), (16, 0)])
def test_a_new_request_sits_at_the_first_place_or_where_fewer_pages_are_enough(
    prompt: int, place: int
) -> None:
    """Places keep 3, 1 and 2 pages."""
    pool = Pool()
    rows = [pool.put(n) for n in (12, 4, 8)]
    first_pages = [pool.pages(row)[0] for row in rows]
    pool.drop(*rows)
    assert pool.pages(pool.put(prompt))[0] == first_pages[place]


def test_the_page_of_the_next_token_is_mapped_ahead_and_stays_free() -> None:
    pool = Pool(map_ahead=True)
    row = pool.put(4)
    assert pool.memory.num_mapped_blocks() == 2
    assert pool.memory.usage().free == 28
    assert pool.memory.counters()["num_pages_mapped_ahead"] == 1
    pool.write(row, 1)
    assert pool.counts() == (2, 2, 0)
    pool.write(row, 2)
    assert pool.memory.num_mapped_blocks() == 2
    pool.write(row, 1)
    assert pool.memory.num_mapped_blocks() == 3


def test_mapped_pages_are_free_for_an_admission_and_the_watermark_is_kept() -> None:
    """One of eight pages is kept free, mapped or not."""
    pool = Pool(watermark=0.125)
    pool.drop(pool.put(28))
    row = pool.sequences.open(request_of(29), 0)
    assert pool.memory.can_allocate(row) == Admission.NEVER
    assert pool.pages(pool.put(28)) == [0, 1, 2, 3, 4, 5, 6]


def test_a_sequence_wastes_less_than_a_page() -> None:
    """Five tokens of a prompt of 5 and an output of 2: one more is written, two slots never."""
    memory, sequences = VAttention(block_size=4, watermark=0.0), SequenceTable()
    memory.bind(32, sequences, 1000)
    row = sequences.open(request_of(5, 2), 0)
    memory.admit(row, 5)
    usage = memory.usage()
    assert (usage.token_states, usage.reserved, usage.internal, usage.free) == (5, 1, 2, 24)


def one_after_another(**knobs: Any) -> Run:
    """Twenty requests of 30 + 9 tokens, one at a time, in pages of 4: ten pages each."""
    count = 20
    columns = [np.full(count, n, np.int64) for n in (0, 30, 9)]
    requests = new_requests(*columns, Limits(200, columns[2]))
    memory = VAttention(block_size=4, watermark=0.0, **knobs)
    return simulate(requests, Memory(200, 200), memory, Fcfs(max_num_seqs=1), Constant(1e-6))


def test_deferral_spares_the_mapping_of_all_but_the_first_request_s_pages() -> None:
    deferred = one_after_another().allocator.counters()
    assert deferred["num_pages_taken"] == 20 * 10
    assert deferred["num_pages_mapped"] == 10
    at_once = one_after_another(deferred_reclamation=False).allocator.counters()
    assert at_once["num_pages_mapped"] == 20 * 10
    assert at_once["num_pages_mapped_ahead"] == 20 * 2  # of the ninth and the tenth
