"""LLMServingSim's traces: token ids, the form without them, and what was measured."""

import json

import pytest

from workloads import open_file
from workloads.content import TOKEN_IDS
from workloads.llmservingsim import LLMServingSim
from workloads.llmservingsim_measured import LLMServingSimMeasured
from workloads.sharing import prefix_hits
from workloads.trace import TraceError

ROW = {
    "input_toks": 3,
    "output_toks": 2,
    "arrival_time_ns": 5,
    "input_tok_ids": [7, 8, 9],
    "output_tok_ids": [10, 3],
}
TABLE = "input_toks\toutput_toks\tarrival_time_ns\n10\t70\t46926808\n22\t104\t347938952\n"


def lines(*rows: dict[str, object]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def without_ids(row: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in row.items() if not key.endswith("_ids")}


def test_prompts_are_runs_of_token_ids(write):
    second = ROW | {"input_toks": 4, "input_tok_ids": [7, 8, 50, 4]}
    trace = LLMServingSim(write("a.jsonl", lines(ROW, second))).load(0)
    assert trace.content is not None
    assert trace.content.runs(0) == [(TOKEN_IDS, 7, 3)]
    assert trace.content.runs(1) == [(TOKEN_IDS, 7, 2), (TOKEN_IDS, 50, 1), (TOKEN_IDS, 4, 1)]
    assert prefix_hits(trace.content).tolist() == [0, 2]
    assert {"arrivals", "prefix identity"} <= trace.provides


def test_outputs_are_token_ids_so_that_a_later_prompt_may_contain_them(write):
    turn = ROW | {"input_toks": 6, "input_tok_ids": [7, 8, 9, 10, 3, 4]}
    trace = LLMServingSim(write("a.jsonl", lines(ROW, turn))).load(0)
    assert trace.content is not None
    assert "output identity" in trace.provides
    assert trace.content.output_runs(0, 2) == [(TOKEN_IDS, 10, 1), (TOKEN_IDS, 3, 1)]
    assert trace.content.runs(1) == [(TOKEN_IDS, 7, 4), (TOKEN_IDS, 3, 2)]
    without = [{k: v for k, v in row.items() if k != "output_tok_ids"} for row in (ROW, turn)]
    trace = LLMServingSim(write("b.jsonl", lines(*without))).load(0)
    assert "output identity" not in trace.provides
    assert "prefix identity" in trace.provides


def test_files_without_ids_have_lengths_and_times_alone(write):
    trace = LLMServingSim(write("a.jsonl", lines(without_ids(ROW)))).load(0)
    assert trace.provides == {"arrivals"}


def test_the_older_form_is_separated_by_tabs(write):
    file = open_file(write("rate10.tsv", TABLE))
    assert file.kind == "llmservingsim"
    trace = file.load(0)
    assert trace.arrival_ns.tolist() == [46_926_808, 347_938_952]
    assert trace.prompt_tokens.tolist() == [10, 22]
    assert trace.output_tokens.tolist() == [70, 104]
    assert trace.provides == {"arrivals"}


def test_a_bad_row_between_tabs_is_named(write):
    with pytest.raises(TraceError, match=r"line 4: output_toks is 'x'; accepted: a whole number"):
        LLMServingSim(write("a.tsv", TABLE + "5\tx\t400000000\n")).load(0)
    with pytest.raises(TraceError, match=r"line 4: has 2 cells; accepted: 3"):
        LLMServingSim(write("b.tsv", TABLE + "5\t400000000\n")).load(0)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"input_toks": 4}, "input_tok_ids has 3 ids, input_toks is 4; accepted: as many"),
        ({"output_toks": 1}, "output_tok_ids has 2 ids, output_toks is 1; accepted: as many"),
        ({"input_tok_ids": [7, -8, 9]}, r"input_tok_ids is \[7, -8, 9\]; accepted: whole numbers"),
        ({"output_tok_ids": None}, "output_tok_ids is None; accepted: whole numbers"),
        ({"input_toks": "many"}, "input_toks is 'many'; accepted: a whole number"),
    ],
)
def test_ids_that_do_not_go_with_the_lengths_are_refused(write, change, sentence):
    path = write("a.jsonl", lines(ROW, ROW | change))
    with pytest.raises(TraceError, match=f"line 2: {sentence}"):
        LLMServingSim(path).load(0)
    assert len(LLMServingSim(path, on_bad_row="drop").load(0)) == 1


def test_ids_stand_in_all_rows_or_in_none(write):
    path = write("a.jsonl", lines(ROW, without_ids(ROW)))
    with pytest.raises(TraceError, match="line 2: has no lists of ids; the first object has "):
        LLMServingSim(path).load(0)


def test_measured_requests_start_at_the_first_arrival(write):
    row = {"request_id": "b", "input_toks": 23, "output_toks": 5, "queued_ts": 1.0}
    path = write(
        "requests.jsonl",
        lines(row | {"arrival_time": 1787267980.25}, row | {"arrival_time": 1787267980.75}),
    )
    trace = LLMServingSimMeasured(path).load(0)
    assert trace.arrival_ns.tolist() == [0, 500_000_000]
    assert trace.prompt_tokens.tolist() == [23, 23]
    assert open_file(path).kind == "llmservingsim_measured"


def test_vllm_was_measured_with_the_lengths_of_the_trace(traces):
    folder = traces / "llmservingsim"
    trace = open_file(str(folder / "sharegpt-llama-3.1-8b-300-sps10.jsonl.gz")).load(0)
    measured = folder / "vllm-measured/RTX4090/Llama-3.1-8B/requests.jsonl.gz"
    requests = open_file(str(measured)).load(0)
    assert requests.prompt_tokens.tolist() == trace.prompt_tokens.tolist()
    assert requests.output_tokens.tolist() == trace.output_tokens.tolist()
