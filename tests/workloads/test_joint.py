"""What all workloads from joint tables promise: determinism, limits, scaling, derivation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.alpaca import Alpaca
from workloads.derive_joint import RECIPES, derive, main
from workloads.joint import DATA, MAX_TOTAL_TOKENS, joint_table, scaled
from workloads.sharegpt import ShareGPT
from workloads.wmt16 import WMT16

JOINT = [ShareGPT, Alpaca, WMT16]
WITH_MEANS = [ShareGPT, Alpaca]
POISSON = {"kind": "poisson", "rate": 2.0}
AT_ONCE = {"kind": "all_at_once"}
LISTS = {
    "sharegpt": "nanoflow/sharegpt.csv.gz",
    "alpaca": "alpaca/alpaca_5000_lengths.csv.gz",
    "wmt16": "wmt/newstest2016_ende_lengths.csv.gz",
}


def columns(trace):
    return np.array([trace.arrival_ns, trace.prompt_tokens, trace.output_tokens])


@pytest.mark.parametrize("entry", JOINT)
def test_the_same_seed_gives_the_same_bytes_and_another_one_others(entry):
    workload = entry(num_requests=1000, arrivals=POISSON)
    assert workload.load(3).digest() == workload.load(3).digest()
    assert workload.load(3).digest() != workload.load(4).digest()


@pytest.mark.parametrize(
    ("entry", "scale_to_paper"),
    [*((entry, False) for entry in JOINT), *((entry, True) for entry in WITH_MEANS)],
)
def test_a_longer_list_begins_with_the_shorter_one(entry, scale_to_paper):
    long, short = (entry(n, POISSON, scale_to_paper).load(0) for n in (1000, 10))
    assert np.array_equal(columns(long)[:, :10], columns(short))


@pytest.mark.parametrize("entry", JOINT)
def test_another_arrival_process_leaves_the_lengths_as_they_were(entry):
    poisson, at_once = (entry(num_requests=50, arrivals=a).load(0) for a in (POISSON, AT_ONCE))
    assert np.array_equal(columns(poisson)[1:], columns(at_once)[1:])


@pytest.mark.parametrize("entry", WITH_MEANS)
def test_the_means_of_the_paper_are_a_choice_and_met_when_chosen(entry):
    plain, fitted = (entry(200_000, AT_ONCE, scale).load(0) for scale in (False, True))
    assert plain.notes == {}
    for column, mean in zip(("prompt_tokens", "output_tokens"), entry.paper_means, strict=True):
        ours = getattr(fitted, column)
        assert ours.mean() == pytest.approx(mean, abs=5 * ours.std() / 200_000**0.5)
        assert getattr(plain, column).mean() != pytest.approx(mean, rel=0.003)


@pytest.mark.parametrize("entry", WITH_MEANS)
def test_a_scaled_table_has_the_means_of_the_paper(entry):
    cells, is_cut = scaled(joint_table(entry.file), entry.paper_means)
    assert cells.mean(axis=0) == pytest.approx(entry.paper_means, rel=1e-9)
    assert cells.sum(axis=1).max() <= MAX_TOTAL_TOKENS
    assert is_cut.mean() < 0.003


@given(
    st.lists(st.tuples(st.floats(1, 1000), st.floats(1, 1000)), min_size=1, max_size=20),
    st.floats(1, 100),
    st.floats(1, 100),
)
def test_scaling_never_leaves_the_limits(cells, prompt_mean, output_mean):
    result, _ = scaled(np.array(cells), (prompt_mean, output_mean))
    assert result.min() >= 1
    assert result.sum(axis=1).max() <= MAX_TOTAL_TOKENS


def test_scaled_requests_are_counted_and_so_are_those_that_were_cut():
    trace = ShareGPT(100_000, AT_ONCE, scale_to_paper=True).load(0)
    notes = dict(trace.notes)
    assert notes.pop("scaled: to the means of the paper") == 100_000
    assert 50 < notes.pop("clipped: 2048 tokens after scaling") < 500
    assert set(notes) <= {"clipped: 2048 tokens after rounding"}


def test_the_limit_holds_for_any_table_and_what_it_changes_is_counted(monkeypatch):
    full = np.array([[1023.5, 1024.5], [2047.0, 1.0]])
    monkeypatch.setattr("workloads.joint.joint_table", lambda file: full)
    trace = ShareGPT(num_requests=1000, arrivals=AT_ONCE).load(0)
    assert (trace.prompt_tokens + trace.output_tokens).max() <= 2048
    assert trace.output_tokens.min() >= 1
    # both halves round up in a quarter of the draws of one of the two cells
    assert trace.notes["clipped: 2048 tokens after rounding"] == pytest.approx(125, abs=40)


def test_every_joint_table_has_a_recipe():
    assert set(RECIPES) == {entry.kind for entry in JOINT} == set(LISTS)


@pytest.mark.parametrize("entry", JOINT)
def test_the_committed_table_is_what_the_published_lengths_give(traces, entry):
    table = derive(entry.kind, str(traces / LISTS[entry.kind]))
    assert table == (DATA / entry.file).read_text()


def test_a_list_that_cannot_be_derived_from_ends_in_a_sentence(monkeypatch, capsys, write):
    short = write("s.csv", "ContextTokens,GeneratedTokens\n3,4\n5,0\n")
    for arguments, sentence in (
        ([], "required: name, path"),
        (["sharegpt", "none.csv"], "none.csv: no such file"),
        (["alpaca", short], "no column opt_instruction_input"),
        (["sharegpt", short], "has 1 requests; accepted: at least 4096"),
    ):
        monkeypatch.setattr("sys.argv", ["derive_joint", *arguments])
        with pytest.raises(SystemExit, match="2"):
            main()
        assert sentence in capsys.readouterr().err


@pytest.mark.parametrize("entry", JOINT)
@pytest.mark.parametrize(
    ("arrivals", "message"),
    [
        ({"kind": "poisson", "rate": -1}, "arrivals.rate: must be above 0, got -1"),
        ({"kind": "poison", "rate": 1}, "arrivals.kind: 'poison' is unknown, did you mean poisson"),
        ({"kind": "poisson"}, "arrivals.rate: is missing; poisson needs it"),
        ({"kind": "poisson", "rat": 1}, "arrivals.rat: 'rat' is unknown, did you mean rate"),
        ({"rate": 1}, "arrivals: must be {kind: …} with one of poisson, gamma, constant, all_at"),
        ("poisson", "arrivals: must be {kind: …} with one of poisson, gamma, constant, all_at"),
    ],
)
def test_a_mistake_in_the_arrivals_is_refused_by_its_full_key(entry, arrivals, message):
    with pytest.raises(ValueError, match="arrivals") as error:
        entry(num_requests=5, arrivals=arrivals)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize("num_requests", [0, -1, 1.5, True, "many", 10**9])
def test_a_number_of_requests_that_is_none_is_refused(num_requests):
    with pytest.raises(ValueError, match=r"^num_requests: must be a whole number, from 1 to "):
        ShareGPT(num_requests=num_requests, arrivals=AT_ONCE)


def test_scale_to_paper_is_true_or_false():
    with pytest.raises(ValueError, match=r"^scale_to_paper: must be true or false, got 1$"):
        Alpaca(num_requests=5, arrivals=AT_ONCE, scale_to_paper=1)


def test_what_the_paper_does_not_print_cannot_be_met():
    with pytest.raises(ValueError, match=r"^scale_to_paper: must be false, as the paper prints no"):
        WMT16(num_requests=5, arrivals=AT_ONCE, scale_to_paper=True)


def test_translations_have_the_means_and_the_dependence_of_the_source():
    trace = WMT16(num_requests=100_000, arrivals=AT_ONCE).load(0)
    assert trace.prompt_tokens.mean() == pytest.approx(27.322, abs=5 * 14.8 / 100_000**0.5)
    assert trace.output_tokens.mean() == pytest.approx(36.287, abs=5 * 20.1 / 100_000**0.5)
    correlation = np.corrcoef(trace.prompt_tokens, trace.output_tokens)[0, 1]
    assert correlation == pytest.approx(0.957, abs=0.01)
