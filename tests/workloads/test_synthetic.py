"""Requests from distributions: independent streams, shorthand, mistakes, notes."""

from __future__ import annotations

import numpy as np
import pytest

from workloads.synthetic import Synthetic

POISSON = {"kind": "poisson", "rate": 2.0}
LOGNORMAL = {"kind": "lognormal", "mean": 300, "cv": 1}
GAMMA = {"kind": "gamma", "mean": 100, "cv": 1}


def trace(num_requests=1000, arrivals=POISSON, prompt=LOGNORMAL, output=GAMMA, seed=0):
    return Synthetic(num_requests, arrivals, prompt, output).load(seed)


def test_each_part_draws_from_a_stream_of_its_own():
    base = trace()
    other_arrivals = trace(arrivals={"kind": "gamma", "rate": 2, "cv": 3})
    assert np.array_equal(base.prompt_tokens, other_arrivals.prompt_tokens)
    assert np.array_equal(base.output_tokens, other_arrivals.output_tokens)
    other_prompts = trace(prompt=GAMMA)
    assert np.array_equal(base.arrival_ns, other_prompts.arrival_ns)
    assert np.array_equal(base.output_tokens, other_prompts.output_tokens)
    other_outputs = trace(output=5)
    assert np.array_equal(base.prompt_tokens, other_outputs.prompt_tokens)


def test_prompts_and_outputs_of_one_distribution_are_independent():
    same = trace(20_000, prompt=GAMMA, output=GAMMA)
    correlation = np.corrcoef(same.prompt_tokens, same.output_tokens)[0, 1]
    assert abs(correlation) < 0.04


def test_a_longer_list_begins_with_the_shorter_one():
    long, short = trace(1000), trace(10)
    for column in ("arrival_ns", "prompt_tokens", "output_tokens"):
        assert np.array_equal(getattr(long, column)[:10], getattr(short, column))


def test_a_bare_number_of_tokens_is_a_fixed_length():
    short, long = trace(output=64), trace(output={"kind": "fixed", "tokens": 64})
    assert short.digest() == long.digest()
    assert set(short.output_tokens) == {64}


def test_draws_that_a_limit_changed_are_counted_by_column():
    notes = trace(output={**GAMMA, "min": 1, "max": 200}).notes
    # exponential: 1 - exp(-0.5 / 100) and exp(-200.5 / 100) of a thousand
    assert notes.pop("clipped: output_tokens raised to 1") == pytest.approx(5, abs=7)
    assert notes.pop("clipped: output_tokens lowered to 200") == pytest.approx(135, abs=50)
    assert notes == {}


def test_these_bytes_have_not_changed():
    found = trace(4)
    assert found.arrival_ns.tolist() == [1646763895, 2028329264, 2654512826, 2767487574]
    assert found.prompt_tokens.tolist() == [465, 119, 796, 470]
    assert found.output_tokens.tolist() == [145, 10, 130, 7]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"prompt": {"kind": "lognormal", "mean": 5}}, "prompt_tokens.cv: is missing; lognormal"),
        ({"prompt": {"kind": "normal"}}, "prompt_tokens.kind: 'normal' is unknown, did you mean "),
        ({"prompt": 0}, "prompt_tokens.tokens: must be a whole number, from 1 to "),
        ({"output": 1.5}, "output_tokens.tokens: must be a whole number, from 1 to "),
        ({"output": True}, "output_tokens: must be {kind: …} with one of fixed, uniform, "),
        ({"output": {**GAMMA, "max": 0}}, "output_tokens.max: must be a whole number, from 1 to "),
        ({"num_requests": 0}, "num_requests: must be a whole number, from 1 to "),
        ({"arrivals": {"kind": "gamma", "rate": 1}}, "arrivals.cv: is missing; gamma needs it"),
    ],
)
def test_a_mistake_is_refused_by_its_full_key(parameters, message):
    with pytest.raises(ValueError, match=": ") as error:
        trace(**parameters)
    assert str(error.value).startswith(message)
