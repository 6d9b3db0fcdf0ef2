"""The lengths of a file under generated arrivals."""

from __future__ import annotations

import pytest

from workloads.lengths import Lengths
from workloads.trace import TraceError

POISSON = {"kind": "poisson", "rate": 2.0}


def test_a_file_without_times_gets_them_from_a_generator(write):
    path = write("t.csv", "prompt_tokens,output_tokens,max_tokens\n3,4,10\n5,6,20\n")
    trace = Lengths(path, arrivals={"kind": "constant", "rate": 2}).load(0)
    assert trace.arrival_ns.tolist() == [0, 500_000_000]
    assert trace.prompt_tokens.tolist() == [3, 5]
    assert trace.provides == {"arrivals", "max_tokens"}


def test_times_that_a_file_has_are_not_read_and_that_is_noted(write):
    path = write("t.csv", "arrival_s,prompt_tokens,output_tokens\nlater,3,4\nsoon,5,6\n")
    trace = Lengths(path, arrivals=POISSON).load(0)
    assert trace.notes == {"ignored: column 'arrival_s'": 2}
    assert trace.digest() == Lengths(path, arrivals=POISSON).load(0).digest()
    assert trace.digest() != Lengths(path, arrivals=POISSON).load(1).digest()


def test_the_published_lengths_with_a_placeholder_for_times_can_be_used(traces):
    path = str(traces / "nanoflow/sharegpt.csv.gz")
    trace = Lengths(path, arrivals=POISSON, limit=1000).load(0)
    assert len(trace) == 1000
    assert trace.notes == {
        "cut: beyond limit": 57_787,
        "ignored: column 'TIMESTAMP', in the whole file": 58_787,
    }


def test_lengths_refuse_what_files_refuse(write):
    path = write("t.csv", "prompt_tokens,output_tokens\n3,4\n5,0\n")
    with pytest.raises(TraceError, match="line 3: output_tokens is '0'"):
        Lengths(path, arrivals=POISSON).load(0)
    assert len(Lengths(path, arrivals=POISSON, on_bad_row="drop").load(0)) == 1
    with pytest.raises(TraceError, match=r"is in none of the known formats: .*azure, .*, table"):
        Lengths(write("t.csv", "a,b\n1,2\n"), arrivals=POISSON).load(0)
    with pytest.raises(ValueError, match=r"^limit: must be a whole number, at least 1, got 0"):
        Lengths(path, arrivals=POISSON, limit=0)


def test_requests_without_tokens_are_dropped_or_taken_as_one_token(write):
    path = write("t.csv", "prompt_tokens,output_tokens\n3,4\n5,0\n")
    dropped = Lengths(path, arrivals=POISSON, zero_tokens="drop").load(0)
    assert dropped.prompt_tokens.tolist() == [3]
    assert dropped.notes == {"dropped: no output": 1}
    assert Lengths(path, arrivals=POISSON, zero_tokens="one").load(0).output_tokens.tolist() == [
        4,
        1,
    ]
    with pytest.raises(ValueError, match=r"^zero_tokens: 'two' is unknown"):
        Lengths(path, arrivals=POISSON, zero_tokens="two")


def test_what_the_file_says_of_sharing_is_replaced_only_where_that_is_asked_and_counted(traces):
    path = str(traces / "mooncake/mooncake_trace_1000.jsonl")
    plain = Lengths(path, arrivals=POISSON).load(0)
    sampled = Lengths(path, arrivals=POISSON, num_samples=2).load(0)
    assert sampled.content is not None
    assert set(sampled.num_samples) == {2}
    shared = Lengths(path, arrivals=POISSON, prefix=[80]).load(0)
    assert shared.notes["ignored: content of the file, replaced"] == 1000
    assert shared.prompt_tokens.tolist() == (plain.prompt_tokens + 80).tolist()
    assert shared.content.runs(5)[0] == (1, 0, 80)


def test_the_lengths_and_times_of_a_public_trace_are_found_by_its_name(traces, monkeypatch):
    monkeypatch.setenv("KVSIM_SHARED", str(traces.parent))
    named = {"name": "burstgpt-400"}
    times = {"kind": "trace_times", **named, "rate": 2, "how": "stretch"}
    trace = Lengths(**named, arrivals=times, zero_tokens="drop").load(0)
    assert len(trace) == 383
    with pytest.raises(ValueError, match=r"^path: one of path and name is needed, and only one"):
        Lengths("a.csv", arrivals=POISSON, **named)
    with pytest.raises(ValueError, match=r"^path: one of path and name is needed, and only one"):
        Lengths(arrivals=POISSON)
    with pytest.raises(ValueError, match=r"^name: 'burst' is unknown"):
        Lengths(name="burst", arrivals=POISSON)
