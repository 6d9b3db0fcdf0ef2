"""SGLang's scheduler, step by step: the numbers beside the steps are worked out by hand."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from sim.allocators import ALLOCATORS
from sim.allocators.checked import CheckedAllocator
from sim.allocators.radix import Radix
from sim.costs.linear import Constant
from sim.engine.simulation import Memory, Options, Run, simulate
from sim.schedulers import SCHEDULERS, Scheduler
from sim.schedulers.base import MAX_NUM_SEQS, MEMORY, NOTHING, TOKEN_BUDGET
from sim.schedulers.mini_sglang import MiniSglang
from sim.schedulers.sglang import Sglang
from sim.schedulers.sglang_budget import NewTokenRatio
from sim.sequence import REQUEST, IntArray, Limits, new_requests
from workloads.content import ContentBuilder
from workloads.content import Run as TextRun
from workloads.sequences import SequenceContent

NS = 1000  # an iteration


class Step(NamedTuple):
    """What a schedule() did, and what is left: free and evictable tokens, and the ratio."""

    admitted: list[tuple[int, int, int]]  # (request, hit, tokens)
    retracted: list[int]
    running: list[int]
    sizes: tuple[int, int]
    ratio: float
    blocked: int


class Steps:
    """Notes every iteration."""

    def __init__(self) -> None:
        self.all: list[Step] = []

    def __call__(self, now_ns: int, scheduler: Scheduler) -> None:
        assert isinstance(scheduler, Sglang)
        memory = scheduler._memory
        rows = scheduler.running[: scheduler.num_running]
        self.all.append(
            Step(
                [tuple(new) for new in scheduler.admitted],
                scheduler.preempted.copy(),
                scheduler.sequences.rows[rows, REQUEST].tolist(),
                (memory.available_size, memory.evictable_size),
                scheduler.ratio.current,
                scheduler.blocked,
            )
        )


def requests_of(cells: list[tuple[int, int, int, int]], max_model_len: int = 1000) -> IntArray:
    """Requests of (arrival in iterations, prompt, output, max_tokens)."""
    arrivals, *columns = np.array(cells, np.int64).T
    return new_requests(arrivals * NS, columns[0], columns[1], Limits(max_model_len, columns[2]))


def run(
    cells: list[tuple[int, int, int, int]],
    num_slots: int,
    texts: list[list[TextRun]] | None = None,
    block_size: int = 1,
    **knobs: Any,
) -> tuple[list[Step], Run]:
    steps, content = Steps(), None
    if texts is not None:
        builder = ContentBuilder()
        for runs, (_, prompt, _, _) in zip(texts, cells, strict=True):
            builder.add(runs, prompt)
        content = SequenceContent(builder.build())
    done = simulate(
        requests_of(cells),
        Memory(num_slots, 1000),
        CheckedAllocator(Radix(block_size)),
        Sglang(**knobs),
        Constant(NS * 1e-9),
        Options(observe=steps, content=content),
    )
    return steps.all, done


def test_a_trace_of_admission_retraction_and_ratio_worked_out_by_hand() -> None:
    """40 slots of one token. A: 6 tokens, 20 out; B: 8, 20 out; C: 5, 2 out of at most 6.

    The ratio begins at 0.25 and falls by (0.25 - 0.05) / 4 = 0.05 a decode step; a retraction
    makes room for 2 steps.
    """
    steps, done = run(
        [(0, 6, 20, 20), (0, 8, 20, 20), (0, 5, 2, 6)],
        40,
        init_new_token_ratio=0.25,
        min_new_token_ratio_factor=0.2,
        new_token_ratio_decay_steps=4,
        retract_decode_steps=2,
    )
    a, b, c = range(3)
    # 1: A needs 6 + 20 + 1 = 27 < 40, which leaves 40 - 27 = 13; B needs 8 + 20 + 1 = 29 >= 13.
    assert steps[0] == ([(a, 0, 6)], [], [a], (34, 0), 0.25, MEMORY)
    # 2: the batch was empty, so the queue is looked at again. A may take (20 - 1) * 0.25 = 4.75
    #    of 34, B's 29 < 29.25 fit and leave 0.25; C needs 5 + 6 + 1 = 12.
    assert steps[1] == ([(b, 0, 8)], [], [a, b], (26, 0), 0.25, MEMORY)
    # 3 to 15: the batch is full; two slots a step, while the ratio falls to 0.05 and stays there.
    ratio = 0.25
    for i in range(13):
        ratio = max(ratio - (0.25 - 0.05) / 4, 0.05)
        assert steps[2 + i] == ([], [], [a, b], (24 - 2 * i, 0), ratio, MEMORY)
    # 16: nothing is free or evictable. A and B have 14 outputs each, B the longer prompt: it goes,
    #    its 13 decoded tokens are free, its prompt of 8 is evictable; one left for 2 steps needs 2.
    #    A decodes alone. The ratio is (14 + 2 * 1) / (20 + 1). B waits behind C.
    seen = 16 / 21
    assert steps[15] == ([], [b], [a], (12, 8), seen, MEMORY)
    # 17: A may take (20 - 15) * 16/21 = 3.81 of 12 + 8; C's 12 < 16.19 fit and leave 4.19. B's hit
    #    of 8 is not evictable while it is asked: 14 + 6 + 1 = 21 >= 12 - 15.81.
    assert steps[16] == ([(c, 0, 5)], [], [a, c], (7, 8), seen, MEMORY)
    # 18: full; A has 16 outputs, and C ends with its second, leaving 5 + 1 tokens to the tree.
    assert steps[17] == ([], [], [a, c], (5, 8), seen - 0.05, MEMORY)
    # 19: full still, because C is forgotten only now.
    assert steps[18] == ([], [], [a], (4, 14), seen - 0.05 - 0.05, MEMORY)
    # 20: asked again: A may take (20 - 17) * 0.66 = 1.99; B's 21 >= 4 + 14 - 8 - 1.99. Full.
    assert steps[19] == ([], [], [a], (3, 14), seen - 0.05 - 0.05 - 0.05, MEMORY)
    # 21 and 22: A's outputs 19 and 20, with which it ends; 6 + 19 tokens of it stay.
    assert [step.sizes for step in steps[20:22]] == [(2, 14), (1, 14)]
    # 23: A is forgotten, which leaves the batch empty, and B is asked at once: 21 < 1 + 39 - 8.
    #    14 tokens need 13 more: C's 6 were used before A's 19 decoded ones, which go as a whole,
    #    but C's prompt and output are two nodes: 1 and 5. B's prompt is held.
    assert steps[22].admitted == [(b, 8, 14)]
    assert steps[22].running == [b]
    assert steps[22].blocked == NOTHING
    assert steps[22].sizes == (1 + 6 + 19 - 14, 6)
    # 24 to 28: B's outputs 16 to 20; the step that recomputed it gave the 15th.
    assert len(steps) == 28
    assert steps[27].ratio == pytest.approx(16 / 21 - 0.05 * (5 + 5))
    assert done.scheduler.num_preemptions == 1
    assert done.scheduler.num_finished == 3


@pytest.mark.parametrize(
    ("num_slots", "admitted_in"), [(42, 0), (41, 1), (40, 1), (39, 20), (38, 20)]
)
def test_a_request_is_admitted_if_less_than_what_remains_is_all_that_it_may_take(
    num_slots: int, admitted_in: int
) -> None:
    """A takes 10 + 20 + 1 of the pool. B needs 5 + 4 + 1 = 10 < 42 - 31, but not < 41 - 31.

    In the second pass A has 10 slots and may take all of its other 19: 10 < 40 - 29. Else B waits
    for A's end with the 20th iteration.
    """
    steps, _ = run([(0, 10, 20, 20), (0, 5, 2, 4)], num_slots, schedule_conservativeness=2.0)
    (found,) = [i for i, step in enumerate(steps) if (1, 0, 5) in step.admitted]
    assert found == admitted_in


def test_the_ratio_falls_by_subtraction_and_not_below_its_least() -> None:
    ratio, expected = NewTokenRatio(0.7, 0.7 * 0.14, 600), 0.7
    for _ in range(700):
        expected = max(expected - (0.7 - 0.7 * 0.14) / 600, 0.7 * 0.14)
        ratio.step()
        assert ratio.current == expected
    assert ratio.current == 0.7 * 0.14
    ratio.reset()
    assert ratio.current == 0.7
    ratio.step(700)
    assert ratio.current == 0.7 * 0.14
    ratio.current = 0.0  # after a retraction that left nobody
    ratio.step()
    assert ratio.current == 0.7 * 0.14


def test_conservativeness_moves_where_the_ratio_begins_but_not_above_one() -> None:
    for conservativeness, first in ((0.0, 0.0), (0.5, 0.35), (1.0, 0.7), (2.0, 1.0)):
        _, done = run([(0, 5, 2, 2)], 100, schedule_conservativeness=conservativeness)
        assert isinstance(done.scheduler, Sglang)
        assert done.scheduler.ratio.first == pytest.approx(first)
        assert done.scheduler.ratio.least == pytest.approx(first * 0.14)


def test_the_ratio_begins_again_when_nobody_runs_or_waits() -> None:
    steps, _ = run([(0, 5, 10, 10), (100, 5, 2, 2)], 100)
    assert steps[9].ratio < 0.7
    assert steps[10].ratio == 0.7


def test_one_prompt_is_chunked_at_a_time_and_others_take_what_a_chunk_leaves() -> None:
    """Chunks of 8 in blocks of 4: 18 tokens are 8, 8 and 2, which leave 8 - 4 = 4 for the next."""
    steps, _ = run([(0, 18, 3, 3), (0, 10, 3, 3)], 200, block_size=4, chunked_prefill_size=8)
    assert [step.admitted for step in steps[:5]] == [[(0, 0, 8)], [], [(1, 0, 4)], [], []]
    assert [step.running for step in steps[:5]] == [[0], [0], [0, 1], [0, 1], [0, 1]]
    assert [step.blocked for step in steps[:4]] == [TOKEN_BUDGET, TOKEN_BUDGET, NOTHING, NOTHING]
    assert steps[2].sizes[0] == 200 - 20 - 4  # the third iteration: five blocks, and one
    assert steps[3].sizes[0] == 200 - 20 - 12


def test_decodes_wait_for_prompts_unless_chunks_are_mixed_with_them() -> None:
    """A decode that runs along takes one token of the chunk's eight."""
    cells = [(0, 4, 6, 6), (2, 16, 2, 2)]
    for is_mixed, tokens in ((False, [4, 5, 5, 5]), (True, [4, 5, 6, 7])):
        steps, done = run(cells, 200, chunked_prefill_size=8, enable_mixed_chunk=is_mixed)
        assert [200 - step.sizes[0] for step in steps[:2]] == tokens[:2]
        prompts = [0, 0, 8, 16] if not is_mixed else [0, 0, 7, 14]
        assert [200 - step.sizes[0] for step in steps[:4]] == [
            own + prompt for own, prompt in zip(tokens, prompts, strict=True)
        ]
        assert done.scheduler.num_finished == 2
        assert steps[2].running == ([1, 0] if is_mixed else [0, 1])


