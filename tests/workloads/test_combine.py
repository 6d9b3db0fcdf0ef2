"""Workloads of workloads: nothing is lost, nothing collides, what is dropped is counted."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads.combine import Filter, Mix, Repeat, part_seed
from workloads.content import TOKEN_IDS, Content, Runs
from workloads.join import UNSAID, join, join_content
from workloads.sharing import prefix_hits
from workloads.synthetic import Synthetic
from workloads.trace import COLUMNS, Trace, TraceError

POISSON = {"kind": "poisson", "rate": 2.0}
TOKENS = {"kind": "uniform", "low": 1, "high": 40}
PLAIN = {
    "kind": "synthetic",
    "num_requests": 50,
    "arrivals": POISSON,
    "prompt_tokens": TOKENS,
    "output_tokens": TOKENS,
}
CHAT = {**PLAIN, "prefix": [30], "turns": {"kind": "chat", "count": 4, "think_s": 1.0}}
TREE = {
    **PLAIN,
    "prefix": [{"kind": "pool", "texts": 5, "tokens": TOKENS}],
    "turns": {"kind": "tree_of_thoughts", "branch": 2, "depth": 2, "keep": 2},
}
LOOP = {**PLAIN, "turns": {"kind": "closed_loop", "users": 6}}
SAMPLED = {**PLAIN, "num_samples": 3}
workload = st.sampled_from([PLAIN, CHAT, TREE, LOOP, SAMPLED])


def alone(spec, seed):
    return Synthetic(**{key: value for key, value in spec.items() if key != "kind"}).load(seed)


def inline(*lengths, **columns):
    cells = [
        {"arrival_s": i, "prompt_tokens": p, "output_tokens": 2} for i, p in enumerate(lengths)
    ]
    return {"kind": "inline", "requests": [{**cell, **columns} for cell in cells]}


def requests_of(trace):
    return Counter(zip(trace.prompt_tokens.tolist(), trace.output_tokens.tolist(), strict=True))


def assert_histories(trace):
    if trace.content is None or trace.parent is None or trace.session is None:
        return
    for row, parent in enumerate(trace.parent.tolist()):
        if parent >= 0 and trace.session[row] == trace.session[parent]:
            history = trace.content.runs(parent)
            output = int(trace.content.output_source[parent])
            history += [(output, 0, int(trace.output_tokens[parent]))]
            assert trace.content.runs(row)[: len(history)] == history


def with_spans(content):
    """The runs of all prompts, as a set of sources that more than one trace must not have."""
    return {int(source) for source in [*content.source, *content.output_source]}


@settings(max_examples=40)
@given(st.lists(workload, min_size=1, max_size=3), st.integers(0, 2**63 - 1))
def test_a_mix_has_every_request_of_its_workloads_once(specs, seed):
    found = Mix(specs).load(seed)
    parts = [alone(spec, part_seed(seed, i)) for i, spec in enumerate(specs)]
    assert requests_of(found) == sum((requests_of(part) for part in parts), Counter())
    arrivals = np.sort(np.concatenate([part.arrival_ns for part in parts]))
    assert found.arrival_ns.tolist() == arrivals.tolist()
    known = [part for part in parts if part.content is not None]
    assert (found.content is None) == (not known)
    if found.content is not None:
        hits = sum(int(prefix_hits(part.content).sum()) for part in known)
        assert prefix_hits(found.content).sum() == hits
        assert found.has_output_identity == all(part.has_output_identity for part in known)
        unknown = len(found) - sum(map(len, known))
        assert found.notes.get("requests whose prompts nobody knows", 0) == unknown
        assert_histories(found)


@settings(max_examples=40)
@given(workload, st.integers(1, 5), st.sampled_from(["distinct", "named", "same"]))
def test_copies_have_all_requests_as_often_as_copies_are_wanted(spec, copies, content):
    found = Repeat(spec, copies, shift_s=10.0, content=content).load(3)
    once = alone(spec, 3)
    assert requests_of(found) == Counter({k: v * copies for k, v in requests_of(once).items()})
    assert_histories(found)


def test_copies_share_what_they_are_told_to():
    once = alone(CHAT, 3)
    in_itself = prefix_hits(once.content).sum()
    found = {
        how: prefix_hits(Repeat(CHAT, 3, 1e6, how).load(3).content).sum()
        for how in ("distinct", "named", "same")
    }
    assert found["distinct"] == 3 * in_itself
    assert found["named"] == 3 * in_itself + 2 * 30  # the first of each copy finds the prefix
    assert found["same"] == in_itself + 2 * once.prompt_tokens.sum()


def test_copies_begin_within_the_shift_and_the_first_at_its_own_time():
    once, found = alone(PLAIN, 3), Repeat(PLAIN, 200, 100.0).load(3)
    firsts = found.arrival_ns[found.prompt_tokens == once.prompt_tokens[0]]
    assert found.arrival_ns[0] == once.arrival_ns[0]
    shifts_s = (
        (found.arrival_ns.astype(float).sum() / 200 - once.arrival_ns.sum()) / len(once) / 1e9
    )
    assert shifts_s == pytest.approx(50, abs=4 * 29 / 200**0.5)
    assert len(firsts) >= 200


def test_token_ids_are_equal_in_all_workloads_and_other_sources_in_none():
    content = alone(CHAT, 0).content
    ids = Trace([0], [4], [1]).arrival_ns * 0 + TOKEN_IDS
    with_ids = type(content)(np.array([0, 1]), ids, ids + 7, ids + 4, ids - 2)
    joined = join_content([content, with_ids, content, with_ids], "distinct")
    assert joined.runs(50) == joined.runs(101) == [(TOKEN_IDS, 7, 4)]
    first, second = joined.take(np.arange(50)), joined.take(np.arange(51, 101))
    assert not with_spans(first) & with_spans(second)


def test_what_is_known_of_outputs_moves_with_its_request():
    content = alone(CHAT, 0).content
    one = np.array([1])
    known = Content(
        np.array([0, 1]), one, one, one * 4, one * -2, Runs(np.arange(2), one, one, one)
    )
    joined = join_content([content, known, known], "distinct")
    first, second = (joined.output_runs(row, 3) for row in (50, 51))
    for runs in (first, second):
        assert [run[1:] for run in runs] == [(1, 1), (1, 2)]
        assert runs[0][0] > content.source.max()
        assert runs[1][0] < content.output_source.min()
    assert not {run[0] for run in first} & {run[0] for run in second}
    assert joined.output_runs(0, 5) == content.output_runs(0, 5)


def test_every_column_of_a_trace_can_be_joined():
    named = {"arrival_ns", "prompt_tokens", "output_tokens", "max_tokens", "session", "namespace"}
    assert named | UNSAID.keys() == COLUMNS.keys()


def test_columns_that_some_workloads_lack_are_filled_or_left_out_and_counted():
    found = Mix([inline(3, 4, max_tokens=9), {**PLAIN, "num_samples": 3}, CHAT]).load(0)
    assert found.max_tokens is None
    assert found.notes["ignored: max_tokens, which not all workloads have"] == 102
    assert sorted(set(found.num_samples.tolist())) == [1, 3]
    assert len(np.unique(found.session)) == 52 + 13
    identity = {"prefix identity", "output identity"}
    assert found.provides == {"arrivals", "sessions", "follow-ups", "samples"} | identity
    assert found.notes["requests whose prompts nobody knows"] == 52


def test_weights_draw_conversations_in_proportion_until_one_workload_ends():
    users = {**CHAT, "num_requests": 4000}
    others = {**PLAIN, "num_requests": 4000, "prompt_tokens": 500, "prefix": [30]}
    mix = Mix([users, others], weights=[1, 3], arrivals={"kind": "poisson", "rate": 4.0})
    found = mix.load(1)
    is_other = found.prompt_tokens == 530
    num_chats = int((found.parent[~is_other] < 0).sum())
    assert int(is_other.sum()) / (is_other.sum() + num_chats) == pytest.approx(0.75, abs=0.03)
    assert_histories(found)
    assert found.notes["cut: left over when one workload ran out"] == 8000 - len(found)
    firsts = np.unique(found.arrival_ns)
    assert len(firsts) / (firsts[-1] / 1e9) == pytest.approx(4, rel=0.1)
    assert set(np.diff(np.flatnonzero(found.parent < 0)).tolist()) == {1, 4}


def test_a_mix_of_longer_workloads_begins_with_that_of_shorter_ones():
    def mix(n):
        parts = [{**CHAT, "num_requests": n}, {**PLAIN, "num_requests": n, "prefix": [5]}]
        return Mix(parts, weights=[1, 1], arrivals=POISSON).load(5)

    long, short = mix(400), mix(100)
    n = len(short) - 4  # the last conversation of the short one is cut
    assert long.arrival_ns[:n].tolist() == short.arrival_ns[:n].tolist()
    assert long.prompt_tokens[:n].tolist() == short.prompt_tokens[:n].tolist()
    assert long.parent[:n].tolist() == short.parent[:n].tolist()


def test_a_filter_keeps_what_is_within_the_limits_and_counts_the_rest():
    found = Filter(inline(3, 9, 5, 4, 8), min_prompt_tokens=4, max_prompt_tokens=8).load(0)
    assert found.prompt_tokens.tolist() == [5, 4, 8]
    assert found.notes == {"dropped: prompt_tokens beyond the limits": 2}
    assert found.arrival_ns.tolist() == [2 * 10**9, 3 * 10**9, 4 * 10**9]
    found = Filter(inline(3, 9, 5, 4, 8), start_s=1, duration_s=3, limit=2).load(0)
    assert found.prompt_tokens.tolist() == [9, 5]
    assert found.arrival_ns.tolist() == [0, 10**9]
    with pytest.raises(TraceError, match="no request has output_tokens within the limits; found: "):
        Filter(inline(3, 9), min_output_tokens=3).load(0)
    with pytest.raises(TraceError, match="no request arrives from 5 s"):
        Filter(inline(3, 9), start_s=5).load(0)


def test_follow_ups_whose_turn_before_is_filtered_are_counted():
    once = alone(CHAT, 0)
    found = Filter(CHAT, min_prompt_tokens=80).load(0)
    is_kept = once.prompt_tokens >= 80
    orphans = is_kept & (once.parent >= 0) & ~is_kept[once.parent]
    assert found.notes["follow-ups whose turn before is not there"] == orphans.sum() > 0
    assert (found.parent < 0).sum() == orphans.sum() + (is_kept & (once.parent < 0)).sum()


def test_a_slice_by_time_keeps_sessions_whole():
    found = Filter(CHAT, start_s=2.0, duration_s=3.0).load(0)
    assert len(found) > 4
    assert "follow-ups whose turn before is not there" not in found.notes


def test_workloads_of_workloads_of_workloads():
    inner = {"kind": "filter", "workload": CHAT, "limit": 20}
    found = Repeat({"kind": "mix", "workloads": [inner, inner]}, 3, 5.0).load(0)
    assert len(found) == 120
    assert_histories(found)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Mix([]), "workloads: must be a list of at least one workload, got []"),
        (lambda: Mix([PLAIN, {**PLAIN, "num_requests": 0}]), "workloads.1.num_requests: must be"),
        (lambda: Mix([PLAIN], [1, 2], POISSON), "weights: must be as many as workloads, 1, got 2"),
        (lambda: Mix([PLAIN], [1]), "arrivals: must be given with weights, and not without them"),
        (lambda: Mix([PLAIN], None, POISSON), "arrivals: must be given with weights, and not wit"),
        (lambda: Repeat(PLAIN, 0, 1.0), "copies: must be a whole number, from 1 to "),
        (lambda: Repeat(PLAIN, 2, -1.0), "shift_s: must be at least 0"),
        (lambda: Repeat(PLAIN, 2, 1.0, "some"), "content: 'some' is unknown, did you mean same"),
        (lambda: Repeat({"kind": "x"}, 2, 1.0), "workload.kind: 'x' is unknown"),
        (lambda: Filter(PLAIN, max_prompt_tokens=0), "max_prompt_tokens: must be a whole number"),
        (lambda: Filter(PLAIN, min_output_tokens=0), "min_output_tokens: must be a whole number"),
        (lambda: Filter(PLAIN, duration_s=0), "duration_s: must be above 0"),
        (lambda: Filter(PLAIN, limit=0), "limit: must be a whole number, at least 1, got 0"),
    ],
)
def test_a_mistake_is_refused_by_its_full_key(make, message):
    with pytest.raises(ValueError, match=": ") as error:
        make()
    assert str(error.value).startswith(message)


def test_every_mistake_in_a_list_of_requests_is_named_with_its_full_key():
    with pytest.raises(ValueError, match=": ") as error:
        Filter(inline(0, 5, 0))
    first, second = str(error.value).split("\n")
    assert first.startswith("workload.requests: request 0: prompt_tokens is 0")
    assert second.startswith("workload.requests: request 2: prompt_tokens is 0")


def test_recorded_turns_keep_their_times_beside_turns_that_wait_for_their_parents() -> None:
    """With think times in one part only, parents of the other would become zero think times."""
    columns = [np.array(cells, np.int64) for cells in ([0, 5], [3, 3], [2, 2])]
    turns = {"session": np.zeros(2, np.int64), "parent": np.array([-1, 0])}
    recorded = Trace(*columns, **turns)
    simulated = Trace(*columns, **turns, think_ns=np.array([0, 7]))
    both = join([recorded, simulated], "a mix").fields
    assert both["parent"].tolist() == [-1, -1, -1, 2]
    assert both["session"].tolist() == [0, 0, 1, 1]
    alone = join([recorded, recorded], "a mix").fields
    assert alone["parent"].tolist() == [-1, 0, -1, 2]
