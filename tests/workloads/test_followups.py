"""What links between turns say of outputs, against a matcher that sees every token."""

import itertools
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workloads.bailian import Bailian
from workloads.content import Run
from workloads.followups import OTHER, SHORT
from workloads.sharing import prefix_hits

Words = tuple[object, ...]

some_words = st.lists(st.integers(0, 1), max_size=7).map(tuple)
turns = st.lists(
    # which turn before, what is said, the answer as a follow-up has it
    st.tuples(st.integers(0, 99), some_words, st.integers(1, 9), st.integers(0, 2)),
    min_size=1,
    max_size=12,
)
each = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


class Chats:
    """Conversations whose words are known, as a file that hides them behind ids of blocks."""

    def __init__(self, drawn: list[tuple[int, Words, int, int]], block_size: int) -> None:
        self.block_size = block_size
        self.prompts: list[Words] = []
        self.parents: list[int] = []
        self.lengths = [length for _, _, length, _ in drawn]
        self.outputs: list[Words | None] = []
        for row, (before, said, _, variant) in enumerate(drawn):
            parent = before % (row + 1) - 1
            history: Words = ()
            if parent >= 0:
                length = self.lengths[parent]
                answer = tuple((word + variant) % 2 for word in range(length))
                history = self.prompts[parent] + answer
                if self.outputs[parent] is None:
                    self.outputs[parent] = answer  # the first to follow shows it
            self.prompts.append(history + said if history + said else (0,))
            self.parents.append(parent)
            self.outputs.append(None)

    def served(self, row: int) -> Words:
        """Prompt and output; an output that nobody shows is like no other."""
        own = tuple(("own", row, k) for k in range(self.lengths[row]))
        return self.prompts[row] + (self.outputs[row] or own)

    def lines(self) -> str:
        numbers: dict[Words, int] = {}
        rows: list[dict[str, Any]] = []
        for row, prompt in enumerate(self.prompts):
            ends = range(self.block_size, len(prompt) + self.block_size, self.block_size)
            ids = [numbers.setdefault(prompt[:end], len(numbers)) for end in ends]
            rows.append(chat(row, self.parents[row], len(prompt), self.lengths[row], ids))
        return "".join(json.dumps(row) + "\n" for row in rows)


def chat(chat_id: int, parent: int, prompt: int, output: int, ids: list[int]) -> dict[str, Any]:
    lengths = {"input_length": prompt, "output_length": output}
    links = {"chat_id": chat_id, "parent_chat_id": parent}
    return {**links, "timestamp": float(chat_id), **lengths, "hash_ids": ids}


def tokens(runs: list[Run]) -> Words:
    return tuple((source, start + k) for source, start, length in runs for k in range(length))


def common(a: Words, b: Words) -> int:
    pairs = zip(a, b, strict=False)
    return next((i for i, (x, y) in enumerate(pairs) if x != y), min(len(a), len(b)))


@each
@given(turns, st.integers(1, 5))
def test_content_has_what_words_share_up_to_a_part_of_a_block(write, drawn, block_size) -> None:
    chats = Chats(drawn, block_size)
    trace = Bailian(write("chats.jsonl", chats.lines()), block_size=block_size).load(0)
    assert trace.content is not None
    assert trace.has_output_identity
    rows = range(len(trace))
    found = [
        tokens(trace.content.runs(row) + trace.content.output_runs(row, chats.lengths[row]))
        for row in rows
    ]
    for one, other in itertools.combinations(rows, 2):
        shared = common(chats.served(one), chats.served(other))
        matched = common(found[one], found[other])
        assert shared - shared % block_size <= matched <= shared
    first = {parent: row for row, parent in reversed([*enumerate(chats.parents)]) if parent >= 0}
    for parent, child in first.items():
        prompt_and_output = len(chats.prompts[parent]) + chats.lengths[parent]
        assert common(found[parent], found[child]) >= prompt_and_output


