"""Generated prompts share what they are told to: prefixes, pools, histories, samples."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads.content import own_output
from workloads.prefixes import different_picks, zipf_shares
from workloads.sharing import prefix_hits
from workloads.synthetic import Synthetic
from workloads.trace import COLUMNS

ONCE = {"kind": "all_at_once"}
POISSON = {"kind": "poisson", "rate": 2.0}
TOKENS = {"kind": "uniform", "low": 1, "high": 40}
CHAT = {"kind": "chat", "count": TOKENS, "think_s": {"kind": "exponential", "mean_s": 5}}
AGENT = {"kind": "agent", "steps": 5, "tool_tokens": {"kind": "uniform", "low": 50, "high": 60}}
TREE = {"kind": "tree_of_thoughts", "branch": 3, "depth": 3, "keep": 2, "think_s": 0.5}
LOOP = {"kind": "closed_loop", "users": 7, "think_s": 1.0}
POOL = {"kind": "pool", "texts": 20, "tokens": TOKENS, "pick": 3}

turns = st.sampled_from([None, CHAT, AGENT, TREE, LOOP, {**CHAT, "max_prompt_tokens": 64}])
part = st.sampled_from([80, POOL, {**POOL, "order": "sorted", "zipf": 0, "every_turn": True}])
blocks = st.fixed_dictionaries({"turns": turns, "prefix": st.lists(part, max_size=3)})
seeds = st.integers(0, 2**63)


def trace(num_requests=200, seed=0, prompt=TOKENS, output=TOKENS, **parameters):
    parameters = {"arrivals": POISSON, **parameters}
    return Synthetic(num_requests, parameters.pop("arrivals"), prompt, output, **parameters).load(
        seed
    )


def columns_of(found):
    return {name: values for name in COLUMNS if (values := getattr(found, name)) is not None}


def assert_begins_with(long, short):
    n = len(short)
    for name, values in columns_of(short).items():
        assert getattr(long, name)[:n].tolist() == values.tolist(), name
    if short.content is not None:
        for row in range(n):
            assert long.content.runs(row) == short.content.runs(row)


@settings(max_examples=60)
@given(blocks, seeds, st.integers(1, 90))
def test_a_longer_list_begins_with_the_shorter_one_whatever_is_shared(parameters, seed, n):
    assert_begins_with(trace(90, seed, **parameters), trace(n, seed, **parameters))


@settings(max_examples=40)
@given(blocks, seeds)
def test_follow_ups_begin_with_the_prompt_and_the_output_before(parameters, seed):
    found = trace(90, seed, **parameters)
    limit = (parameters["turns"] or {}).get("max_prompt_tokens")
    if "sessions" not in found.provides:
        return
    for row, parent in enumerate(found.parent.tolist()):
        if parent < 0:
            continue
        runs = found.content.runs(row)
        history = [
            *found.content.runs(parent),
            (own_output(parent), 0, int(found.output_tokens[parent])),
        ]
        if limit is None:
            assert runs[: len(history)] == history
        assert found.session[row] == found.session[parent]
    if limit is not None:
        assert found.prompt_tokens.max() <= limit


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others():
    for parameters in ({"turns": CHAT}, {"turns": TREE}, {"prefix": [POOL]}):
        one, again, other = (trace(seed=seed, **parameters) for seed in (1, 1, 2))
        assert one.digest() == again.digest() != other.digest()


def test_what_is_shared_leaves_the_lengths_of_own_texts_and_the_arrivals_as_they_were():
    plain, shared = trace(), trace(prefix=[80], num_samples=2)
    assert shared.prompt_tokens.tolist() == (plain.prompt_tokens + 80).tolist()
    assert shared.arrival_ns.tolist() == plain.arrival_ns.tolist()
    assert shared.output_tokens.tolist() == plain.output_tokens.tolist()
    chat = trace(turns=CHAT)
    firsts = chat.parent < 0
    assert chat.prompt_tokens[firsts].tolist() == plain.prompt_tokens[firsts].tolist()
    assert np.unique(chat.arrival_ns).tolist() == plain.arrival_ns[: firsts.sum()].tolist()


@pytest.mark.parametrize("tokens", [80, 341])
def test_a_declared_prefix_is_all_that_prompts_share(tokens):
    found = trace(prefix=[tokens])
    assert prefix_hits(found.content).tolist() == [0] + [tokens] * 199


def test_parts_of_a_front_stand_one_after_the_other():
    found = trace(prefix=[80, 16, POOL])
    for row in range(200):
        runs = found.content.runs(row)
        assert runs[:2] == [(1, 0, 80), (2, 0, 16)]
        assert len(runs) == 6
        assert all(3 <= source < 23 for source, _, _ in runs[2:5])


def test_sorted_picks_share_more_than_those_in_the_order_drawn():
    hits = [
        prefix_hits(trace(2000, prefix=[{**POOL, "order": order}]).content).sum()
        for order in ("drawn", "sorted")
    ]
    assert hits[0] < hits[1]


def test_retrieval_before_every_turn_puts_documents_behind_the_history():
    found = trace(turns={**CHAT, "count": 3}, prefix=[{**POOL, "every_turn": True}])
    assert [len(found.content.runs(row)) for row in range(3)] == [4, 9, 14]
    first_only = trace(turns={**CHAT, "count": 3}, prefix=[POOL])
    assert [len(first_only.content.runs(row)) for row in range(3)] == [4, 6, 8]


def test_the_popularity_of_system_prompts_is_that_of_zipf():
    picks = different_picks(np.random.default_rng(1).random((100_000, 1)), zipf_shares(50, 1.0))
    found = np.bincount(picks[:, 0], minlength=50) / 100_000
    expected = 1 / np.arange(1, 51)
    expected /= expected.sum()
    assert np.abs(found - expected).max() < 4 * (0.25 / 100_000) ** 0.5


def test_pairs_of_picks_are_as_likely_as_picking_one_after_the_other_makes_them():
    shares = zipf_shares(4, 1.0)
    picks = different_picks(np.random.default_rng(2).random((200_000, 2)), shares)
    p = shares / shares.sum()
    for a, b in combinations(range(4), 2):
        found = ((picks[:, 0] == a) & (picks[:, 1] == b)).mean()
        assert found == pytest.approx(p[a] * p[b] / (1 - p[a]), abs=0.005)


@given(seeds, st.integers(1, 12), st.floats(0, 10))
def test_picks_differ_even_if_all_texts_are_picked(seed, count, exponent):
    uniform = np.random.default_rng(seed).random((20, count))
    picks = different_picks(uniform, zipf_shares(count, exponent))
    assert np.sort(picks, axis=1).tolist() == [list(range(count))] * 20


def test_turns_and_think_times_have_the_means_asked_for():
    found = trace(40_000, turns={**CHAT, "count": {"kind": "gamma", "mean": 6, "cv": 1}})
    counts = np.bincount(found.session)[:-1]
    # rounded draws of at least one: the mean of max(1, round(gamma))
    assert counts.mean() == pytest.approx(6.07, abs=4 * 6 / len(counts) ** 0.5)
    think_s = found.think_ns[found.parent >= 0] / 1e9
    assert think_s.mean() == pytest.approx(5, abs=4 * 5 / len(think_s) ** 0.5)
    assert set(found.think_ns[found.parent < 0].tolist()) == {0}


def test_an_agents_later_steps_add_the_results_of_tools():
    found = trace(10, turns=AGENT, output=10)
    for row in range(1, 5):
        added = found.prompt_tokens[row] - found.prompt_tokens[row - 1] - 10
        assert 50 <= added <= 60


def test_a_tree_expands_some_thoughts_of_each_level_with_one_prompt_for_siblings():
    found = trace(30, turns=TREE)
    parents = found.parent[:15].tolist()
    assert parents[:3] == [-1, -1, -1]
    kept = sorted(set(parents[3:9]))
    assert len(kept) == 2
    assert all(0 <= parent < 3 for parent in kept)
    last = set(parents[9:])
    assert len(last) == 2
    assert all(3 <= parent < 9 for parent in last)
    for first in range(0, 30, 3):
        siblings = [found.content.runs(row) for row in range(first, first + 3)]
        assert siblings[0] == siblings[1] == siblings[2]
    assert found.content.runs(0) != found.content.runs(15)


def test_users_in_a_loop_ask_again_after_their_own_last_request():
    found = trace(50, turns=LOOP)
    assert found.parent.tolist() == [-1] * 7 + list(range(43))
    assert found.think_ns.tolist() == [0] * 7 + [10**9] * 43
    assert found.provides == {"arrivals", "follow-ups"}
    assert np.diff(found.arrival_ns).min() >= 0
    assert found.arrival_ns[7:].tolist() == [found.arrival_ns[6]] * 43


def test_a_long_history_keeps_its_end_and_is_counted():
    found = trace(100, turns={**CHAT, "count": 10, "max_prompt_tokens": 100})
    full = trace(100, turns={**CHAT, "count": 10})
    is_cut = full.prompt_tokens > 100
    assert found.notes == {"cut: beginnings of prompts beyond max_prompt_tokens": is_cut.sum()}
    assert found.prompt_tokens.tolist() == np.minimum(full.prompt_tokens, 100).tolist()
    for row in np.flatnonzero(is_cut).tolist():
        assert found.content.runs(row)[-1] == full.content.runs(row)[-1]


def test_a_trace_provides_what_its_blocks_give():
    sharing = {"arrivals", "prefix identity", "output identity"}
    assert trace().provides == {"arrivals"}
    assert trace(prefix=[5]).provides == sharing
    assert trace(turns=CHAT).provides == sharing | {"sessions", "follow-ups"}
    assert trace(num_samples=4).provides == {"arrivals", "samples"}
    assert trace(beam_width=6).provides == {"arrivals", "beams"}
    assert set(trace(beam_width=6).beam_width) == {6}
    assert set(trace(num_samples=TOKENS).num_samples) <= set(range(1, 41))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"prefix": 80}, "prefix: must be a list of {kind: …}, got 80"),
        ({"prefix": [80, 0]}, "prefix.1.tokens: must be a whole number, from 1 to "),
        ({"prefix": [{**POOL, "pick": 21}]}, "prefix.0.pick: must be a whole number, from 1 to 20"),
        ({"prefix": [{**POOL, "zipf": -1}]}, "prefix.0.zipf: must be at least 0 and at most 10"),
        ({"prefix": [{**POOL, "order": "any"}]}, "prefix.0.order: 'any' is unknown"),
        ({"turns": {**CHAT, "count": 0}}, "turns.count.tokens: must be a whole number, from 1"),
        ({"turns": {**CHAT, "think_s": -1}}, "turns.think_s.seconds: must be at least 0 and at"),
        ({"turns": {**CHAT, "max_prompt_tokens": 0}}, "turns.max_prompt_tokens: must be a whole"),
        ({"turns": {"kind": "closed_loop"}}, "turns.users: is missing; closed_loop needs it"),
        ({"turns": {**TREE, "depth": 1000, "keep": 1000, "branch": 9}}, "turns.depth: must give "),
        ({"num_samples": 0}, "num_samples.tokens: must be a whole number, from 1 to "),
        (
            {"num_samples": 2, "beam_width": 2},
            "beam_width: stands beside num_samples; accepted: one of the two",
        ),
    ],
)
def test_a_mistake_in_a_block_is_refused_by_its_full_key(parameters, message):
    with pytest.raises(ValueError, match=": ") as error:
        trace(**parameters)
    assert str(error.value).startswith(message)
