"""Requests as long as the first turns of ShareGPT: statistics."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from workloads.joint import joint_table
from workloads.sharegpt import ShareGPT

AT_ONCE = {"kind": "all_at_once"}
# first turns of ShareGPT V3, LLaMA tokens, prompt + output <= 2048: 55,857 rows
SOURCE_MEANS = (154.6, 317.9)
SOURCE_RANK_CORRELATION = 0.151
MANY = 400_000


def rank_correlation(prompt, output):
    return np.corrcoef(pd.Series(prompt).rank(), pd.Series(output).rank())[0, 1]


@pytest.fixture(scope="module")
def many():
    return ShareGPT(num_requests=MANY, arrivals=AT_ONCE).load(0)


def test_mean_lengths_are_those_of_the_source(many):
    # five standard errors
    assert many.prompt_tokens.mean() == pytest.approx(SOURCE_MEANS[0], abs=5 * 301 / MANY**0.5)
    assert many.output_tokens.mean() == pytest.approx(SOURCE_MEANS[1], abs=5 * 238 / MANY**0.5)


def test_the_table_itself_has_the_means_of_the_source():
    assert joint_table(ShareGPT.file).mean(axis=0) == pytest.approx(SOURCE_MEANS, rel=0.001)


def test_outputs_depend_on_prompts_as_in_the_source(many):
    correlation = rank_correlation(many.prompt_tokens, many.output_tokens)
    assert correlation == pytest.approx(SOURCE_RANK_CORRELATION, abs=0.01)


def test_a_request_has_at_most_2048_tokens_and_at_least_one_of_each_kind(many):
    assert (many.prompt_tokens + many.output_tokens).max() <= 2048
    assert many.prompt_tokens.min() >= 1
    assert many.output_tokens.min() >= 1


def test_quantiles_and_dependence_are_those_of_the_published_lengths(traces, many):
    rows = pd.read_csv(traces / "nanoflow/sharegpt.csv.gz")
    rows = rows[rows.ContextTokens + rows.GeneratedTokens <= 2048]
    assert len(rows) == 55_857
    prompt, output = rows.ContextTokens.to_numpy(), rows.GeneratedTokens.to_numpy()
    assert (prompt.mean(), output.mean()) == pytest.approx(SOURCE_MEANS, rel=0.001)
    levels = [5, 25, 50, 75, 90, 95, 99]
    for ours, theirs in ((many.prompt_tokens, prompt), (many.output_tokens, output)):
        expected = np.percentile(theirs, levels)
        assert np.percentile(ours, levels) == pytest.approx(expected, rel=0.07, abs=1)
        assert ours.std() == pytest.approx(theirs.std(), rel=0.01)
    assert rank_correlation(prompt, output) == pytest.approx(SOURCE_RANK_CORRELATION, abs=0.001)


def test_these_bytes_have_not_changed():
    workload = ShareGPT(num_requests=5, arrivals={"kind": "constant", "rate": 1})
    trace = workload.load(0)
    assert trace.prompt_tokens.tolist() == [73, 25, 41, 856, 12]
    assert trace.output_tokens.tolist() == [448, 73, 441, 119, 296]