def test_without_chunks_no_further_prompt_is_looked_at_beyond_max_prefill_tokens() -> None:
    cells = [(0, 30, 2, 2), (0, 5, 2, 2), (0, 5, 2, 2)]
    steps, _ = run(cells, 300, chunked_prefill_size=None, max_prefill_tokens=10)
    assert [step.admitted for step in steps[:3]] == [
        [(0, 0, 30)],  # the first one is never too long, but it uses all that there is
        [(1, 0, 5)],  # the next would take 5 of the 5 that are left
        [(2, 0, 5)],
    ]


def test_the_batch_is_full_at_max_num_seqs_until_the_step_after_one_has_ended() -> None:
    steps, _ = run([(0, 5, 3, 3), (0, 5, 5, 5), (0, 5, 2, 2)], 200, max_num_seqs=2)
    assert [step.running for step in steps[:5]] == [[0, 1], [0, 1], [0, 1], [1], [1, 2]]
    assert [step.blocked for step in steps[:5]] == [MAX_NUM_SEQS] * 4 + [NOTHING]


def test_while_the_batch_is_full_waiting_requests_refresh_nothing() -> None:
    """The tree's clock stands still while others decode, though a request waits with a hit."""
    texts: list[list[TextRun]] = [[(1, 0, 20)], [(2, 0, 5)], [(1, 0, 20), (3, 0, 1)]]
    cells = [(0, 20, 1, 1), (1, 5, 9, 9), (3, 21, 2, 2)]
    clocks: list[int] = []

    def note(now_ns: int, scheduler: Scheduler) -> None:
        memory: Any = scheduler.allocator
        clocks.append(memory.tree.clock)

    builder = ContentBuilder()
    for runs, (_, prompt, _, _) in zip(texts, cells, strict=True):
        builder.add(runs, prompt)
    simulate(
        requests_of(cells),
        Memory(200, 1000),
        Radix(),
        Sglang(max_num_seqs=1),
        Constant(NS * 1e-9),
        Options(observe=note, content=SequenceContent(builder.build())),
    )
    assert len(set(clocks[2:10])) == 1
    assert clocks[10] > clocks[9]


