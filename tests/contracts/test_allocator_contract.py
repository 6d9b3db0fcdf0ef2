"""Every registered allocator keeps the allocator contract, whatever its history."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, reject, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from sim.allocators import ALLOCATORS, Admission, Allocator, KVUsage
from sim.sequence import Limits, SequenceTable, new_requests
from sim.testing import History, check_allocator

PARAMETERS: dict[str, list[dict[str, Any]]] = {
    "contiguous": [
        {"reservation": reservation, "granularity": granularity}
        for reservation in ("max", "pow2", "oracle", "max_tokens")
        for granularity in (1, 16)
    ]
    + [
        {"reservation": "oracle", "placement": placement, "compaction": compaction}
        for placement in ("first_fit", "best_fit", "next_fit")
        for compaction in (False, True)
    ]
    + [
        {"reservation": reservation, "placement": "buddy", "arena": arena, "min_block": min_block}
        for reservation in ("max", "pow2", "oracle")
        for arena, min_block in (("greedy", 1), ("greedy", 8), ("max_len_chunks", 4))
    ],
    "mini_sglang": [{"block_size": block_size} for block_size in (1, 3, 16)],
    "nano_vllm": [{"block_size": block_size} for block_size in (1, 3, 16)],
    "paged": [
        {"block_size": block_size, "watermark": watermark}
        for block_size in (1, 3, 16)
        for watermark in (0.0, 0.1)
    ]
    + [{"block_size": block_size, "reserve_max_tokens": True} for block_size in (1, 4)],
    "paged_cow": [
        {"block_size": block_size, "watermark": watermark}
        for block_size in (1, 3, 16)
        for watermark in (0.0, 0.1)
    ]
    + [{"block_size": 4, "sliding_window": 12}],
    "prefix": [
        {"block_size": block_size, "free_order": free_order}
        for block_size in (1, 3, 8)
        for free_order in ("prepend_unhashed", "append")
    ]
    + [
        {"block_size": 4, "watermark": 0.15, "reserve_full_isl": False},
        {"block_size": 4, "enable_prefix_caching": False},
    ],
    "radix": [
        {"block_size": block_size, "eviction_policy": policy}
        for block_size in (1, 3)
        for policy in ("lru", "lfu", "fifo", "mru", "filo", "priority", "slru")
    ]
    + [{"block_size": 8, "split_at_prompt": False}, {"block_size": 1, "split_at_prompt": False}],
    "vattention": [
        {"block_size": 1},
        {"block_size": 3, "watermark": 0.1},
        {"block_size": 4, "map_ahead": False},
        {"block_size": 4, "deferred_reclamation": False},
    ],
}

ENTRIES = [
    pytest.param(kind, parameters, id=f"{kind}-{'-'.join(map(str, parameters.values()))}")
    for kind in sorted(ALLOCATORS)
    for parameters in PARAMETERS.get(kind, [{}])
]


class AllocatorMachine(RuleBasedStateMachine):
    """Random requests against one allocator; History checks each step."""

    factory: Callable[[], Allocator]

    @initialize(
        num_slots=st.sampled_from([16, 24, 40, 90]), max_model_len=st.sampled_from([8, 30, 40])
    )
    def open_pool(self, num_slots: int, max_model_len: int) -> None:
        try:
            self.history = History(type(self).factory, num_slots, max_model_len)
        except ValueError as refused:
            if "more than the pool of" not in str(refused):
                raise
            reject()  # the pool makes no block

    @rule(data=st.data(), output=st.integers(1, 20), extra=st.integers(0, 9))
    def request_arrives(self, data: st.DataObject, output: int, extra: int) -> None:
        prompt = data.draw(st.integers(1, self.history.max_model_len - 1))
        alike = data.draw(st.tuples(st.integers(0, 2), st.sampled_from([0, 5, 12, 60])))
        self.history.arrive(prompt, output, extra, data.draw(st.integers(1, prompt)), alike)

    @precondition(lambda self: self.unfinished())
    @rule(data=st.data())
    def some_rows_append(self, data: st.DataObject) -> None:
        rows = data.draw(st.lists(st.sampled_from(self.unfinished()), min_size=1, unique=True))
        counts = [data.draw(st.integers(0, 20)) for _ in rows]
        self.history.append(rows, counts)

    @precondition(lambda self: self.unfinished())
    @rule(data=st.data(), num_iterations=st.integers(1, 30))
    def some_rows_decode(self, data: st.DataObject, num_iterations: int) -> None:
        rows = data.draw(st.lists(st.sampled_from(self.unfinished()), min_size=1, unique=True))
        self.history.decode(rows, num_iterations)

    @precondition(lambda self: self.unfinished())
    @rule(num_iterations=st.integers(1, 30))
    def all_rows_decode(self, num_iterations: int) -> None:
        self.history.decode(self.unfinished(), num_iterations)

    @precondition(lambda self: self.history.running)
    @rule(data=st.data())
    def a_row_is_done_and_stays(self, data: st.DataObject) -> None:
        self.history.retire(data.draw(st.sampled_from(self.history.running)))

    @precondition(lambda self: self.history.running)
    @rule(data=st.data())
    def some_rows_are_freed(self, data: st.DataObject) -> None:
        rows = st.lists(st.sampled_from(self.history.running), min_size=1, unique=True)
        self.history.free(data.draw(rows))

    @rule()
    def everything_is_freed(self) -> None:
        self.history.free_everything()

    def unfinished(self) -> list[int]:
        return [row for row in self.history.running if self.history.room(row) > 0]

    def teardown(self) -> None:
        if hasattr(self, "history"):
            self.history.free_everything()


@pytest.mark.parametrize(("kind", "parameters"), ENTRIES)
def test_every_allocator_keeps_the_contract_in_any_history(
    kind: str, parameters: dict[str, Any]
) -> None:
    class Machine(AllocatorMachine):
        @staticmethod
        def factory() -> Allocator:
            return ALLOCATORS[kind](**parameters)

    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=25,
            stateful_step_count=30,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.parametrize(("kind", "parameters"), ENTRIES)
def test_every_allocator_passes_the_suite_for_plug_ins(
    kind: str, parameters: dict[str, Any]
) -> None:
    check_allocator(lambda: ALLOCATORS[kind](**parameters), seeds=range(100, 108))


@pytest.mark.parametrize(("kind", "parameters"), ENTRIES)
def test_more_sequences_than_the_table_first_holds_keep_their_memory(
    kind: str, parameters: dict[str, Any]
) -> None:
    """One sequence table doubles at 64 rows, the other from 2 on; the block tables must follow."""
    history = History(lambda: ALLOCATORS[kind](**parameters), num_slots=2400, max_model_len=32)
    for _ in range(70):
        assert history.arrive(prompt=5, output=12, extra=0, chunk=5) == Admission.OK
    assert history.decode(history.running, 11) == 11
    history.free(history.running[::3])
    history.free_everything()


@pytest.mark.parametrize(("kind", "parameters"), ENTRIES)
def test_a_waiting_row_in_a_grown_table_holds_nothing(
    kind: str, parameters: dict[str, Any]
) -> None:
    """Asked about a row that came with the growth and was never admitted, none of it fails."""
    allocator, sequences = ALLOCATORS[kind](**parameters), SequenceTable(capacity=2)
    allocator.bind(512, sequences, 32)
    request = request_of(prompt=4, output=4)
    rows = [sequences.open(request, 0) for _ in range(5)]
    assert allocator.can_allocate(rows[-1]) == Admission.OK
    assert allocator.fragmented_for(rows[-1]) is False
    assert allocator.held_ranges(rows[-1]).shape == (0, 2)


@pytest.mark.parametrize(("kind", "parameters"), ENTRIES)
def test_terms_are_named_and_add_to_the_pool(kind: str, parameters: dict[str, Any]) -> None:
    allocator, sequences = ALLOCATORS[kind](**parameters), SequenceTable()
    allocator.bind(101, sequences, 40)
    row = sequences.open(request_of(prompt=10, output=8), 0)
    assert allocator.admit(row, 10) == Admission.OK
    usage = allocator.usage()
    assert usage == KVUsage(*allocator.terms.tolist())
    assert usage.token_states == 10
    assert usage.cached == 0
    assert sum(usage) == 101


@pytest.mark.parametrize(("kind", "parameters"), ENTRIES)
def test_who_never_finishes_is_who_cannot_finish_alone(
    kind: str, parameters: dict[str, Any]
) -> None:
    """A request that the one question lets in and the other keeps out would wait for ever."""
    allocator, sequences = ALLOCATORS[kind](**parameters), SequenceTable()
    allocator.bind(128 if parameters.get("arena") == "max_len_chunks" else 61, sequences, 90)
    longest = np.arange(1, 81)
    lengths = [np.full_like(longest, n) for n in (0, 9, 1)]
    requests = new_requests(lengths[0], lengths[1], lengths[2], Limits(90, longest))
    rows = [sequences.open(requests, request) for request in range(len(requests))]
    nobody = np.empty(0, np.int64)
    alone = [allocator.can_finish(row, nobody) for row in rows]
    assert (~allocator.never_finishes(requests)).tolist() == alone
    assert alone == sorted(alone, reverse=True)  # whoever may become longer needs no less


def test_a_duplicated_parameter_set_would_hide_an_entry() -> None:
    """Every table entry is exercised, and each with different parameters."""
    ids = [str(entry.values) for entry in ENTRIES]
    assert len(set(ids)) == len(ids)
    assert {entry.values[0] for entry in ENTRIES} == set(ALLOCATORS)
    assert set(PARAMETERS) <= set(ALLOCATORS)


def test_every_kind_is_the_key_of_its_entry() -> None:
    assert {kind: entry.kind for kind, entry in ALLOCATORS.items()} == {
        kind: kind for kind in ALLOCATORS
    }


@pytest.mark.parametrize(
    ("kind", "parameters", "sentence"),
    [
        ("paged", {"block_size": 0}, "block_size: must be at least 1 slot, got 0"),
        ("paged", {"watermark": 1.0}, "watermark: must be at least 0 and below 1, got 1.0"),
        ("vattention", {"page_size_kib": 32}, "page_size_kib: unknown value 32; accepted: 64, 128"),
        ("vattention", {"layers": 0}, "layers: must be at least 1, got 0"),
        (
            "vattention",
            {"kv_bytes_per_token": 1000, "layers": 3},
            "layers: the 1000 KV bytes of a token are no 6 tensors",
        ),
        (
            "vattention",
            {"page_size_kib": 64, "kv_bytes_per_token": 1 << 20, "layers": 2},
            "page_size_kib: a token has 262144 bytes in each tensor, more than a page of 64 KiB",
        ),
        ("prefix", {"free_order": "fifo"}, "free_order: unknown value 'fifo'; accepted: prepend"),
        ("prefix", {"watermark": 1.0}, "watermark: must be at least 0 and below 1, got 1.0"),
        ("radix", {"block_size": 0}, "block_size: must be at least 1 slot, got 0"),
        ("radix", {"eviction_policy": "random"}, "eviction_policy: unknown value 'random'; acc"),
        ("radix", {"protected_threshold": 0}, "protected_threshold: must be at least 1, got 0"),
        ("contiguous", {"granularity": 0}, "granularity: must be at least 1 slot, got 0"),
        ("contiguous", {"reservation": "all"}, "reservation: unknown value 'all'"),
        ("contiguous", {"placement": "worst"}, "placement: unknown value 'worst'"),
        ("contiguous", {"min_block": 12}, "min_block: must be a power of two of slots, got 12"),
        ("contiguous", {"placement": "buddy", "arena": "all"}, "arena: unknown value 'all'"),
        ("contiguous", {"arena": "max_len_chunks"}, "arena: only placement buddy has one"),
        (
            "contiguous",
            {"placement": "buddy", "compaction": True},
            "compaction: a buddy system's blocks cannot slide",
        ),
    ],
)
def test_a_wrong_parameter_is_named_with_its_rule(
    kind: str, parameters: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match="^" + sentence):
        ALLOCATORS[kind](**parameters)


@pytest.mark.parametrize(
    ("kind", "parameters", "sentence"),
    [
        ("paged", {"block_size": 16}, "block_size: a block of 16 slots is larger than the pool"),
        ("prefix", {"block_size": 8}, "block_size: a block of 8 slots beside the null block is"),
        ("radix", {"block_size": 16}, "block_size: a block of 16 slots is larger than the pool"),
        ("nano_vllm", {"block_size": 16}, "block_size: a block of 16 slots is more than the pool"),
        (
            "vattention",
            {"block_size": 16},
            "block_size: a page of 16 slots is larger than the pool",
        ),
        ("vattention", {}, "block_size: the tokens of a page follow from a model with layers"),
        ("contiguous", {"granularity": 16}, "granularity: 16 slots are more than the pool of 15"),
    ],
)
def test_a_pool_smaller_than_one_unit_is_refused_with_a_sentence(
    kind: str, parameters: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        ALLOCATORS[kind](**parameters).bind(15, SequenceTable(), 8)


@pytest.mark.parametrize(
    ("reservation", "slots"), [("max", 64), ("pow2", 26), ("oracle", 19), ("max_tokens", 30)]
)
def test_a_reservation_is_as_long_as_its_rule_says(reservation: str, slots: int) -> None:
    """Prompt 10, output 9 of at most 20, longest 64: pow2 is 10 + 16, oracle is 19."""
    assert reserved(reservation, 1) == slots
    assert reserved(reservation, 16) == -(-slots // 16) * 16


def test_a_power_of_two_reservation_is_capped_at_the_longest_sequence() -> None:
    assert reserved("pow2", 1, max_model_len=24) == 24


@pytest.mark.parametrize(("output", "slots"), [(1, 11), (2, 12), (3, 14), (8, 18), (9, 26)])
def test_an_output_that_is_a_power_of_two_is_not_rounded_up(output: int, slots: int) -> None:
    assert reserved("pow2", 1, output=output) == slots


def test_freed_blocks_are_handed_out_again_first_block_first() -> None:
    """Ids in order at first; rows freed together return the last row's blocks on top."""
    allocator, sequences = ALLOCATORS["paged"](block_size=4), SequenceTable()
    allocator.bind(40, sequences, 64)
    rows = [sequences.open(request_of(prompt=n, output=8), 0) for n in (10, 5, 8)]
    for row, prompt in zip(rows, (10, 5, 8), strict=True):
        assert allocator.admit(row, prompt) == Admission.OK
    assert [allocator.block_table(row).tolist() for row in rows] == [[0, 1, 2], [3, 4], [5, 6]]
    allocator.free(np.array(rows[:2]))
    assert allocator.free_list().tolist() == [3, 4, 0, 1, 2, 7, 8, 9]


def reserved(reservation: str, granularity: int, max_model_len: int = 64, output: int = 9) -> int:
    """Slots taken by a prompt of 10 with at most 20 tokens of output."""
    allocator = ALLOCATORS["contiguous"](reservation=reservation, granularity=granularity)
    sequences = SequenceTable()
    allocator.bind(640, sequences, max_model_len)
    row = sequences.open(request_of(10, output, max_tokens=20, max_model_len=max_model_len), 0)
    assert allocator.admit(row, 10) == Admission.OK
    return 640 - allocator.usage().free


def request_of(
    prompt: int, output: int, max_tokens: int | None = None, max_model_len: int = 64
) -> np.ndarray:
    zero, prompts, outputs = (np.array([n], np.int64) for n in (0, prompt, output))
    longest = np.array([max_tokens or output], np.int64)
    return new_requests(zero, prompts, outputs, Limits(max_model_len, longest))
