"""Results of vLLM's bench serve: no times are made up."""

import json

import pytest
from trace_files import BENCH

from workloads.lengths import Lengths
from workloads.trace import TraceError
from workloads.vllm_bench import VLLMBench


@pytest.fixture
def result(write):
    """Write a result with these changes, keys without a value left out; its path."""

    def write_result(**changes):
        fields = {k: v for k, v in {**BENCH, **changes}.items() if v is not None}
        return write("bench.json", json.dumps(fields, indent=1))

    return write_result


def test_start_times_are_counted_from_the_first_arrival(result):
    trace = VLLMBench(result(start_times=[101.5, 100.25])).load(0)
    assert trace.arrival_s.tolist() == [0, 1.25]
    assert trace.prompt_tokens.tolist() == [7, 5]
    assert trace.notes == {"moved by sorting": 2}


def test_without_start_times_it_says_what_generates_them(result):
    path = result(start_times=None)
    with pytest.raises(TraceError, match=r"has no start_times; for a result .* 'kind: lengths'"):
        VLLMBench(path).load(0)
    trace = Lengths(path, arrivals={"kind": "poisson", "rate": 1}).load(0)
    assert trace.output_tokens.tolist() == [3, 4]


def test_a_request_that_failed_has_no_output(result):
    path = result(output_lens=[0, 4])
    with pytest.raises(TraceError, match="request 1: output_lens is 0; accepted: "):
        VLLMBench(path).load(0)
    trace = VLLMBench(path, zero_tokens="drop").load(0)
    assert trace.notes == {"dropped: no output": 1}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"input_lens": None}, "has no input_lens; save the result with --save-detailed"),
        ({"output_lens": 3}, "output_lens is 3; accepted: a list with a cell a request"),
        ({"output_lens": [3]}, "output_lens has 1 cells, start_times has 2; accepted: one a req"),
        ({"input_lens": [5, "x"]}, "request 2: input_lens is 'x'; accepted: "),
    ],
)
def test_a_bad_result_is_one_sentence(result, changes, sentence):
    with pytest.raises(TraceError, match=sentence):
        VLLMBench(result(**changes)).load(0)


def test_results_appended_to_a_file_are_refused(write):
    text = json.dumps(BENCH) + "\n" + json.dumps(BENCH)
    with pytest.raises(TraceError, match="is not a JSON document: Extra data: line 2"):
        VLLMBench(write("bench.json", text)).load(0)
