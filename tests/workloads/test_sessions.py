"""Sessions of a file begin when an arrival process says, and keep their own times."""

import json
from pathlib import Path

import numpy as np
import pytest
from trace_files import EXAMPLE_FILES, SESSION, agent

from workloads.sessions import Sessions
from workloads.trace import TraceError

ARRIVALS = {"kind": "poisson", "rate": 0.1}


@pytest.fixture
def folder(write):
    """Three sessions of three requests, the last of which has no output in one."""
    for number in range(3):
        requests = [agent(t, 128, int(t < 9 or number > 0), [1, 2]) for t in (0, 4, 9)]
        path = write(f"{number}.json", json.dumps({**SESSION, "requests": requests}))
    return str(Path(path).parent)


def test_sessions_begin_at_generated_times_and_keep_the_times_between_requests(folder):
    trace = Sessions(folder, arrivals=ARRIVALS, zero_tokens="one").load(7)
    starts = [trace.arrival_ns[trace.session == number][0] for number in range(3)]
    expected = Sessions(folder, arrivals=ARRIVALS).arrival_times_ns(3, 7)
    assert starts == expected.tolist()
    for number in range(3):
        arrivals = trace.arrival_ns[trace.session == number]
        assert (arrivals - arrivals[0]).tolist() == [0, 4 * 10**9, 9 * 10**9]


def test_content_moves_with_its_request(folder):
    trace = Sessions(folder, arrivals={"kind": "poisson", "rate": 1}, zero_tokens="one").load(1)
    source = np.array([trace.content.runs(i)[0][0] for i in range(len(trace))])
    assert (source == trace.session + 1).all()


def test_rows_are_refused_as_the_file_would_refuse_them(folder):
    with pytest.raises(TraceError, match="request 3: out is 0"):
        Sessions(folder, arrivals=ARRIVALS).load(0)
    assert len(Sessions(folder, arrivals=ARRIVALS, zero_tokens="drop").load(0)) == 8
    assert len(Sessions(folder, arrivals=ARRIVALS, zero_tokens="drop", limit=4).load(0)) == 4


def test_a_file_without_sessions_is_one_sentence(write):
    path = write(*EXAMPLE_FILES["azure"])
    with pytest.raises(TraceError, match="a azure file names no sessions"):
        Sessions(path, arrivals=ARRIVALS).load(0)


def test_parameters_are_checked():
    with pytest.raises(ValueError, match=r"zero_tokens: 'x' is unknown"):
        Sessions("f", arrivals=ARRIVALS, zero_tokens="x")
    with pytest.raises(ValueError, match=r"arrivals\.rate: must be above 0"):
        Sessions("f", arrivals={"kind": "poisson", "rate": 0})
