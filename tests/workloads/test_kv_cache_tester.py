"""kv-cache-tester: sessions of coding agents, alone and in folders."""

import json
from pathlib import Path

import numpy as np
import pytest
from trace_files import EXAMPLE_FILES, SESSION, agent

from workloads import open_file
from workloads.content import own_prompt
from workloads.kv_cache_tester import KVCacheTester
from workloads.sharing import prefix_hits
from workloads.trace import TraceError


@pytest.fixture
def session(write):
    """Write a session with these requests; its path."""

    def write_session(requests, name="trace_0001.json", **changes):
        return write(name, json.dumps({**SESSION, "requests": requests, **changes}))

    return write_session


def test_ids_are_whole_blocks_and_the_tail_is_the_requests_own(session):
    content = KVCacheTester(session([agent(0, 140, 5, [1, 2])])).load(0).content
    assert content.runs(0) == [(1, 64, 128), (own_prompt(0), 128, 12)]


def test_requests_of_sub_agents_are_timed_from_its_start_and_share_the_sessions_ids(write):
    trace = KVCacheTester(write(*EXAMPLE_FILES["kv_cache_tester"])).load(0)
    assert trace.arrival_s.tolist() == [0, 1.5, 20.25]
    assert trace.notes == {"sub-agents, whose requests are timed from their start": 1}
    assert prefix_hits(trace.content).tolist() == [0, 0, 128]
    assert trace.session.tolist() == [0, 0, 0]


def test_a_sub_agent_may_have_sub_agents(session):
    inner = {"t": 2, "type": "subagent", "requests": [agent(0.5, 64, 1, [1])]}
    outer = {"t": 10, "type": "subagent", "requests": [agent(0, 64, 1, [1]), inner]}
    trace = KVCacheTester(session([outer, agent(11, 64, 1, [1])])).load(0)
    assert trace.arrival_s.tolist() == [10, 11, 12.5]
    assert trace.notes["moved by sorting"] == 2
    with pytest.raises(TraceError, match=r"request 3 arrives 1\.5 s before request 2"):
        KVCacheTester(session([outer, agent(11, 64, 1, [1])]), unsorted="error").load(0)


def test_sub_agents_that_start_too_late_or_lie_too_deep_are_one_sentence(session):
    late = [agent(4e9, 64, 1, [1])]
    late = [{"t": 4e9, "type": "subagent", "requests": late}]
    with pytest.raises(TraceError, match="arrival_ns is 8000000000000000000; accepted: 0 to"):
        KVCacheTester(session(late)).load(0)
    with pytest.raises(TraceError, match="request 1: is a sub-agent without t or requests"):
        KVCacheTester(session([{"t": 4e9, "type": "subagent", "requests": late}])).load(0)
    deep = "[]"
    for _ in range(480):
        deep = '[{"type": "subagent", "t": 0, "requests": ' + deep + "}]"
    text = json.dumps({**SESSION, "requests": 0}).replace('"requests": 0', f'"requests": {deep}')
    path = Path(session([]))
    path.write_text(text)
    with pytest.raises(TraceError, match=r"there are no rows|is not a JSON document"):
        KVCacheTester(str(path)).load(0)


def test_ids_mean_nothing_outside_their_file(session):
    requests = [agent(0, 64, 1, [1]), agent(5, 128, 1, [1, 2])]
    folder = str(Path(session(requests, "a.json")).parent)
    session(requests, "b.json.gz")
    file = open_file(folder)
    assert file.kind == "kv_cache_tester"
    trace = file.load(0)
    assert trace.arrival_s.tolist() == [0, 0, 5, 5]
    assert trace.session.tolist() == [0, 1, 0, 1]
    assert prefix_hits(trace.content).tolist() == [0, 0, 64, 64]


def test_a_folder_without_sessions_is_one_sentence(tmp_path):
    with pytest.raises(TraceError, match="the folder holds no session"):
        KVCacheTester(str(tmp_path)).load(0)
    with pytest.raises(TraceError, match="is in none of the known formats"):
        open_file(str(tmp_path))


def test_a_bad_file_of_a_folder_is_named(session, write):
    folder = str(Path(session([agent(0, 64, 1, [1])], "a.json")).parent)
    session([agent(0, 64, 1, [1]), agent(0, "x", 1, [1])], "b.json")
    with pytest.raises(TraceError, match=r"b\.json: request 2: in is 'x'; accepted: "):
        KVCacheTester(folder).load(0)
    assert len(KVCacheTester(folder, on_bad_row="drop").load(0)) == 2


def test_a_request_without_output_is_refused_dropped_or_taken_as_one_token(session):
    path = session([agent(0, 64, 0, [1]), agent(3, 64, 1, [1])])
    with pytest.raises(TraceError, match="request 1: out is 0; accepted: a whole number from 1"):
        KVCacheTester(path).load(0)
    assert len(KVCacheTester(path, zero_tokens="drop").load(0)) == 1
    assert KVCacheTester(path, zero_tokens="one").load(0).output_tokens.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"block_size": 0}, "block_size is 0; accepted: a whole number from 1"),
        ({"block_size": None}, "block_size is None; accepted: "),
        ({"hash_id_scope": "global"}, "hash_id_scope is 'global'; accepted: 'local'"),
        ({"requests": {}}, "requests is {}; accepted: a list"),
        ({"requests": []}, "there are no rows; at least one request is needed"),
        ({"requests": [5]}, "request 1: is not a JSON object"),
        ({"requests": [{"type": "x"}]}, "request 1: type is 'x'; accepted: n, s, subagent"),
        ({"requests": [{"type": "subagent"}]}, "request 1: is a sub-agent without t or requests"),
        ({"requests": [agent(0, 64, 1, [1, 2])]}, "has 2 blocks of 64 tokens for a prompt of 64"),
        ({"requests": [agent(0, 127, 1, [1, 2])]}, "has 2 blocks .* of 127; accepted: at most 1"),
        ({"requests": [agent(0, 64, 1, [True])]}, r"hash_ids is \[True\]; accepted: whole"),
        ({"requests": [agent(-1, 64, 1, [])]}, "request 1: t is -1; accepted: seconds"),
    ],
)
def test_what_is_no_session_is_one_sentence(session, changes, sentence):
    path = session(**{"requests": SESSION["requests"], **changes})
    with pytest.raises(TraceError, match=sentence):
        KVCacheTester(path).load(0)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[]", "is not a JSON object; accepted: one object a file"),
        ('{"requests": [', "is not a JSON document: Expecting value: line 1"),
        ('{"a": 1, "a": 2}', "is not a JSON document: the key 'a' stands twice in an object"),
        ("[" * 100_000, "is not a JSON document: "),
        (b"\xff", "is not a JSON document: "),
        ('{"a": ' + "9" * 5000 + "}", "is not a JSON document: "),
    ],
)
def test_what_is_no_document_is_one_sentence(write, text, sentence):
    with pytest.raises(TraceError, match=sentence):
        KVCacheTester(write("t.json", text)).load(0)


def test_content_costs_runs_and_not_blocks(session):
    ids = list(range(1, 5001))
    content = KVCacheTester(session([agent(i, 64 * 5000, 1, ids) for i in range(20)])).load(0)
    assert np.diff(content.content.first_run).tolist() == [1] * 20
