"""SGLang's scheduler over its radix cache in plain lists: admission, decoding, retraction.

Written from the rules of the engine (0.5.23, one step after the other) and from nothing of ours but
the naive tree. Nothing sleeps, and every size is counted again. Requests wait in order of arrival.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from naive_tree import NaiveTree, Words

TOO_LITTLE, ENOUGH_NOW, GO_ON = "no memory", "no budget", "go on"


class Knobs(NamedTuple):
    """Settings of the scheduler, under the engine's names as far as they are ours."""

    max_num_seqs: int
    chunked_prefill_size: int | None
    max_prefill_tokens: int
    init_new_token_ratio: float
    min_new_token_ratio_factor: float
    new_token_ratio_decay_steps: int
    retract_decode_steps: int
    clip_max_new_tokens: int


class Step(NamedTuple):
    """What a step did, and what it left: (request, hit, tokens) of whom it admitted."""

    admitted: list[tuple[int, int, int]]
    retracted: list[int]
    running: set[int]
    available: int
    evictable: int
    ratio: float


@dataclass(eq=False)
class Request:
    """words is all that it will consist of: computed are in memory, protected in the tree."""

    number: int
    arrival: int
    words: Words
    prompt: int
    max_new: int
    generated: int = 0
    computed: int = 0
    protected: int = 0
    inserted: int = 0

    def known(self) -> Words:
        return self.words[: self.prompt + self.generated]

    def has_ended(self) -> bool:
        return len(self.known()) == len(self.words)


@dataclass
class Budget:
    """What is left of one pass: offset is what the pool will have to give."""

    offset: float
    prefill: int
    chunk: int | None
    now: int = 0


