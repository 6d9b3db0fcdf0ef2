"""Equal content has one form, and is found token by token or run by run alike."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.content import (
    Content,
    ContentBuilder,
    Run,
    as_runs,
    own_output,
    own_prompt,
    token_runs,
)
from workloads.sharing import block_hits, prefix_hits

runs = st.lists(st.tuples(st.integers(1, 2), st.integers(0, 6), st.integers(1, 4)), max_size=6)
prompts = st.lists(runs.filter(len), min_size=1, max_size=12)


def build(lists: list[list[Run]]) -> Content:
    builder = ContentBuilder()
    for cells in lists:
        builder.add(cells, sum(length for _, _, length in cells))
    return builder.build()


def tokens(cells: list[Run]) -> list[tuple[int, int]]:
    return [(source, start + i) for source, start, length in cells for i in range(length)]


def common(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> int:
    pairs = zip(a, b, strict=False)
    return next((i for i, (x, y) in enumerate(pairs) if x != y), min(len(a), len(b)))


@given(prompts)
def test_hits_are_those_of_a_matcher_that_compares_token_by_token(lists: list[list[Run]]) -> None:
    words = [tokens(cells) for cells in lists]
    expected = [
        max((common(word, earlier) for earlier in words[:i]), default=0)
        for i, word in enumerate(words)
    ]
    assert prefix_hits(build(lists)).tolist() == expected


@given(prompts)
def test_runs_hold_the_same_tokens_and_none_continues_another(lists: list[list[Run]]) -> None:
    content = build(lists)
    for request, cells in enumerate(lists):
        found = content.runs(request)
        assert tokens(found) == tokens(cells)
        for (source, start, length), (next_source, next_start, _) in itertools.pairwise(found):
            assert (next_source, next_start) != (source, start + length)


@given(prompts, st.data())
def test_taking_rows_takes_their_content(lists: list[list[Run]], data: st.DataObject) -> None:
    content = build(lists)
    kept = data.draw(st.lists(st.integers(0, len(lists) - 1), min_size=1))
    taken = content.take(np.array(kept))
    assert [taken.runs(i) for i in range(len(kept))] == [content.runs(i) for i in kept]
    assert taken.prompt_tokens().tolist() == content.prompt_tokens()[kept].tolist()
    assert taken.output_source.tolist() == content.output_source[kept].tolist()


def test_an_output_is_what_is_known_of_it_and_then_the_requests_own() -> None:
    known = as_runs([np.array([[1, 4, 3], [2, 0, 2]]), np.empty((0, 3), np.int64)])
    content = replace(build([[(1, 0, 4)], [(1, 0, 9)]]), outputs=known)
    own = own_output(0)
    expected = [(1, 4, 3), (2, 0, 2), (own, 5, 2)]
    for num_tokens in range(8):
        assert tokens(content.output_runs(0, num_tokens)) == tokens(expected)[:num_tokens]
    assert content.output_runs(1, 3) == [(own_output(1), 0, 3)]
    turned = content.take(np.array([1, 0]))
    assert turned.output_runs(0, 3) == [(own_output(1), 0, 3)]
    assert turned.output_runs(1, 6) == [(1, 4, 3), (2, 0, 2), (own, 5, 1)]
    assert content.filled().output_runs(0, 3) == [(1, 4, 3)]
    assert len(content.columns()) == 9


def test_outputs_are_cached_too_if_their_lengths_are_given() -> None:
    known = as_runs([np.array([[1, 4, 3]]), np.empty((0, 3), np.int64)])
    content = replace(build([[(1, 0, 4)], [(1, 0, 9)]]), outputs=known)
    assert prefix_hits(content).tolist() == [0, 4]
    assert prefix_hits(content, output_tokens=np.array([3, 1])).tolist() == [0, 7]
    assert prefix_hits(content, np.array([0, 1]), np.array([3, 1])).tolist() == [0, 0]


def test_what_blocks_leave_of_a_prompt_is_its_own() -> None:
    builder = ContentBuilder()
    builder.add_blocks([7, 8, 3], 16, 50, "file")
    builder.add_blocks([7, 8], 16, 30, "file")
    content = builder.build()
    assert content.runs(0) == [(1, 112, 32), (1, 48, 16), (own_prompt(0), 48, 2)]
    assert content.runs(1) == [(1, 112, 30)]
    assert content.output_source.tolist() == [own_output(0), own_output(1)]


def test_a_partial_last_block_matches_the_whole_one_as_far_as_it_goes() -> None:
    builder = ContentBuilder()
    builder.add_blocks([5, 6], 16, 32, "file")
    builder.add_blocks([5, 6], 16, 20, "file")
    assert prefix_hits(builder.build()).tolist() == [0, 20]


def test_ids_of_different_files_are_different_blocks() -> None:
    builder = ContentBuilder()
    for name in ("a", "b", "a"):
        builder.add_blocks([1, 2], 8, 16, name)
    assert prefix_hits(builder.build()).tolist() == [0, 0, 16]


def test_requests_of_different_namespaces_share_nothing() -> None:
    content = build([[(1, 0, 9)], [(1, 0, 9)], [(1, 0, 9)]])
    assert prefix_hits(content, np.array([0, 1, 0])).tolist() == [0, 0, 9]


def test_token_ids_that_grow_by_one_are_one_run() -> None:
    assert token_runs(np.array([4, 5, 6, 6, 9])).tolist() == [[0, 4, 3], [0, 6, 1], [0, 9, 1]]


def test_a_prompt_shorter_than_its_content_is_refused() -> None:
    with pytest.raises(ValueError, match="has content for 9 tokens, its prompt has 8"):
        ContentBuilder().add([(1, 0, 9)], 8)


def test_an_empty_prompt_can_be_given_a_token_of_its_own() -> None:
    builder = ContentBuilder()
    for length in (3, 0, 0, 2):
        builder.add([(1, 0, length)] if length else [], length)
    filled = builder.build().filled()
    assert filled.prompt_tokens().tolist() == [3, 1, 1, 2]
    assert prefix_hits(filled).tolist() == [0, 0, 0, 2]


def test_hits_that_end_within_a_block_are_no_blocks() -> None:
    assert block_hits(np.array([16, 20, 0]), np.array([32, 20, 5]), 16).tolist() == [1, 2, 0]
    with pytest.raises(ValueError, match="request 0: 20 tokens are no blocks of 16"):
        block_hits(np.array([20]), np.array([32]), 16)
