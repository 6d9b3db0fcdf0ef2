"""TensorRT-LLM's capacity policies: what is reserved to completion, who is paused and resumes."""

from collections.abc import Callable

import numpy as np
import pytest

from sim.allocators import Allocator
from sim.allocators.contiguous import Contiguous
from sim.allocators.paged import Paged
from sim.allocators.paged_cow import PagedCow
from sim.allocators.prefix import Prefix
from sim.allocators.radix import Radix
from sim.allocators.vattention import VAttention
from sim.costs.linear import Constant
from sim.engine.simulation import Memory, Options, Run, simulate
from sim.schedulers.trtllm import Policy, TrtLlm
from sim.sequence import (
    FINISH_NS,
    FIRST_SCHEDULED_NS,
    NUM_PREEMPTIONS,
    STATUS,
    IntArray,
    Limits,
    SequenceTable,
    new_requests,
)
from sim.testing import SharedBeginnings
from workloads.content import ContentBuilder, own_prompt
from workloads.sequences import SequenceContent

US = 1_000
Rows = list[tuple[int, int, int, int]]  # arrival in µs, prompt, output, max_tokens


def requests_of(rows: Rows) -> IntArray:
    arrivals, prompts, outputs, longest = np.array(rows, np.int64).T
    return new_requests(arrivals * US, prompts, outputs, Limits(1000, longest))


def run(
    rows: Rows,
    policy: Policy,
    num_slots: int,
    memory: Allocator | None = None,
    content: SequenceContent | None = None,
) -> Run:
    return simulate(
        requests_of(rows),
        Memory(num_slots, 1000),
        memory or Paged(block_size=4),
        TrtLlm(policy),
        Constant(1e-6),
        Options(content=content),
    )


def beginnings(rows: Rows, alike: int) -> SequenceContent:
    """All prompts that are longer begin with the same tokens, alike of them."""
    builder = ContentBuilder()
    for request, (_, prompt, _, _) in enumerate(rows):
        shared = alike if prompt > alike else 0
        builder.add([(1, 0, shared), (own_prompt(request), 0, prompt - shared)], prompt)
    return SequenceContent(builder.build())


def times_us(done: Run, column: int) -> list[float]:
    return (done.requests[:, column] / US).tolist()


FOUR = [(0, 8, 3, 8), (0, 4, 12, 12), (0, 4, 4, 4), (0, 4, 2, 4)]


def test_a_request_starts_when_all_may_grow_to_the_end() -> None:
    """Of 10 blocks of 4 the first three may take 4, 4 and 2; the first ends after 3 tokens.

    The fourth waits for 2 blocks, although 6 are free: the others hold 2, 1 and 1.
    """
    done = run(FOUR, "guaranteed_no_evict", 40)
    assert times_us(done, FIRST_SCHEDULED_NS) == [0, 0, 0, 3]
    assert done.scheduler.num_preemptions == 0


def test_max_utilization_starts_what_fits_now() -> None:
    done = run(FOUR, "max_utilization", 40)
    assert times_us(done, FIRST_SCHEDULED_NS) == [0, 0, 0, 0]


def test_the_last_token_is_reserved_for_although_it_is_never_written() -> None:
    """A prompt of 4 and one token are 5: two blocks of 4 are asked for, and one is used."""
    done = run([(0, 4, 1, 1), (0, 4, 1, 1)], "guaranteed_no_evict", 12)
    assert times_us(done, FIRST_SCHEDULED_NS) == [0, 1]


def test_nobody_overtakes_the_first_that_cannot_be_reserved_for() -> None:
    """Of four blocks the first may take 3, the second 4, and the third, which would fit, 1."""
    done = run([(0, 4, 8, 8), (0, 8, 8, 8), (0, 1, 1, 1)], "guaranteed_no_evict", 16)
    assert times_us(done, FIRST_SCHEDULED_NS) == [0, 8, 16]


def test_who_came_last_is_paused_and_resumes_with_what_it_had_generated() -> None:
    """Four blocks of 4: prompts of 6 and 7 hold two each, and need a third at 9 tokens.

    The second is there first, in the iteration that starts at 2 µs, with 9 tokens of its own. They
    need three blocks, which are free when the first ends at 8 µs; two tokens are left to sample.
    """
    done = run([(0, 6, 8, 8), (0, 7, 4, 4)], "max_utilization", 16)
    assert times_us(done, FINISH_NS) == [8, 10]
    assert done.requests[:, NUM_PREEMPTIONS].tolist() == [0, 1]


def test_paused_requests_resume_in_the_order_in_which_they_came() -> None:
    """Three prompts of 3 fill three blocks of 4 after one token; all but the first give way.

    It ends at 6 µs. Of the others, with 5 tokens in two blocks each, the earlier one fits then, the
    later one when that has ended: after two more tokens, at 8 µs.
    """
    done = run([(0, 3, 6, 6), (0, 3, 4, 4), (0, 3, 4, 4)], "max_utilization", 12)
    assert done.requests[:, NUM_PREEMPTIONS].tolist() == [0, 1, 1]
    assert times_us(done, FINISH_NS) == [6, 8, 10]


