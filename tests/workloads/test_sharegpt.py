"""Requests as long as the first turns of ShareGPT: determinism, statistics, derivation."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from workloads.derive_sharegpt import derive, main
from workloads.sharegpt import LENGTHS, ShareGPT, quantile_table

POISSON = {"kind": "poisson", "rate": 2.0}
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
    assert quantile_table().mean(axis=0) == pytest.approx(SOURCE_MEANS, rel=0.001)


def test_outputs_depend_on_prompts_as_in_the_source(many):
    correlation = rank_correlation(many.prompt_tokens, many.output_tokens)
    assert correlation == pytest.approx(SOURCE_RANK_CORRELATION, abs=0.01)


def test_a_request_has_at_most_2048_tokens_and_at_least_one_of_each_kind(many):
    assert (many.prompt_tokens + many.output_tokens).max() <= 2048
    assert many.prompt_tokens.min() >= 1
    assert many.output_tokens.min() >= 1


def test_the_limit_holds_for_any_table(monkeypatch):
    full = np.array([[1023.5, 1024.5], [2047.0, 1.0]])
    monkeypatch.setattr("workloads.sharegpt.quantile_table", lambda: full)
    trace = ShareGPT(num_requests=1000, arrivals=AT_ONCE).load(0)
    assert (trace.prompt_tokens + trace.output_tokens).max() <= 2048
    assert trace.output_tokens.min() >= 1


def test_the_committed_table_is_what_the_published_lengths_give(traces):
    assert derive(str(traces / "nanoflow/sharegpt.csv.gz")) == LENGTHS.read_text()


def test_a_list_that_cannot_be_derived_from_ends_in_a_sentence(monkeypatch, capsys):
    for arguments, sentence in ([], "required: path"), (["none.csv"], "none.csv: no such file"):
        monkeypatch.setattr("sys.argv", ["derive_sharegpt", *arguments])
        with pytest.raises(SystemExit, match="2"):
            main()
        assert sentence in capsys.readouterr().err


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


def test_the_same_seed_gives_the_same_bytes_and_another_one_others():
    workload = ShareGPT(num_requests=1000, arrivals=POISSON)
    assert workload.load(3).digest() == workload.load(3).digest()
    assert workload.load(3).digest() != workload.load(4).digest()


def test_these_bytes_have_not_changed():
    workload = ShareGPT(num_requests=5, arrivals={"kind": "constant", "rate": 1})
    trace = workload.load(0)
    assert trace.prompt_tokens.tolist() == [73, 25, 41, 856, 12]
    assert trace.output_tokens.tolist() == [448, 73, 441, 119, 296]


def test_a_longer_list_begins_with_the_shorter_one():
    long, short = (ShareGPT(num_requests=n, arrivals=POISSON).load(0) for n in (1000, 10))
    assert np.array_equal(long.arrival_ns[:10], short.arrival_ns)
    assert np.array_equal(long.prompt_tokens[:10], short.prompt_tokens)
    assert np.array_equal(long.output_tokens[:10], short.output_tokens)


def test_another_arrival_process_leaves_the_lengths_as_they_were():
    poisson, at_once = (ShareGPT(num_requests=50, arrivals=a).load(0) for a in (POISSON, AT_ONCE))
    assert np.array_equal(poisson.prompt_tokens, at_once.prompt_tokens)
    assert np.array_equal(poisson.output_tokens, at_once.output_tokens)


@pytest.mark.parametrize(
    ("arrivals", "message"),
    [
        ({"kind": "poisson", "rate": -1}, "arrivals.rate: must be above 0, got -1"),
        ({"kind": "poison", "rate": 1}, "arrivals.kind: 'poison' is unknown, did you mean poisson"),
        ({"kind": "poisson"}, "arrivals.rate: is missing; poisson needs it"),
        ({"kind": "poisson", "rat": 1}, "arrivals.rat: 'rat' is unknown, did you mean rate"),
        ({"rate": 1}, "arrivals: must be {kind: …} with one of poisson, constant, all_at_once"),
        ("poisson", "arrivals: must be {kind: …} with one of poisson, constant, all_at_once"),
    ],
)
def test_a_mistake_in_the_arrivals_is_refused_by_its_full_key(arrivals, message):
    with pytest.raises(ValueError, match="arrivals") as error:
        ShareGPT(num_requests=5, arrivals=arrivals)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize("num_requests", [0, -1, 1.5, True, "many", 10**9])
def test_a_number_of_requests_that_is_none_is_refused(num_requests):
    with pytest.raises(ValueError, match=r"^num_requests: must be a whole number, from 1 to "):
        ShareGPT(num_requests=num_requests, arrivals=AT_ONCE)
