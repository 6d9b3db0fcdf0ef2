"""LMCache's agent traces: told from Mooncake's, sessions, steps without a word."""

from __future__ import annotations

import json

import pytest

from workloads import open_file
from workloads.lmcache_agent import LMCacheAgent
from workloads.sharing import prefix_hits
from workloads.trace import TraceError


def step(second, prompt, output, ids, session):
    lengths = {"input_length": prompt, "output_length": output, "hash_ids": ids}
    return json.dumps({"timestamp": second * 1000, **lengths, "session_id": session}) + "\n"


STEPS = (
    step(0, 10, 29, [0], "s000")
    + step(1, 30, 0, [1, 2], "s001")
    + step(2, 30, 0, [1, 2], "s000")
    + step(3, 51, 4, [1, 3, 4, 5], None)
    + step(4, 10, 50, [0], "s001")
)


def test_a_step_without_a_word_is_refused_dropped_or_taken_as_one_token(write):
    path = write("a.jsonl", STEPS)
    with pytest.raises(TraceError, match=r"line 2: output_length is 0; accepted: a whole number "):
        LMCacheAgent(path).load(0)
    dropped = LMCacheAgent(path, zero_tokens="drop").load(0)
    assert dropped.notes == {"dropped: no output": 2}
    assert prefix_hits(dropped.content).tolist() == [0, 0, 10]
    kept = LMCacheAgent(path, zero_tokens="one").load(0)
    assert kept.output_tokens.tolist() == [29, 1, 1, 4, 50]
    assert kept.notes == {"altered: no output, taken as one token": 2}
    assert prefix_hits(kept.content).tolist() == [0, 0, 30, 16, 10]


def test_sessions_have_names_and_a_step_without_one_is_its_own(write):
    trace = LMCacheAgent(write("a.jsonl", STEPS), zero_tokens="one").load(0)
    assert trace.session.tolist() == [0, 1, 0, 2, 1]
    assert trace.provides == {"arrivals", "prefix identity", "sessions"}


def test_a_session_that_is_no_name_is_refused(write):
    path = write("a.jsonl", step(0, 10, 2, [0], ["s000"]))
    with pytest.raises(TraceError, match=r"line 1: session_id is \['s000'\]; accepted: text or a "):
        LMCacheAgent(path).load(0)


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (step(0, 10, 2, [0], "s"), "lmcache_agent"),
        (step(0, 1600, 2, list(range(100)), "s"), "lmcache_agent"),
        # so long that the session is not within what is looked at
        (step(0, 160_000, 2, list(range(10_000)), "s"), "lmcache_agent"),
        (step(0, 1600, 2, [0, 1, 2, 3], "s").replace(', "session_id": "s"', ""), "mooncake"),
        (step(0, 1600, 2, [], "s").replace(', "session_id": "s"', ""), "mooncake"),
    ],
)
def test_its_files_are_told_from_mooncakes(write, line, kind):
    assert open_file(write("a.jsonl", line)).kind == kind


def test_the_published_agents_sessions_are_as_many_as_said(traces):
    for name, sessions in (("miniswe", 20), ("taubench", 24)):
        path = str(traces / f"lmcache-agent/{name}_blksz_16.jsonl.gz")
        trace = LMCacheAgent(path, zero_tokens="one").load(0)
        assert len(set(trace.session.tolist())) == sessions
