"""The layout of Qwen-Bailian's traces: chats, parents, sessions."""

from __future__ import annotations

import json

import numpy as np
import pytest

from workloads import open_file
from workloads.bailian import Bailian
from workloads.sharing import block_hits, prefix_hits
from workloads.trace import TraceError

LINK = "follow-ups whose turn before is not there"


def chats(*links, **cells):
    rows = [
        {
            "chat_id": chat,
            "parent_chat_id": parent,
            "timestamp": float(second),
            "input_length": 16 * (second + 1),
            "output_length": 1,
            "type": "text",
            "turn": 1,
            "hash_ids": list(range(second + 1)),
            **cells,
        }
        for second, (chat, parent) in enumerate(links)
    ]
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_turns_that_follow_one_another_are_a_session(write):
    trace = Bailian(write("c.jsonl", chats((7, -1), (3, -1), (8, 7), (1, 8), (2, 3)))).load(0)
    assert trace.parent.tolist() == [-1, -1, 0, 2, 1]
    assert trace.session.tolist() == [0, 1, 0, 0, 1]
    assert trace.provides == {"arrivals", "prefix identity", "sessions", "output identity"}


def test_a_turn_whose_turn_before_is_not_there_begins_a_session_and_is_counted(write):
    trace = Bailian(write("c.jsonl", chats((7, 99), (8, 7)))).load(0)
    assert trace.parent.tolist() == [-1, 0]
    assert trace.notes[LINK] == 1


def test_parents_move_with_their_rows(write):
    path = write("c.jsonl", chats((7, -1), (3, -1), (8, 7), (9, 3)))
    late = Bailian(path, start_s=1.0).load(0)
    assert late.parent.tolist() == [-1, -1, 0]
    assert late.notes[LINK] == 1
    assert late.session.tolist() == [1, 0, 1]


def test_a_chat_that_stands_twice_is_refused_or_dropped(write):
    path = write("c.jsonl", chats((7, -1), (8, -1), (7, -1)))
    with pytest.raises(TraceError) as error:
        Bailian(path).load(0)
    sentence = "line 3: chat_id is 7, as in an earlier row; accepted: each chat once"
    assert str(error.value) == f"{path}: {sentence}"
    trace = Bailian(path, on_bad_row="drop").load(0)
    assert len(trace) == 2
    assert trace.notes == {"dropped: chat_id as in an earlier row": 1}


@pytest.mark.parametrize(
    ("cells", "sentence"),
    [
        ({"chat_id": -1}, "chat_id is -1; accepted: a whole number from 0 to 4611686018427387904"),
        ({"chat_id": "7"}, "chat_id is '7'; accepted: "),
        ({"parent_chat_id": -2}, "parent_chat_id is -2; accepted: a whole number from -1 to "),
        ({"parent_chat_id": None}, "parent_chat_id is None; accepted: "),
        ({"hash_ids": [0, 1, 2]}, "hash_ids has 3 blocks of 16 tokens for a prompt of 16"),
        ({"hash_ids": [1.5]}, "hash_ids is [1.5]; accepted: whole numbers from 0 to "),
        ({"input_length": None}, "input_length is None; accepted: a whole number from 1 to "),
    ],
)
def test_a_bad_row_is_refused_with_its_line(write, cells, sentence):
    path = write("c.jsonl", chats((7, -1), **cells))
    with pytest.raises(TraceError) as error:
        Bailian(path).load(0)
    assert str(error.value).startswith(f"{path}: line 1: {sentence}")


def test_the_published_chats_all_show_the_outputs_that_they_follow(traces):
    file = open_file(str(traces / "sharegpt/sharegpt_chat_blksz_16.jsonl.gz"))
    trace = file.load(0)
    assert trace.notes == {}
    follow_ups = np.flatnonzero(trace.parent >= 0)
    assert len(follow_ups) == 2118
    before = trace.parent[follow_ups]
    history = trace.prompt_tokens[before] + trace.output_tokens[before]
    hits = prefix_hits(trace.content, output_tokens=trace.output_tokens)
    assert (hits[follow_ups] >= history).all()
    assert round(hits.sum() / trace.prompt_tokens.sum(), 4) == 0.8416


def test_links_add_no_block_to_what_the_published_prompts_share(traces):
    file = open_file(str(traces / "sharegpt/sharegpt_chat_blksz_16.jsonl.gz"))
    trace, raw = file.load(0), file.raw()
    prompt = trace.prompt_tokens
    by_ids = block_hits(prefix_hits(raw.content), prompt, 16)
    hits = prefix_hits(trace.content)
    whole = np.where(hits == prompt, hits, hits - hits % 16)
    assert block_hits(whole, prompt, 16).tolist() == by_ids.tolist()


@pytest.mark.parametrize(
    ("links", "sentence"),
    [
        (((7, -1), (8, 8)), "line 2: parent_chat_id of chat 8 is 8, itself; accepted: a chat that"),
        (((7, 8), (8, -1)), "line 1: parent_chat_id of chat 7 is 8, line 2; accepted: a chat that"),
    ],
)
@pytest.mark.parametrize("unsorted", ["error", "sort"])
def test_a_parent_that_does_not_come_before_is_refused_or_dropped(write, links, sentence, unsorted):
    path = write("c.jsonl", chats(*links))
    with pytest.raises(TraceError, match=sentence):
        Bailian(path, unsorted=unsorted).load(0)
    kept = Bailian(path, unsorted=unsorted, on_bad_row="drop").load(0)
    assert kept.notes["dropped: parent_chat_id of itself or a later row"] == 1
    assert kept.parent.tolist() == [-1]


def test_a_file_of_nothing_but_its_own_parents_is_refused_even_when_they_may_be_dropped(write):
    with pytest.raises(TraceError, match="line 1: parent_chat_id of chat 7 is 7, itself"):
        Bailian(write("c.jsonl", chats((7, 7))), on_bad_row="drop").load(0)


def test_a_parent_further_down_that_arrived_before_is_accepted_if_sorted(write):
    first, second = chats((7, -1), (8, 7)).splitlines(keepends=True)
    path = write("c.jsonl", second + first)
    assert Bailian(path, unsorted="sort").load(0).parent.tolist() == [-1, 0]
