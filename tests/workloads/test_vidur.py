"""Vidur's and Sarathi's CSV files, and Nanoflow's: with arrivals, and lengths only."""

from __future__ import annotations

import pytest

from workloads import open_file
from workloads.lengths import Lengths
from workloads.nanoflow import Nanoflow
from workloads.trace import TraceError
from workloads.vidur import Vidur

LENGTHS = (
    "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n"
    "3742,284,4026,0.0759\n18,243,261,13.5\n1,306,300,27.8\n"
)
ALL_AT_ONCE = {"kind": "all_at_once"}
NANOFLOW = "TIMESTAMP,ContextTokens,GeneratedTokens\nXXX,42,285\nXXX,241402,82\n"


def test_arrivals_are_seconds_from_the_traces_zero(write):
    path = write(
        "v.csv", "arrived_at,num_prefill_tokens,num_decode_tokens\n1.5,1,2\n4.314579,3,4\n"
    )
    trace = Vidur(path).load(0)
    assert trace.arrival_ns.tolist() == [1_500_000_000, 4_314_579_000]
    assert trace.provides == {"arrivals"}


def test_a_file_without_arrivals_says_how_to_use_it(write):
    path = write("v.csv", LENGTHS)
    with pytest.raises(TraceError) as error:
        Vidur(path).load(0)
    assert str(error.value) == (
        f"{path}: no column arrived_at; found: 'num_prefill_tokens', 'num_decode_tokens', "
        "'num_total_tokens', 'pd_ratio'; for a file without arrival times use 'kind: lengths', "
        "which generates them"
    )
    assert "arrival_ns" not in Vidur(path).raw().fields
    trace = Lengths(path, arrivals=ALL_AT_ONCE).load(0)
    assert trace.prompt_tokens.tolist() == [3742, 18, 1]


def test_a_ratio_that_nobody_can_tell_is_ignored_and_a_wrong_total_counted(write):
    trace = Lengths(write("v.csv", LENGTHS), arrivals=ALL_AT_ONCE).load(0)
    assert trace.notes == {
        "ignored: column 'pd_ratio'": 3,
        "kept: num_total_tokens is not the sum of prompt and output": 1,
    }


def test_the_two_published_forms_of_one_trace_are_the_same_requests(traces):
    vidur = open_file(str(traces / "vidur/splitwise_conv.csv.gz")).load(0)
    azure = open_file(str(traces / "azure/AzureLLMInferenceTrace_conv.csv")).load(0)
    assert vidur.prompt_tokens.tolist() == azure.prompt_tokens.tolist()
    assert vidur.output_tokens.tolist() == azure.output_tokens.tolist()
    assert abs(vidur.arrival_ns - azure.arrival_ns).max() < 1000


def test_nanoflows_lengths_are_told_from_an_azure_trace(write):
    for text in (NANOFLOW, NANOFLOW.replace("\n", "\r\n"), NANOFLOW.replace("\n", "\n\n")):
        file = open_file(write("n.csv", text))
        assert file.kind == "nanoflow"
        assert file.lengths().fields["prompt_tokens"].tolist() == [42, 241402]


def test_nanoflows_lengths_cannot_be_replayed_without_arrivals(write):
    path = write("n.csv", NANOFLOW)
    with pytest.raises(TraceError) as error:
        Nanoflow(path).load(0)
    assert str(error.value) == (
        f"{path}: has no arrival times; for a file without arrival times use 'kind: lengths', "
        "which generates them"
    )
    trace = Lengths(path, arrivals=ALL_AT_ONCE).load(0)
    assert trace.output_tokens.tolist() == [285, 82]
    assert trace.notes == {"ignored: column 'TIMESTAMP'": 2}
