"""Policies over one prefix cache: against naive caches, the best possible, and on a trace."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from command import ROOT
from naive_policies import NAIVE, WorkloadAware
from sim.policies import POLICIES, References, hit_blocks, hit_rate, references
from workloads.content import ContentBuilder
from workloads.trace import Trace, TraceError

ONLINE = [name for name in NAIVE if name != "clairvoyant"]

Block = tuple[int, ...]
Requests = tuple[list[tuple[Block, ...]], list[int], list[int]]


def prefixes(last: Block) -> tuple[Block, ...]:
    return tuple(last[:i] for i in range(1, len(last) + 1))


@st.composite
def requests(draw: st.DrawFn, most: int = 40, tail: int = 4) -> Requests:
    """Paths of blocks, how many each asks for, and turns: prompts go on from earlier ones."""
    paths: list[tuple[Block, ...]] = []
    asked, turns, seen = [], [], [()]
    has_sessions = draw(st.booleans())
    for request in range(draw(st.integers(1, most))):
        base = draw(st.sampled_from(seen))
        own = draw(st.lists(st.integers(0, 1), max_size=tail))
        output = [100 + request] * draw(st.integers(0, 2))
        paths.append(prefixes((*base, *own, *output)))
        asked.append(len(base) + len(own))
        turns.append(draw(st.integers(0, 9)) if has_sessions else -1)
        seen += [block for block in paths[-1] if block not in seen]
    return paths, asked, turns


def as_references(given_requests: Requests) -> References:
    paths, asked, turns = given_requests
    numbers: dict[Block, int] = {}
    parents = []
    for path in paths:
        for block in path:
            if block not in numbers:
                numbers[block] = len(numbers)
                parents.append(numbers.get(block[:-1], -1))
    first = np.cumsum([0, *map(len, paths)])
    blocks = np.array([numbers[block] for path in paths for block in path], np.int64)
    parent = np.array(parents, np.int64)
    return References(1, first, blocks, np.array(asked), parent, np.array(asked), np.array(turns))


def best_possible(given_requests: Requests, capacity: int) -> int:
    """Most hits of any choice of what to keep, of all there are, prefix-closed or not."""
    paths, asked, _ = given_requests

    @cache
    def most(request: int, kept: frozenset[Block]) -> int:
        if request == len(paths):
            return 0
        known = 0
        while known < asked[request] and paths[request][known] in kept:
            known += 1
        there = sorted(kept.union(paths[request]))
        choices = combinations(there, min(capacity, len(there)))
        return known + max(most(request + 1, frozenset(choice)) for choice in choices)

    return most(0, frozenset())


@pytest.mark.parametrize("name", NAIVE)
@settings(max_examples=150, deadline=None)
@given(given_requests=requests(), capacity=st.integers(1, 25))
def test_a_policy_finds_what_its_naive_form_finds(
    name: str, given_requests: Requests, capacity: int
) -> None:
    """The naive form also sees to it that capacity is kept and that what it caches is closed."""
    paths, asked, turns = given_requests
    naive = NAIVE[name](capacity, paths, asked)
    if isinstance(naive, WorkloadAware):
        naive.turns = turns
    found = hit_blocks(name, as_references(given_requests), capacity)
    assert found.tolist() == naive.serve_all()


@pytest.mark.parametrize("name", NAIVE)
@pytest.mark.parametrize("capacity", [4, 15, 30])
def test_a_policy_finds_the_same_over_a_long_history(name: str, capacity: int) -> None:
    """Long enough for what small examples seldom reach: several hits in a queue, full ghosts."""
    draw = np.random.default_rng(capacity)
    parent = [-1, *(int(draw.integers(-1, block)) for block in range(1, 60))]
    paths: list[tuple[Block, ...]] = []
    for block in (60 * draw.random(400) ** 2).astype(int).tolist():
        last: Block = ()
        while block >= 0:
            last, block = (block, *last), parent[block]  # noqa: PLW2901
        paths.append(prefixes(last))
    given_requests = paths, [len(path) for path in paths], draw.integers(0, 9, 400).tolist()
    naive = NAIVE[name](capacity, *given_requests[:2])
    if isinstance(naive, WorkloadAware):
        naive.turns = given_requests[2]
    assert hit_blocks(name, as_references(given_requests), capacity).tolist() == naive.serve_all()


@settings(max_examples=150, deadline=None)
@given(given_requests=requests(most=7, tail=2), capacity=st.integers(1, 3))
def test_the_clairvoyant_finds_as_much_as_the_best_of_all_choices(
    given_requests: Requests, capacity: int
) -> None:
    found = hit_blocks("clairvoyant", as_references(given_requests), capacity)
    assert found.sum() == best_possible(given_requests, capacity)


@settings(max_examples=200, deadline=None)
@given(given_requests=requests(), capacity=st.integers(0, 25))
def test_every_policy_lies_between_none_and_the_clairvoyant_and_that_below_unbounded(
    given_requests: Requests, capacity: int
) -> None:
    asked = as_references(given_requests)
    found = {name: hit_blocks(name, asked, capacity) for name in POLICIES}
    ceiling = found["clairvoyant"].sum()
    assert found["none"].sum() == 0
    assert ceiling <= found["unbounded"].sum()
    for name in ONLINE:
        assert found[name].sum() <= ceiling, name
        assert (found[name] <= found["unbounded"]).all(), name


@pytest.mark.parametrize("name", ["lru", "clairvoyant"])
@settings(max_examples=100, deadline=None)
@given(given_requests=requests())
def test_a_larger_cache_never_finds_less(name: str, given_requests: Requests) -> None:
    """lru: request for request, because the smaller cache is always part of the larger one."""
    asked = as_references(given_requests)
    found = [hit_blocks(name, asked, capacity) for capacity in range(30)]
    for smaller, larger in pairwise(found):
        if name == "lru":
            assert (smaller <= larger).all()
        assert smaller.sum() <= larger.sum()


@pytest.mark.parametrize("name", sorted(set(POLICIES) - {"none"}))
@settings(max_examples=50, deadline=None)
@given(given_requests=requests())
def test_a_cache_that_holds_everything_is_unbounded(name: str, given_requests: Requests) -> None:
    asked = as_references(given_requests)
    found = hit_blocks(name, asked, asked.num_blocks + 1)
    assert found.tolist() == hit_blocks("unbounded", asked, 0 + 1).tolist()


def chat() -> Trace:
    """Blocks of 10: 25 tokens, an output of 20, and a second turn of all 45 tokens and 5 more."""
    content = ContentBuilder()
    first = [(7, 0, 25)]
    content.add(first, 25, output_source=9)
    content.add([*first, (9, 0, 20), (8, 0, 5)], 50)
    return Trace(
        np.array([0, 1]),
        np.array([25, 50]),
        np.array([20, 1]),
        content=content.build(),
        session=np.array([4, 4]),
        has_output_identity=True,
    )


def test_outputs_are_written_but_for_their_last_token() -> None:
    """25 + 19 tokens fill four blocks; the second turn finds these four of its five."""
    asked = references(chat(), 10)
    assert np.diff(asked.first).tolist() == [4, 5]
    assert asked.num_asked.tolist() == [2, 5]
    assert asked.parent.tolist() == [-1, 0, 1, 2, 3]
    assert asked.turns.tolist() == [0, 1]
    found = hit_blocks("lru", asked, 10)
    assert found.tolist() == [0, 4]
    assert hit_rate(asked, found) == 40 / 75


def test_a_block_that_is_written_again_before_it_is_asked_for_has_no_next_use() -> None:
    paths = [prefixes((1,)), prefixes((1,)), prefixes((1,))]
    asked = as_references((paths, [1, 0, 1], [-1] * 3))
    assert asked.next_use[1] == 2
    assert asked.next_use[0] > len(paths)


def test_namespaces_share_nothing() -> None:
    trace = chat()
    apart = Trace(
        trace.arrival_ns,
        trace.prompt_tokens,
        trace.output_tokens,
        content=trace.content,
        namespace=np.array([0, 1]),
    )
    assert hit_blocks("unbounded", references(apart, 10), 1).sum() == 0


def test_what_cannot_be_replayed_is_said_in_a_sentence() -> None:
    bare = Trace(np.array([0]), np.array([3]), np.array([3]), source="bare.csv")
    with pytest.raises(TraceError, match=r"^bare\.csv: does not say what prompts share"):
        references(bare, 16)
    with pytest.raises(ValueError, match="policy: unknown 'mru'; accepted: unbounded, clair"):
        hit_blocks("mru", references(chat(), 10), 3)
    with pytest.raises(ValueError, match="capacity: must be 0 blocks or more, got -1"):
        hit_blocks("lru", references(chat(), 10), -1)


PROGRAM = """
import numpy as np
from sim.policies import POLICIES, References, hit_blocks
draw = np.random.default_rng(5)
parent = np.array([-1, *(int(draw.integers(-1, b)) for b in range(1, 60))])
paths = []
for block in draw.integers(0, 60, 300):
    path = [int(block)]
    while parent[path[0]] >= 0:
        path.insert(0, int(parent[path[0]]))
    paths.append(path)
first = np.cumsum([0, *map(len, paths)])
asked = np.array([len(path) for path in paths])
turns = draw.integers(0, 9, 300)
trace = References(1, first, np.concatenate(paths), asked, parent, asked, turns)
print({name: [hit_blocks(name, trace, c).tolist() for c in (3, 11, 30)] for name in POLICIES})
"""


def test_compiled_and_plain_python_find_the_same() -> None:
    said = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
            env={**os.environ, "NUMBA_DISABLE_JIT": plain},
            timeout=200,
        ).stdout
        for plain in ("0", "1")
    ]
    assert said[0] == said[1]
    assert said[0].count("[") > 10
