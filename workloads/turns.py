"""Which requests follow which: conversations, agents, trees of thoughts, users in a loop.

A follow-up arrives when its parent has finished in the simulation, and somebody has thought. Its
prompt is the parent's prompt, the parent's output, and text of its own, unless history is not
kept. Requests stand session by session, in the order in which sessions start, and each carries
the time of that start as its arrival; so the first requests of a longer list are those of a
shorter one, and a slice by time keeps sessions whole.

Extend by one class with a method plan, and one line in TURNS.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from workloads import checks
from workloads.distributions import LENGTH_DISTRIBUTIONS, LengthDistribution
from workloads.durations import DURATIONS, Duration
from workloads.streams import stream
from workloads.trace import MAX_TOKENS, IntColumn

MAX_BRANCHES = 1000
MAX_TREE = 1_000_000  # requests of one tree


@dataclass(frozen=True, eq=False)
class Plan:
    """Who follows whom, one cell a request; a parent is a row, -1 where there is none.

    session counts sessions from 0 in the order of their start. text is the row whose own text
    the prompt ends with: the row itself, or the first of several that ask the same. Of rows with
    a parent, own_tokens says how long it is, if it is not as drawn.
    """

    session: IntColumn
    parent: IntColumn
    think_ns: IntColumn
    text: IntColumn
    own_tokens: IntColumn | None = None


class Turns(ABC):
    """A rule for what follows a request.

    has_history: a follow-up's prompt begins with its parent's prompt and output.
    """

    kind: ClassVar[str]
    nested: ClassVar[Mapping[str, Mapping[str, type]]] = {}
    has_history: ClassVar[bool] = True
    max_prompt_tokens: int | None = None  # a longer prompt keeps its last tokens only

    @abstractmethod
    def plan(self, num_requests: int, seed: int, notes: Counter[str]) -> Plan:
        """The plan of so many requests; notes count the draws that were limited."""


@dataclass(frozen=True)
class Chat(Turns):
    """Conversations: the next message comes when the answer is there and read.

    count is the number of turns, {kind: …}, a distribution (kvsim list lengths), or a bare number.
    think_s is the time from an answer to the next message, {kind: …} (kvsim list durations), or a
    bare number of seconds.
    max_prompt_tokens: a prompt that is longer keeps its last tokens only, the system prompt not
    excepted, as in the PagedAttention paper's chatbot (1024; section 6.5). Such prompts are
    counted.
    """

    count: int | Mapping[str, object]
    think_s: float | Mapping[str, object] = 0.0
    max_prompt_tokens: int | None = None

    kind: ClassVar[str] = "chat"
    nested: ClassVar[Mapping[str, Mapping[str, type]]] = {
        "count": LENGTH_DISTRIBUTIONS,
        "think_s": DURATIONS,
    }

    def __post_init__(self) -> None:
        lengths("count", self.count)
        durations("think_s", self.think_s)
        check_limit(self.max_prompt_tokens)

    def plan(self, num_requests: int, seed: int, notes: Counter[str]) -> Plan:
        session, parent = chains(num_requests, lengths("count", self.count), seed, notes)
        think_ns = think_times(parent, durations("think_s", self.think_s), seed)
        return Plan(session, parent, think_ns, np.arange(num_requests))


@dataclass(frozen=True)
class Agent(Turns):
    """Tool loops: each output calls a tool, whose result joins the context of the next step.

    steps is the number of model calls of a task, {kind: …}, a distribution (kvsim list lengths),
    or a bare number.
    tool_tokens are the tokens of a tool's result, {kind: …} or a bare number; the task itself, its
    first prompt, has prompt_tokens.
    tool_s is how long a tool runs, {kind: …} (kvsim list durations), or a bare number of seconds.
    max_prompt_tokens: a context that is longer keeps its last tokens only, and is counted.
    """

    steps: int | Mapping[str, object]
    tool_tokens: int | Mapping[str, object]
    tool_s: float | Mapping[str, object] = 0.0
    max_prompt_tokens: int | None = None

    kind: ClassVar[str] = "agent"
    nested: ClassVar[Mapping[str, Mapping[str, type]]] = {
        "steps": LENGTH_DISTRIBUTIONS,
        "tool_tokens": LENGTH_DISTRIBUTIONS,
        "tool_s": DURATIONS,
    }

    def __post_init__(self) -> None:
        lengths("steps", self.steps)
        lengths("tool_tokens", self.tool_tokens)
        durations("tool_s", self.tool_s)
        check_limit(self.max_prompt_tokens)

    def plan(self, num_requests: int, seed: int, notes: Counter[str]) -> Plan:
        session, parent = chains(num_requests, lengths("steps", self.steps), seed, notes)
        think_ns = think_times(parent, durations("tool_s", self.tool_s), seed)
        later = np.flatnonzero(parent >= 0)
        own = np.zeros(num_requests, np.int64)
        rng = stream(seed, "later_tokens")
        own[later] = lengths("tool_tokens", self.tool_tokens).draw(
            "tool_tokens", len(later), rng, notes
        )
        return Plan(session, parent, think_ns, np.arange(num_requests), own)


@dataclass(frozen=True)
class TreeOfThoughts(Turns):
    """Breadth-first trees of thoughts (Yao et al. 2023, algorithm 1), one tree a session.

    branch thoughts are sampled from each state by requests of the same prompt, keep thoughts of a
    level are expanded, over depth levels. A state is the problem and the thoughts that led to it,
    each followed by prompt_tokens of text, such as what asks for the next step.
    think_s is the time from a thought to the requests that expand it, {kind: …} (kvsim list
    durations), or a bare number of seconds.
    Two simplifications: which thoughts are kept is a uniform choice, as no values are simulated,
    and a kept thought is expanded when it is finished, not when its whole level is.
    """

    branch: int
    depth: int
    keep: int
    think_s: float | Mapping[str, object] = 0.0

    kind: ClassVar[str] = "tree_of_thoughts"
    nested: ClassVar[Mapping[str, Mapping[str, type]]] = {"think_s": DURATIONS}

    def __post_init__(self) -> None:
        for name in ("branch", "depth", "keep"):
            checks.whole(name, getattr(self, name), 1, MAX_BRANCHES)
        if self.size > MAX_TREE:
            raise ValueError(
                f"depth: must give at most {MAX_TREE} requests a tree, got {self.size}"
            )
        durations("think_s", self.think_s)

    @property
    def size(self) -> int:
        """Requests of one tree."""
        total = level = self.branch
        for _ in range(self.depth - 1):
            level = min(self.keep, level) * self.branch
            total += level
        return total

    def plan(self, num_requests: int, seed: int, notes: Counter[str]) -> Plan:
        rng = stream(seed, "turns")
        num_trees = -(-num_requests // self.size)
        trees = np.array([self._tree(rng) for _ in range(num_trees)])  # (trees, 2, size)
        first = np.arange(num_trees)[:, np.newaxis] * self.size
        parent = np.where(trees[:, 0] < 0, -1, trees[:, 0] + first).ravel()[:num_requests]
        text = (trees[:, 1] + first).ravel()[:num_requests]
        session = np.repeat(np.arange(num_trees), self.size)[:num_requests]
        return Plan(
            session, parent, think_times(parent, durations("think_s", self.think_s), seed), text
        )

    def _tree(self, rng: np.random.Generator) -> tuple[list[int], list[int]]:
        """Parents and texts of one tree, as numbers of its own requests."""
        parents, texts = [-1] * self.branch, [0] * self.branch
        first = 0  # of the level before
        for _ in range(self.depth - 1):
            end = len(parents)
            kept = first + rng.permutation(end - first)[: self.keep]
            for thought in sorted(kept.tolist()):
                texts += [len(texts)] * self.branch
                parents += [thought] * self.branch
            first = end
        return parents, texts


@dataclass(frozen=True)
class ClosedLoop(Turns):
    """A fixed number of users, each of whom asks again some time after the answer.

    users is how many there are; arrivals say when each begins. Requests go round the users, so
    each makes as many as the others, give or take one. What a user asks has nothing to do with
    the answer before: no history, no sessions; and who is refused thinks, and asks again.
    think_s is the time from an answer to the next request, {kind: …} (kvsim list durations), or a
    bare number of seconds.
    """

    users: int
    think_s: float | Mapping[str, object] = 0.0

    kind: ClassVar[str] = "closed_loop"
    nested: ClassVar[Mapping[str, Mapping[str, type]]] = {"think_s": DURATIONS}
    has_history: ClassVar[bool] = False

    def __post_init__(self) -> None:
        checks.whole("users", self.users, 1, MAX_TOKENS)
        durations("think_s", self.think_s)

    def plan(self, num_requests: int, seed: int, notes: Counter[str]) -> Plan:
        rows = np.arange(num_requests)
        parent = np.maximum(rows - self.users, -1)
        think_ns = think_times(parent, durations("think_s", self.think_s), seed)
        return Plan(rows % self.users, parent, think_ns, rows)


def lengths(name: str, spec: object) -> LengthDistribution:
    """The distribution of token or turn counts that {kind: …} describes."""
    return checks.build(name, spec, LENGTH_DISTRIBUTIONS)


def durations(name: str, spec: object) -> Duration:
    """The distribution of times that {kind: …} describes."""
    return checks.build(name, spec, DURATIONS)


def check_limit(max_prompt_tokens: int | None) -> None:
    """Check the limit of a growing prompt."""
    if max_prompt_tokens is not None:
        checks.whole("max_prompt_tokens", max_prompt_tokens, 1, MAX_TOKENS)


def chains(
    num_requests: int, counts: LengthDistribution, seed: int, notes: Counter[str]
) -> tuple[IntColumn, IntColumn]:
    """The session and parent of each request, if each follows the one before in its session."""
    drawn = counts.draw("turns", num_requests, stream(seed, "turns"), Counter())
    needed = int(np.searchsorted(np.cumsum(drawn), num_requests)) + 1
    # again, because only what is needed counts among the draws that were limited
    drawn = counts.draw("turns", needed, stream(seed, "turns"), notes)
    session = np.repeat(np.arange(needed), np.minimum(drawn, num_requests))[:num_requests]
    rows = np.arange(num_requests)
    is_first = np.diff(session, prepend=-1) > 0
    return session, np.where(is_first, -1, rows - 1)


def think_times(parent: IntColumn, think: Duration, seed: int) -> IntColumn:
    """Nanoseconds from each parent's end to its follow-up, 0 for what follows nothing."""
    later = np.flatnonzero(parent >= 0)
    think_ns = np.zeros(len(parent), np.int64)
    think_ns[later] = think.draw_ns(len(later), stream(seed, "think"))
    return think_ns


TURNS: dict[str, type[Turns]] = {
    "chat": Chat,
    "agent": Agent,
    "tree_of_thoughts": TreeOfThoughts,
    "closed_loop": ClosedLoop,
}