@dataclass
class NaiveSglang:
    tree: NaiveTree
    pool: int
    knobs: Knobs
    waiting: list[Request] = field(default_factory=list)
    running: list[Request] = field(default_factory=list)
    ghosts: list[Request] = field(default_factory=list)
    computing: list[Request] = field(default_factory=list)
    chunked: Request | None = None
    is_full: bool = False
    failed: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ratio = self.first = self.knobs.init_new_token_ratio
        self.least = self.first * self.knobs.min_new_token_ratio_factor
        self.decay = (self.first - self.least) / self.knobs.new_token_ratio_decay_steps

    # memory

    def whole(self, count: int) -> int:
        return -(-count // self.tree.size) * self.tree.size

    def available(self) -> int:
        held = {*self.running, *self.computing, *([self.chunked] if self.chunked else [])}
        own = sum(self.whole(request.computed) - request.protected for request in held)
        return self.pool - own - self.tree.tokens(True) - self.tree.tokens(False)

    def in_pool(self) -> int:
        return self.available() + self.tree.tokens(False)

    def make_room(self, count: int) -> bool:
        self.tree.evict(count - self.available())
        return self.available() >= count

    def hold(self, request: Request, count: int) -> None:
        """Let go of what a request holds of the tree, and hold its first count tokens."""
        self.tree.change_locks(request.words[:count], 0, 1)
        self.tree.change_locks(request.words[: request.protected], 0, -1)
        request.protected = count

    def checkpoint(self, request: Request, count: int) -> None:
        words = request.words[: count // self.tree.size * self.tree.size]
        nobodys = [0] * (len(words) // self.tree.size)
        if words:
            self.tree.insert(words, 0, nobodys, 0, request.inserted)
        request.inserted = max(request.inserted, len(words))
        prompt = self.tree.whole(request.words[: request.prompt])  # as a boundary of its own
        if 0 < len(prompt) < len(words):
            self.tree.insert(prompt, 0, nobodys, 1, len(prompt))
        self.tree.match(words, 0)
        self.hold(request, len(words))

    def release(self, request: Request) -> None:
        self.hold(request, 0)
        request.computed = request.inserted = 0

    def end(self, request: Request) -> None:
        self.checkpoint(request, len(request.words) - 1)
        self.release(request)

    # prompts

    def left(self, request: Request) -> int:
        return min(max(request.max_new - request.generated, 0), self.knobs.clip_max_new_tokens)

    def prefill(self, step: Step) -> list[tuple[Request, int]]:
        """Whose prompts are computed, and how many tokens of each."""
        size = len(self.running) + len(self.ghosts)
        if not self.chunked and (self.is_full or not self.waiting):
            return []
        places = self.knobs.max_num_seqs - size
        if places <= 0 and not self.chunked:
            self.is_full = True
            return []
        expected = self.ratio * sum(map(self.left, [*self.running, *self.ghosts]))
        budget = Budget(expected, self.knobs.max_prefill_tokens, self.knobs.chunked_prefill_size)
        batch = [self._go_on(self.chunked, budget)] if self.chunked else []
        unfinished = self.chunked if batch and self._lacks(*batch[0]) else None
        verdict = GO_ON
        while self.waiting and verdict == GO_ON:
            self.is_full |= len(batch) >= places
            if self.is_full:
                break
            request = self.waiting[0]
            hit = self.tree.match(request.known()[:-1], 0)
            self.hold(request, hit)
            lacks = len(request.known()) - hit
            count, verdict = self._choose(request, lacks, budget, (bool(batch), bool(unfinished)))
            if count == 0:
                self.release(request)
                break
            self.waiting.pop(0)
            request.computed = hit
            unfinished = request if count < lacks else unfinished
            verdict = self._charge(budget, request, count, count == lacks)
            batch.append((request, count))
            step.admitted.append((request.number, hit, count))
        self.is_full |= verdict == TOO_LITTLE
        self.chunked = unfinished
        return batch

    def _lacks(self, request: Request, count: int) -> bool:
        return request.computed + count < len(request.known())

    def _remaining(self, budget: Budget) -> float:
        return self.in_pool() - budget.offset

    def _go_on(self, request: Request, budget: Budget) -> tuple[Request, int]:
        assert budget.chunk is not None
        lacks = len(request.known()) - request.computed
        room = min(budget.chunk, int(self._remaining(budget)))
        count = min(lacks, room if room > 0 else budget.chunk)
        self._charge(budget, request, count, count == lacks)
        return request, count

    def _choose(
        self, request: Request, lacks: int, budget: Budget, has: tuple[bool, bool]
    ) -> tuple[int, str]:
        """How many tokens are computed: has says if others are, and if one is unfinished."""
        has_others, has_unfinished = has
        if lacks + self.left(request) + self.tree.size >= self._remaining(budget):
            return 0, TOO_LITTLE
        if budget.chunk is None:
            is_over = has_others and self.whole(lacks) >= budget.prefill
            return (0, ENOUGH_NOW) if is_over else (lacks, GO_ON)
        if self.whole(lacks) <= budget.chunk:
            return lacks, GO_ON
        count = 0 if has_unfinished else budget.chunk // self.tree.size * self.tree.size
        return max(count, 0), ENOUGH_NOW

    def _charge(self, budget: Budget, request: Request, count: int, is_last: bool) -> str:
        new = min(request.max_new, self.knobs.clip_max_new_tokens) if is_last else 0
        taken = self.whole(count)
        budget.offset += taken + self.tree.size + new
        budget.now += taken + self.tree.size
        budget.prefill -= taken
        if budget.chunk is not None:
            budget.chunk -= taken
        if self._remaining(budget) <= 0 or self.in_pool() - budget.now <= 0:
            return TOO_LITTLE
        is_over = budget.prefill <= 0 or (budget.chunk is not None and budget.chunk <= 0)
        return ENOUGH_NOW if is_over else GO_ON

    # decodes

    def decode(self, step: Step) -> bool:
        """A token for everybody who runs; False if nobody does."""
        size = len(self.running) + len(self.ghosts)
        self.ghosts = []
        if self.running and self.make_room(self._need(self.running)):
            self.ratio = max(self.ratio - self.decay, self.least)
        elif self.running:
            self._retract(step)
        if len(self.running) < size or not self.running:
            self.is_full = False
        if self.running and self.tree.size > 1:
            self.make_room(self.tree.size * len(self.running))
        for request in self.running:
            request.computed += 1
        return bool(self.running)

    def _need(self, requests: list[Request]) -> int:
        return self.tree.size * sum(r.computed % self.tree.size == 0 for r in requests)

    def _retract(self, step: Step) -> None:
        self.running.sort(key=lambda request: (-request.generated, request.prompt))
        while len(self.running) > 1:
            request = self.running.pop()
            self.release(request)
            self.waiting.append(request)
            step.retracted.append(request.number)
            self.make_room(len(self.running) * self.knobs.retract_decode_steps)
            if self.make_room(self._need(self.running)):
                break
        if len(self.running) == 1 and not self.make_room(self._need(self.running)):
            self._fail(self.running.pop())
        generated = sum(request.generated for request in self.running)
        to_come = self.knobs.retract_decode_steps * len(self.running)
        longest = sum(request.max_new for request in self.running)
        self.ratio = min(1.0, (generated + to_come) / (longest + 1))

    def _fail(self, request: Request) -> None:
        self.release(request)
        self.failed.append(request.number)

    # steps

    def step(self) -> Step | None:
        """One iteration; None if there is nothing to do."""
        done = Step([], [], set(), 0, 0, 0.0)
        while True:
            is_alone = not self.running and not self.ghosts and not self.chunked
            batch = self.prefill(done)
            if batch:
                self._compute(batch)
                break
            if is_alone and self.waiting:  # it has grown since it came, and never fits again
                self.failed.append(self.waiting.pop(0).number)
                self.is_full = False
            elif self.decode(done):
                break
            elif not self.waiting:
                self.ratio = self.first
                return None
        running = {request.number for request in (*self.running, *self.computing)}
        sizes = self.available(), self.tree.tokens(False)
        done = Step(done.admitted, done.retracted, running, *sizes, self.ratio)
        self._end_prompts() if batch else self._end_decodes()
        return done

    def _compute(self, batch: list[tuple[Request, int]]) -> None:
        size = self.tree.size
        extra = size * len(batch) if size > 1 else 0
        self.computing = [request for request, _ in batch]
        assert self.make_room(sum(count for _, count in batch) + extra) or extra
        for request, count in batch:
            request.computed += count

    def _end_prompts(self) -> None:
        was_empty = not self.running and not self.ghosts
        has_shrunk = self.chunked is not None
        for request in self.computing:
            if request is self.chunked:
                continue
            request.generated += 1
            if request.has_ended():
                self.end(request)
                has_shrunk = True
            else:
                self.checkpoint(request, request.computed)
                self.running.append(request)
        if self.chunked:
            self.checkpoint(self.chunked, self.chunked.computed)
        self.computing = []
        self.is_full &= not (has_shrunk or was_empty)

    def _end_decodes(self) -> None:
        for request in self.running:
            request.generated += 1
        ended = [request for request in self.running if request.has_ended()]
        for request in ended:
            self.end(request)
            self.running.remove(request)
        self.ghosts += ended


def played(model: NaiveSglang, requests: list[Request]) -> list[Step]:
    """All steps of requests in order of arrival, which is counted in steps."""
    steps, now, to_come = [], 0, list(requests)
    while True:
        while to_come and to_come[0].arrival <= now:
            model.waiting.append(to_come.pop(0))
        step = model.step()
        if step is not None:
            steps.append(step)
            now += 1
        elif to_come:
            now = max(now, to_come[0].arrival)
        else:
            return steps