@each
@given(turns, st.integers(1, 5))
def test_links_leave_prompts_the_whole_blocks_they_share(write, drawn, block_size) -> None:
    chats = Chats(drawn, block_size)
    file = Bailian(write("chats.jsonl", chats.lines()), block_size=block_size)
    by_ids, by_links = file.raw().content, file.load(0).content
    assert by_ids is not None
    assert by_links is not None
    whole = [prefix_hits(content) // block_size for content in (by_ids, by_links)]
    assert whole[0].tolist() == whole[1].tolist()
    assert by_ids.prompt_tokens().tolist() == by_links.prompt_tokens().tolist()


@each
@given(turns, st.integers(1, 5))
def test_hits_on_prompts_and_outputs_are_those_found_token_by_token(write, drawn, block_size):
    chats = Chats(drawn, block_size)
    trace = Bailian(write("chats.jsonl", chats.lines()), block_size=block_size).load(0)
    prompts = [tokens(trace.content.runs(row)) for row in range(len(trace))]
    served = [
        prompt + tokens(trace.content.output_runs(row, chats.lengths[row]))
        for row, prompt in enumerate(prompts)
    ]
    expected = [
        max((common(prompt, before) for before in served[:row]), default=0)
        for row, prompt in enumerate(prompts)
    ]
    assert prefix_hits(trace.content, output_tokens=trace.output_tokens).tolist() == expected


def load(write, *chats, **options):
    lines = "".join(json.dumps(row) + "\n" for row in chats)
    return Bailian(write("chats.jsonl", lines), **options).load(0)


def test_an_output_is_what_the_next_prompt_has_behind_the_earlier_one(write) -> None:
    trace = load(write, chat(0, -1, 20, 14, [0, 1]), chat(1, 0, 50, 7, [0, 2, 3, 4]))
    content = trace.content
    # the next prompt's second block begins with what the earlier prompt's second block is
    assert content.runs(0) == [(1, 0, 20)]
    assert content.output_runs(0, 14) == [(1, 36, 14)]
    assert content.runs(1) == [(1, 0, 20), (1, 36, 30)]


def test_of_two_answers_the_first_that_is_shown_is_the_output(write) -> None:
    trace = load(
        write,
        chat(0, -1, 16, 16, [0]),
        chat(1, 0, 32, 1, [0, 5]),
        chat(2, 0, 48, 1, [0, 7, 8]),
    )
    assert trace.content.output_runs(0, 16) == [(1, 5 * 16, 16)]
    assert prefix_hits(trace.content, output_tokens=trace.output_tokens).tolist() == [0, 32, 16]


@pytest.mark.parametrize(
    ("follow_up", "note"),
    [(chat(1, 0, 33, 1, [0, 1, 2]), SHORT), (chat(1, 0, 60, 1, [3, 1, 2, 4]), OTHER)],
)
def test_a_follow_up_that_does_not_go_on_is_a_new_prompt_and_counted(write, follow_up, note):
    trace = load(write, chat(0, -1, 20, 14, [0, 1]), follow_up)
    assert trace.notes == {note: 1}
    own = int(trace.content.output_source[0])
    assert trace.content.output_runs(0, 14) == [(own, 0, 14)]


def test_an_output_taken_as_one_token_is_the_requests_own(write) -> None:
    rows = [chat(0, -1, 16, 0, [0]), chat(1, 0, 32, 1, [0, 5])]
    trace = load(write, *rows, zero_tokens="one")
    assert trace.output_tokens.tolist() == [1, 1]
    own = int(trace.content.output_source[0])
    assert trace.content.output_runs(0, 1) == [(own, 0, 1)]


def test_outputs_stay_with_their_requests_when_rows_are_cut(write) -> None:
    rows = [chat(0, -1, 16, 16, [0]), chat(1, 0, 32, 1, [0, 5])]
    trace = load(write, *rows, limit=1)
    assert trace.content.output_runs(0, 16) == [(1, 5 * 16, 16)]
    assert np.array_equal(trace.parent, [-1])