def test_of_max_tokens_only_the_clipped_part_counts() -> None:
    """10 + 200 + 1 tokens would not fit into 100 beside the first one; 10 + 20 + 1 do."""
    cells = [(0, 10, 5, 80), (0, 10, 5, 80)]
    steps, _ = run(cells, 100, clip_max_new_tokens=20)
    assert steps[0].running == [0, 1]
    steps, _ = run(cells, 100)
    assert steps[0].running == [0]


def test_who_alone_outgrows_the_pool_fails_and_the_others_run() -> None:
    steps, done = run([(0, 10, 60, 60), (0, 5, 3, 3)], 40)
    assert done.status == "finished"
    assert done.scheduler.reasons == {
        0: "grew beyond the memory of the whole pool while running alone"
    }
    assert done.scheduler.num_finished == 1
    assert steps


def test_what_could_never_be_admitted_is_refused_on_arrival() -> None:
    cells = [(0, 34, 1, 1), (0, 33, 1, 1), (0, 3, 1, 1)]
    _, done = run(cells, 40)
    assert done.scheduler.reasons == {
        0: "has a prompt of 34 tokens, and 6 of the pool's 40 must be left"
    }
    _, done = run([(0, 10, 20, 20), (0, 10, 3, 20)], 32, block_size=4)
    assert set(done.scheduler.reasons.values()) == {
        "needs 10 tokens, 20 to generate and a block of 4, the pool has 32"
    }