MEMORY: dict[str, Callable[[], Allocator]] = {
    "paged": lambda: Paged(block_size=4),
    "paged_cow": lambda: PagedCow(block_size=4),
    "window": lambda: PagedCow(block_size=4, sliding_window=12),
    "declared prefix": lambda: PagedCow(block_size=4, shared_prefix_tokens=6),
    "prefix": lambda: Prefix(block_size=4),
    "radix": lambda: Radix(block_size=4),
    "vattention": lambda: VAttention(block_size=4),
    "contiguous": lambda: Contiguous("max_tokens"),
}


@pytest.mark.parametrize("alike", [0, 6])
@pytest.mark.parametrize("memory", MEMORY)
def test_a_guarantee_holds_in_an_overloaded_pool(memory: str, alike: int) -> None:
    rng = np.random.default_rng(1)
    rows = [(0, int(p), int(o), int(o) + 9) for p, o in rng.integers(1, 30, (60, 2))]
    for num_slots in (104, 128, 200):
        done = run(
            rows, "guaranteed_no_evict", num_slots, MEMORY[memory](), beginnings(rows, alike)
        )
        assert done.scheduler.num_preemptions == 0
        assert (done.requests[:, STATUS] == 1).all()
        assert done.recorder.num_queued_iterations > 0


@pytest.mark.parametrize(
    ("memory", "refused"),
    [
        (PagedCow(block_size=4, watermark=0.0), [1]),
        (PagedCow(block_size=4, watermark=0.0, shared_prefix_tokens=8), [1, 3]),
        (PagedCow(block_size=4, watermark=0.0, sliding_window=12), []),
    ],
    ids=["neither", "prefix", "window"],
)
def test_a_prefix_and_a_window_count_in_what_a_request_may_need(
    memory: PagedCow, refused: list[int]
) -> None:
    """Of ten blocks of 4, one is to spare, and two are the prefix of 8 tokens, if there is one.

    The first may become 36 tokens long: 9 blocks, or 7 beside the prefix. The second may become
    45: 12 or 10. The third is short, the fourth is only the prefix, which it must compute: 8 blocks
    for 32 tokens. In a window of 12 tokens nobody takes more than 3.
    """
    rows = [(0, 12, 2, 24), (0, 9, 2, 36), (0, 9, 2, 3), (0, 8, 2, 24)]
    done = run(rows, "guaranteed_no_evict", 40, memory, beginnings(rows, 8))
    assert sorted(done.scheduler.reasons) == refused
    assert done.scheduler.num_finished == 4 - len(refused)


def test_the_rings_of_a_window_are_reserved_whole_and_no_more() -> None:
    """Each takes three blocks of 4 at most; with one to spare, three of them fit into ten."""
    memory = PagedCow(block_size=4, watermark=0.0, sliding_window=12)
    done = run([(0, 4, 40, 60)] * 4, "guaranteed_no_evict", 40, memory)
    assert times_us(done, FIRST_SCHEDULED_NS) == [0, 0, 0, 40]
    assert done.scheduler.num_preemptions == 0


def test_where_every_token_asks_for_a_free_block_the_guarantee_keeps_one() -> None:
    """Two requests of two blocks would fill all four, and the next token would find none free."""
    memory = PagedCow(block_size=4, watermark=0.0)
    done = run([(0, 4, 4, 4)] * 2, "guaranteed_no_evict", 16, memory)
    assert times_us(done, FIRST_SCHEDULED_NS) == [0, 4]
    assert done.scheduler.num_preemptions == 0


def test_a_request_that_may_outgrow_the_pool_is_rejected_with_both_lengths() -> None:
    done = run([(0, 4, 2, 30), (0, 4, 2, 2)], "guaranteed_no_evict", 32)
    assert done.scheduler.reasons == {
        0: "may become 34 tokens long, for which the pool of 32 slots is too small"
    }
    assert run([(0, 4, 2, 30)], "max_utilization", 32).scheduler.reasons == {}


def test_blocks_shared_with_running_requests_are_not_reserved_again() -> None:
    """Of 6 usable blocks of 4 the first may take 4. A prompt of 9 and 3 tokens more need 3.

    Two of them it would share with the first as long as that runs.
    """
    memory, sequences, content = Prefix(block_size=4), SequenceTable(), SharedBeginnings()
    memory.bind(28, sequences, 64)
    memory.bind_content(content)
    requests = requests_of([(0, 9, 7, 7), (0, 9, 3, 3)])
    content.begin(1, 8)
    first = sequences.open(requests, 0)
    memory.admit(first, 9)
    running = np.array([first])
    alike = sequences.open(requests, 1)
    content.begin(2, 8)
    other = sequences.open(requests, 1)
    assert (memory.num_held_hits(alike), memory.num_held_hits(other)) == (2, 0)
    assert memory.can_finish(alike, running)
    assert not memory.can_finish(other, running)
    memory.free(running)  # cached blocks are free, but must be taken out of the free ones
    assert memory.num_held_hits(alike) == 0
