"""The columns of a trace and what they refuse."""

from __future__ import annotations

import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.trace import MAX_TOKENS, Trace, TraceError, seconds_to_ns


def trace(arrival_ns, prompt=None, output=None, **more):
    ones = [1] * len(arrival_ns)
    return Trace(arrival_ns, prompt or ones, output or ones, **more)


def test_a_trace_turns_lists_into_columns_that_cannot_be_written_to():
    made = trace([0, 5])
    assert made.arrival_ns.dtype == np.int64
    with pytest.raises(ValueError, match="read-only"):
        made.arrival_ns[0] = 1


def test_the_callers_own_array_stays_writable():
    mine = np.array([0, 5])
    trace(mine)
    mine[0] = 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (([],), "memory: the trace has no requests; at least one is needed"),
        (([0, 1], [1]), "memory: prompt_tokens has 1 rows, arrival_ns has 2"),
        (([0, 1], [3, 0]), f"memory: request 1: prompt_tokens is 0; accepted: 1 to {MAX_TOKENS}"),
        (([0], [1], [-4]), f"memory: request 0: output_tokens is -4; accepted: 1 to {MAX_TOKENS}"),
        (([0], [1], [2**31]), f"request 0: output_tokens is {2**31}; accepted: 1 to {MAX_TOKENS}"),
        (([-1],), f"memory: request 0: arrival_ns is -1; accepted: 0 to {2**62}"),
        (([5, 3],), "memory: request 1 arrives before request 0"),
        (([0], [1.5]), "memory: prompt_tokens holds float64; accepted: integers"),
        (([0], [True]), "memory: prompt_tokens holds bool; accepted: integers"),
        (([[0]],), "memory: arrival_ns has 2 dimensions; accepted: 1"),
    ],
)
def test_columns_that_are_no_trace_are_refused_in_a_sentence(arguments, sentence):
    with pytest.raises(TraceError) as error:
        trace(*arguments)
    assert str(error.value).endswith(sentence)


def test_unsigned_numbers_beyond_64_bits_are_refused_not_wrapped():
    with pytest.raises(TraceError, match="holds uint64"):
        trace(np.array([0], np.uint64))


def test_the_digest_depends_on_contents_and_not_on_names():
    assert trace([0, 5]).digest() == trace([0, 5], source="elsewhere").digest()
    assert trace([0, 5]).digest() != trace([0, 6]).digest()
    assert trace([0]).digest() != trace([0], max_tokens=[1]).digest()


def test_a_trace_survives_the_way_to_another_process():
    made = trace([0, 5], notes={"moved by sorting": 1})
    copy = pickle.loads(pickle.dumps(made))
    assert copy.digest() == made.digest()
    assert copy.notes == made.notes


@given(st.integers(0, 2**52))
def test_whole_nanoseconds_survive_the_way_to_seconds_and_back(ns):
    assert seconds_to_ns(np.array([ns / 1e9]))[0] == ns


@given(st.floats(0, 1e9))
def test_seconds_are_rounded_once_to_the_nearest_nanosecond(seconds):
    assert seconds_to_ns(np.array([seconds]))[0] == round(Fraction(seconds) * 10**9)
