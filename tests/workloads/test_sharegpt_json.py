"""ShareGPT as text: any tokenizer's lengths, and replies that later prompts contain."""

import builtins
import json

import pytest
from trace_files import CONVERSATIONS

from workloads.content import own_output
from workloads.sharegpt_json import ShareGPTJSON
from workloads.sharing import prefix_hits
from workloads.trace import TraceError

ARRIVALS = {"kind": "poisson", "rate": 1}


@pytest.fixture
def load(write, companions):
    """Read conversations, those of the example unless others are given."""
    pytest.importorskip("tokenizers", reason="its extra is not installed")

    def read(conversations=CONVERSATIONS, seed=0, **parameters):
        path = write("conversations.json", json.dumps(conversations))
        tokenizer = str(companions / "tokenizer.json")
        return ShareGPTJSON(path, tokenizer, ARRIVALS, **parameters).load(seed)

    return read


def talk(*messages):
    entries = [{"from": role, "value": text} for role, text in messages]
    return {"id": "x", "conversations": entries}


def test_first_turns_are_the_message_and_the_reply_that_open_a_conversation(load):
    trace = load()
    assert trace.prompt_tokens.tolist() == [4, 4]
    assert trace.output_tokens.tolist() == [2, 2]
    assert prefix_hits(trace.content).tolist() == [0, 3]  # "What is a"
    assert trace.session is None


def test_every_turn_has_the_conversation_as_its_prompt(load):
    trace = load(turns="every", think_s=1.5)
    assert trace.prompt_tokens.tolist() == [4, 9, 4]
    assert trace.output_tokens.tolist() == [2, 1, 2]
    assert trace.parent.tolist() == [-1, 0, -1]
    assert trace.think_ns.tolist() == [1_500_000_000] * 3
    assert trace.arrival_ns[0] == trace.arrival_ns[1] < trace.arrival_ns[2]
    assert trace.has_output_identity
    assert trace.provides >= {"sessions", "follow-ups", "output identity", "prefix identity"}


def test_a_reply_in_a_later_prompt_is_the_output_of_its_turn(load):
    trace = load(turns="every")
    assert (own_output(0), 0, 2) in trace.content.runs(1)
    assert prefix_hits(trace.content).tolist() == [0, 4, 3]


def test_messages_of_no_pair_are_text_of_the_history(load):
    conversation = talk(
        ("gpt", "Hello"), ("human", "What is"), ("human", "a block"), ("gpt", "No"), ("gpt", "No")
    )
    trace = load([conversation], turns="every")
    assert trace.prompt_tokens.tolist() == [5]
    assert trace.output_tokens.tolist() == [1]


def test_conversations_that_open_in_another_way_are_counted(load):
    others = [talk(("gpt", "Hello"), ("human", "What")), talk(("human", "What")), talk()]
    trace = load([*others, *CONVERSATIONS])
    assert len(trace) == 2
    assert trace.notes == {
        "dropped: conversations that do not open with a message and its reply": 3
    }


def test_turns_without_tokens_and_turns_too_long_are_counted(load):
    empty = talk(("human", " "), ("gpt", "No"))
    trace = load([*CONVERSATIONS, empty], turns="every", max_total_tokens=6)
    assert trace.prompt_tokens.tolist() == [4, 4]
    assert trace.notes == {"dropped: no prompt": 1, "dropped: beyond max_total_tokens": 1}
    assert load([empty], zero_tokens="one").prompt_tokens.tolist() == [1]


def test_a_limit_keeps_the_first_conversations(load):
    trace = load(turns="every", limit=1)
    assert len(trace) == 2
    assert trace.notes == {"cut: conversations beyond limit": 1}


@pytest.mark.parametrize(
    ("conversations", "sentence"),
    [
        ({}, "is not a JSON list; accepted: a list of conversations"),
        ([5], "conversation 1: is no conversation; accepted: an object with a list"),
        ([{"conversations": [5]}], "conversation 1: from is None; accepted: human, "),
        ([talk(("human", 5))], "conversation 1: value is 5; accepted: text"),
        ([talk(("human", "\ud83d"))], "conversation 1: value is .*; accepted: text"),
        ([talk(("robot", "No"))], "conversation 1: from is 'robot'; accepted: human, "),
        ([], "there are no rows; at least one request is needed"),
        ([talk(("human", ""), ("gpt", "No"))], "at least one"),
    ],
)
def test_a_bad_file_is_one_sentence(load, conversations, sentence):
    with pytest.raises(TraceError, match=sentence):
        load(conversations)


def test_bad_conversations_can_be_dropped(load):
    trace = load([5, *CONVERSATIONS], on_bad_row="drop")
    assert trace.notes == {"dropped: conversation not accepted": 1}


def test_a_file_that_is_no_tokenizer_is_one_sentence(write, companions):
    pytest.importorskip("tokenizers", reason="its extra is not installed")
    path = str(companions / "conversations.json")
    for bad in (write("bad.json", "{}"), "none.json"):
        with pytest.raises(TraceError, match=r"is not a readable tokenizer\.json: "):
            ShareGPTJSON(path, bad, ARRIVALS).load(0)


def test_without_the_package_it_says_how_to_get_it(companions, monkeypatch):
    imports = builtins.__import__

    def without(name, *rest, **more):
        if name == "tokenizers":
            raise ImportError
        return imports(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    workload = ShareGPTJSON(
        str(companions / "conversations.json"), str(companions / "tokenizer.json"), ARRIVALS
    )
    with pytest.raises(TraceError, match=r"needs the package tokenizers; .*kvsim\[tokenizers\]"):
        workload.load(0)


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"tokenizer": ""}, "tokenizer: must be the name of a file"),
        ({"turns": "all"}, "turns: 'all' is unknown"),
        ({"think_s": -1}, "think_s: must be at least 0"),
        ({"max_total_tokens": 1}, "max_total_tokens: must be a whole number, from 2"),
        ({"zero_tokens": None}, "zero_tokens: None is unknown"),
    ],
)
def test_parameters_are_checked(parameters, sentence):
    with pytest.raises(ValueError, match=sentence):
        ShareGPTJSON(**{"path": "f", "tokenizer": "t", "arrivals": ARRIVALS, **parameters})
