"""Requests as long as Alpaca's instructions: statistics."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from workloads.alpaca import Alpaca
from workloads.joint import joint_table

AT_ONCE = {"kind": "all_at_once"}
# 3,749 requests counted with the OPT tokenizer, one start token a prompt
SOURCE_MEANS = (18.9557, 58.7391)
SOURCE_RANK_CORRELATION = -0.2556
MANY = 200_000


@pytest.fixture(scope="module")
def many():
    return Alpaca(num_requests=MANY, arrivals=AT_ONCE).load(0)


def rank_correlation(prompt, output):
    return np.corrcoef(pd.Series(prompt).rank(), pd.Series(output).rank())[0, 1]


def test_the_table_holds_whole_requests_with_the_means_of_the_source():
    table = joint_table(Alpaca.file)
    assert np.array_equal(table, np.rint(table))
    assert table.mean(axis=0) == pytest.approx(SOURCE_MEANS, abs=0.001)


def test_the_table_is_within_two_percent_of_what_the_paper_prints():
    assert joint_table(Alpaca.file).mean(axis=0) == pytest.approx(Alpaca.paper_means, rel=0.02)


def test_drawn_lengths_have_the_means_and_the_dependence_of_the_source(many):
    assert many.prompt_tokens.mean() == pytest.approx(SOURCE_MEANS[0], abs=5 * 13.3 / MANY**0.5)
    assert many.output_tokens.mean() == pytest.approx(SOURCE_MEANS[1], abs=5 * 57.4 / MANY**0.5)
    correlation = rank_correlation(many.prompt_tokens, many.output_tokens)
    assert correlation == pytest.approx(SOURCE_RANK_CORRELATION, abs=0.01)


def test_quantiles_are_those_of_the_counted_rows(traces, many):
    rows = pd.read_csv(traces / "alpaca/alpaca_5000_lengths.csv.gz")
    rows = rows[rows.opt_output > 0]
    assert len(rows) == 3_749
    levels = [1, 5, 25, 50, 75, 90, 95, 99]
    for ours, theirs in (
        (many.prompt_tokens, rows.opt_instruction_input + 1),
        (many.output_tokens, rows.opt_output),
    ):
        expected = np.percentile(theirs, levels)
        assert np.percentile(ours, levels) == pytest.approx(expected, rel=0.03, abs=1)


def test_these_bytes_have_not_changed():
    trace = Alpaca(num_requests=5, arrivals={"kind": "constant", "rate": 1}).load(0)
    assert trace.prompt_tokens.tolist() == [19, 14, 16, 41, 11]
    assert trace.output_tokens.tolist() == [16, 289, 19, 11, 6]