@pytest.mark.parametrize(
    "kind", sorted(kind for kind, memory in ALLOCATORS.items() if not memory.has_prefix_tree)
)
def test_memory_without_a_tree_is_refused_with_a_sentence(kind: str) -> None:
    allocator = ALLOCATORS[kind](
        **({"block_size": 4} if kind in {"vattention", "nano_vllm"} else {})
    )
    accepted = "accepted with it: allocators mini_sglang and radix"
    for scheduler in (Sglang(), MiniSglang()):
        sentence = scheduler.objection(allocator)
        assert sentence.endswith(f"which {kind} cannot say; {accepted}")
        assert sentence.startswith(f"{scheduler.kind} admits by what")
    with pytest.raises(ValueError, match=accepted):
        simulate(
            requests_of([(0, 5, 2, 2)]),
            Memory(64, 100),
            allocator,
            Sglang(),
            Constant(1e-6),
        )


def test_chunks_are_whole_blocks() -> None:
    assert Sglang(chunked_prefill_size=24).objection(Radix(16)) == (
        "chunked_prefill_size: must be a multiple of the allocator's block_size 16, got 24"
    )
    assert Sglang(chunked_prefill_size=32).objection(Radix(16)) == ""


@pytest.mark.parametrize(
    ("knobs", "sentence"),
    [
        ({"max_num_seqs": 0}, "max_num_seqs: must be at least 1, got 0"),
        ({"chunked_prefill_size": 0}, "chunked_prefill_size: must be at least 1, got 0"),
        ({"schedule_policy": "lifo"}, "schedule_policy: unknown value 'lifo'; accepted: fcfs, lpm"),
        ({"init_new_token_ratio": 1.5}, "init_new_token_ratio: must be from 0 to 1, got 1.5"),
        ({"schedule_conservativeness": -1}, "schedule_conservativeness: must be at least 0"),
        (
            {"enable_mixed_chunk": True, "chunked_prefill_size": None},
            "enable_mixed_chunk: needs chunks, set chunked_prefill_size",
        ),
    ],
)
def test_a_wrong_knob_is_named_with_its_rule(knobs: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match="^" + sentence):
        SCHEDULERS["sglang"](**knobs)
