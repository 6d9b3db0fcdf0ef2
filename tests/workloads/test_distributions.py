"""Distributions of lengths: their statistics, their limits, their determinism."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.distributions import (
    LENGTH_DISTRIBUTIONS,
    Fixed,
    Gamma,
    LogNormal,
    Mixture,
    Quantiles,
    Uniform,
    Zipf,
)
from workloads.generator import stream
from workloads.trace import MAX_TOKENS, TraceError

MANY = 200_000
TABLE = {"levels": [0, 0.5, 0.9, 1], "tokens": [1, 100, 400, 2000]}
EXAMPLES = {
    "fixed": {"tokens": 100},
    "uniform": {"low": 3, "high": 9},
    "lognormal": {"mean": 200, "cv": 1.2},
    "gamma": {"mean": 200, "cv": 0.7},
    "quantiles": TABLE,
    "zipf": {"low": 2, "high": 400, "exponent": 0.8},
    "mixture": {"components": [3, {"kind": "uniform", "low": 4, "high": 200}], "weights": [1, 3]},
}


def draw(distribution, count=MANY, seed=0):
    notes = Counter()
    tokens = distribution.draw("prompt_tokens", count, stream(seed, "prompt_tokens"), notes)
    return tokens, dict(notes)


def make(kind, **limits):
    return LENGTH_DISTRIBUTIONS[kind](**EXAMPLES[kind], **limits)


def test_every_distribution_has_an_example_here():
    assert set(EXAMPLES) == set(LENGTH_DISTRIBUTIONS)


@pytest.mark.parametrize("kind", LENGTH_DISTRIBUTIONS)
def test_draws_repeat_for_a_seed_and_extend_a_shorter_list(kind):
    (long, _), (short, _) = draw(make(kind), 1000), draw(make(kind), 100)
    assert np.array_equal(long[:100], short)
    assert long.dtype == np.int64
    if kind != "fixed":
        assert not np.array_equal(long, draw(make(kind), 1000, seed=1)[0])


@pytest.mark.parametrize("kind", LENGTH_DISTRIBUTIONS)
def test_limits_change_only_what_lies_beyond_them_and_count_it(kind):
    free, no_notes = draw(make(kind), 10_000)
    limited, notes = draw(make(kind, min=5, max=90), 10_000)
    assert no_notes.keys() <= {"clipped: prompt_tokens raised to 1"}
    assert np.array_equal(limited, np.clip(free, 5, 90))
    counted = {
        "clipped: prompt_tokens raised to 5": np.count_nonzero(free < 5),
        "clipped: prompt_tokens lowered to 90": np.count_nonzero(free > 90),
    }
    assert notes == {reason: count for reason, count in counted.items() if count}


@pytest.mark.parametrize("cv", [0.05, 0.5, 1, 2])
@pytest.mark.parametrize("entry", [LogNormal, Gamma])
def test_mean_and_cv_are_those_asked_for(entry, cv):
    tokens, _ = draw(entry(mean=5000, cv=cv))
    assert tokens.mean() == pytest.approx(5000, rel=6 * cv / MANY**0.5)
    assert tokens.std() / tokens.mean() == pytest.approx(cv, rel=0.06)


def test_lognormal_is_lognormal_and_gamma_of_cv_1_exponential():
    logs = np.log(draw(LogNormal(mean=5000, cv=1))[0])
    assert logs.std() == pytest.approx(np.log(2) ** 0.5, rel=0.01)
    assert logs.mean() == pytest.approx(np.median(logs), abs=0.01)
    exponential = draw(Gamma(mean=5000, cv=1))[0]
    assert (exponential > 5000).mean() == pytest.approx(np.exp(-1), rel=0.02)


def test_uniform_gives_every_length_from_low_to_high_equally_often():
    values, counts = np.unique(draw(Uniform(3, 9))[0], return_counts=True)
    assert values.tolist() == [3, 4, 5, 6, 7, 8, 9]
    assert counts == pytest.approx(MANY / 7, rel=0.03)


def test_zipf_lengths_are_as_likely_as_the_inverse_of_their_rank():
    tokens, _ = draw(Zipf(10, 29, 1.0))
    expected = 1 / np.arange(1, 21)
    found = np.bincount(tokens - 10, minlength=20) / MANY
    assert found == pytest.approx(expected / expected.sum(), abs=4 * 0.5 / MANY**0.5)
    assert (tokens.min(), tokens.max()) == (10, 29)


def test_a_mixture_draws_each_component_by_its_weight_within_its_limits():
    gamma = {"kind": "gamma", "mean": 5000, "cv": 0.1, "max": 5500}
    tokens, notes = draw(Mixture(components=[7, gamma], weights=[1, 3]))
    is_short = tokens == 7
    assert is_short.mean() == pytest.approx(0.25, abs=0.005)
    assert tokens[~is_short].mean() == pytest.approx(4959, rel=0.002)  # less what is above 5500
    (reason,) = notes
    assert reason == "clipped: prompt_tokens lowered to 5500"
    assert notes[reason] == pytest.approx(np.count_nonzero(tokens == 5500), rel=0.01)


def test_other_weights_leave_the_draws_of_a_component_in_their_order():
    uniform = {"kind": "uniform", "low": 1000, "high": 2000}
    few, many = (
        draw(Mixture(components=[7, uniform], weights=[1, weight]), 1000)[0] for weight in (1, 9)
    )
    first = few[few > 7]
    assert many[many > 7][: len(first)].tolist() == first.tolist()


def test_fixed_is_fixed():
    assert set(draw(Fixed(100), 50)[0]) == {100}


def test_drawn_quantiles_are_those_of_the_table_with_straight_lines_between():
    tokens, _ = draw(Quantiles(**TABLE))
    assert np.quantile(tokens, [0.25, 0.5, 0.7, 0.9, 0.95]) == pytest.approx(
        [50.5, 100, 250, 400, 1200], rel=0.02
    )
    assert (tokens.min(), tokens.max()) == (1, 2000)
    mean = 0.5 * 50.5 + 0.4 * 250 + 0.1 * 1200
    assert tokens.mean() == pytest.approx(mean, rel=0.01)


def test_a_table_in_a_file_is_the_same_as_one_written_out(write):
    path = write("q.csv", "note, level ,tokens\r\na,0,1\r\n\r\nb,0.5,100\r\nc,.9,4e2\r\nd,1,2000")
    assert np.array_equal(draw(Quantiles(path=path), 100)[0], draw(Quantiles(**TABLE), 100)[0])


@given(
    kind=st.sampled_from(["lognormal", "gamma"]),
    mean=st.floats(1, MAX_TOKENS),
    cv=st.floats(0.001, 100),
    low=st.integers(1, 1000),
    room=st.none() | st.integers(0, 5000),
)
def test_no_draw_is_ever_beyond_its_limits(kind, mean, cv, low, room):
    high = None if room is None else low + room
    distribution = LENGTH_DISTRIBUTIONS[kind](mean=mean, cv=cv, min=low, max=high)
    tokens, notes = draw(distribution, 200)
    assert tokens.min() >= low
    assert tokens.max() <= (high or MAX_TOKENS)
    assert sum(notes.values()) <= 200


@given(st.lists(st.integers(1, 10_000), min_size=2, max_size=20).map(sorted))
def test_draws_from_a_table_lie_within_it(tokens):
    table = Quantiles(levels=np.linspace(0, 1, len(tokens)).tolist(), tokens=tokens)
    drawn, notes = draw(table, 100)
    assert tokens[0] <= drawn.min() <= drawn.max() <= tokens[-1]
    assert notes == {}


@pytest.mark.parametrize(
    ("kind", "parameters", "sentence"),
    [
        ("fixed", {"tokens": 0}, "tokens: must be a whole number, from 1 to 2147483647, got 0"),
        ("fixed", {"tokens": 5, "min": 0}, "min: must be a whole number, from 1 to "),
        ("fixed", {"tokens": 5, "min": 9, "max": 8}, "max: must be a whole number, from 9 to "),
        ("uniform", {"low": 5, "high": 4}, "high: must be a whole number, from 5 to "),
        ("lognormal", {"mean": 0.5, "cv": 1}, "mean: must be at least 1 and at most 2"),
        ("lognormal", {"mean": 5, "cv": 0}, "cv: must be at least 0.001 and at most 100, got 0"),
        ("gamma", {"mean": 5, "cv": 101}, "cv: must be at least 0.001 and at most 100, got 101"),
        ("zipf", {"low": 5, "high": 4}, "high: must be a whole number, from 5 to "),
        ("zipf", {"low": 1, "high": 4, "exponent": -1}, "exponent: must be at least 0 and at mos"),
        ("mixture", {"components": [], "weights": []}, "weights: must be as many as components, 0"),
        ("mixture", {"components": [5], "weights": [1, 2]}, "weights: must be as many as compon"),
        ("mixture", {"components": [5], "weights": [0]}, "weights: must be above 0, got 0"),
        ("mixture", {"components": [0], "weights": [1]}, "components.0.tokens: must be a whole n"),
        ("mixture", {"components": 5, "weights": [1]}, "components: must be a list of {kind: …}"),
        ("quantiles", {}, "levels: is required; accepted: a list of numbers, or path"),
        ("quantiles", {"levels": [0, 1]}, "tokens: is required; accepted: a list"),
        ("quantiles", {"path": "q", "levels": [0]}, "path: stands beside levels or tokens; acc"),
        ("quantiles", {"path": ""}, "path: must be the name of a file, got ''"),
        ("quantiles", {"levels": [0, 2], "tokens": [1, 2]}, "levels: must be numbers from 0 to 1"),
        ("quantiles", {"levels": [0, 1], "tokens": [0, 2]}, "tokens: must be numbers from 1 to "),
        ("quantiles", {"levels": [0, 1], "tokens": [1]}, "tokens: must be as many as levels, "),
        ("quantiles", {"levels": [0, 0.9], "tokens": [1, 2]}, "levels: must begin with 0 and end"),
        ("quantiles", {"levels": [1], "tokens": [1]}, "levels: must begin with 0 and end with 1"),
        ("quantiles", {"levels": [0, 1], "tokens": [5, 4]}, "tokens: must not descend, got 4 aft"),
        (
            "quantiles",
            {"levels": [0, 0.5, 0.5, 1], "tokens": [1, 2, 3, 4]},
            "levels: must ascend, got 0.5 after 0.5",
        ),
    ],
)
def test_a_parameter_that_makes_no_distribution_is_refused(kind, parameters, sentence):
    with pytest.raises(ValueError, match=": ") as error:
        LENGTH_DISTRIBUTIONS[kind](**parameters)
    assert str(error.value).startswith(sentence)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "must have the column level once; accepted: a header with level and tokens"),
        ("level,token\n0,1\n", "must have the column tokens once"),
        ("level,level,tokens\n0,0,1\n", "must have the column level once"),
        ("level,tokens\n0,1\n1,x\n", "line 3: tokens is 'x'; accepted: a number"),
        ("level,tokens\n0,1\n1\n", "line 3: tokens is ''; accepted: a number"),
        ("level,tokens\n0,1\n1,nan\n", "line 3: tokens is 'nan'; accepted: a number"),
        ("level,tokens\n0,1\n1,0.5\n", "tokens: must be numbers from 1 to "),
        ("level,tokens\n0,1\n", "levels: must begin with 0 and end with 1"),
        (b"level,tokens\n\xff,1\n", "line 2 is not CSV text"),
        (b'level,tokens\n"0,1\n', "line 2 is not CSV text"),
    ],
)
def test_a_file_that_is_no_table_of_quantiles_is_refused(write, content, sentence):
    path = write("q.csv", content)
    with pytest.raises(TraceError) as error:
        draw(Quantiles(path=path))
    assert str(error.value).startswith(f"{path}: ")
    assert sentence in str(error.value)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_table_or_one_sentence(content):
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "q.csv")
        path.write_bytes(content)
        with pytest.raises(TraceError):
            draw(Quantiles(path=str(path)), 10)
