"""Caches of blocks that do what policies say with plain lists and scans, one block at a time."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp

from sim.policies.workload_aware import NUM_CATEGORIES

Block = tuple[int, ...]
Path = tuple[Block, ...]


class NaiveCache:
    """A set of prefixes. A subclass says how a use is noted and which evictable leaf goes."""

    def __init__(self, capacity: int, paths: Sequence[Path], asked: Sequence[int]) -> None:
        self.capacity, self.paths, self.asked = capacity, paths, asked
        self.cached: list[Block] = []  # in order of insertion

    def serve_all(self) -> list[int]:
        return [self.serve(request) for request in range(len(self.paths))]

    def serve(self, request: int) -> int:
        """Serve a request; how many of its prompt's blocks were cached, from the first on."""
        self.request, self.path = request, self.paths[request]
        known = 0
        while known < len(self.path) and self.path[known] in self.cached:
            known += 1
        for block in reversed(self.path[:known]):
            self.hit(block)
        is_kept = True
        for block in self.path[known:]:
            self.come(block)
            if is_kept and len(self.cached) == self.capacity:
                victim = self.victim(self.leaves(), block)
                is_kept = victim is not None
                if victim is not None:
                    self.cached.remove(victim)
                    self.leave(victim)
            if is_kept:
                self.cached.append(block)
                self.enter(block)
            assert len(self.cached) <= self.capacity
            assert all(block[:-1] in self.cached for block in self.cached if len(block) > 1)
        return min(known, self.asked[request])

    def leaves(self) -> list[Block]:
        inner = {block[:-1] for block in self.cached}
        return [block for block in self.cached if block not in inner and block not in self.path]

    def next_use(self, block: Block) -> float:
        for later in range(self.request + 1, len(self.paths)):
            if block in self.paths[later]:
                is_asked = len(block) <= self.asked[later]
                return later if is_asked else float("inf")
        return float("inf")

    def hit(self, block: Block) -> None: ...
    def come(self, block: Block) -> None: ...
    def enter(self, block: Block) -> None: ...
    def leave(self, block: Block) -> None: ...
    def victim(self, leaves: list[Block], coming: Block) -> Block | None:
        raise NotImplementedError


class Recency(NaiveCache):
    """Notes for each block the request that used it last, and how often it was used."""

    def serve_all(self) -> list[int]:
        self.last: dict[Block, int] = {}
        self.uses: dict[Block, int] = {}
        return super().serve_all()

    def hit(self, block: Block) -> None:
        self.last[block] = self.request
        self.uses[block] += 1

    def enter(self, block: Block) -> None:
        self.last[block], self.uses[block] = self.request, 1

    def rank(self, block: Block) -> tuple[float, ...]:
        return (self.last[block], -len(block))

    def victim(self, leaves, coming):
        return min(leaves, key=self.rank, default=None)


class Lru(Recency): ...


class Lfu(Recency):
    def rank(self, block: Block) -> tuple[float, ...]:
        return (self.uses[block], *super().rank(block))


class Fifo(Recency):
    def hit(self, block: Block) -> None: ...


class Clairvoyant(NaiveCache):
    def victim(self, leaves, coming):
        farthest = max(leaves, key=self.next_use, default=None)
        if farthest is None or self.next_use(farthest) <= self.next_use(coming):
            return None
        return farthest


class S3Fifo(NaiveCache):
    """Queues are lists, the oldest block first."""

    def serve_all(self) -> list[int]:
        self.small, self.main, self.ghosts = [], [], []
        self.hits: dict[Block, int] = {}
        self.share = max(1, self.capacity // 10)
        return super().serve_all()

    def serve(self, request):
        self.recent = set()  # put into a queue while this request is served
        return super().serve(request)

    def hit(self, block):
        self.hits[block] = min(3, self.hits[block] + 1)

    def enter(self, block):
        self.hits[block] = 0
        queue = self.main if block in self.ghosts else self.small
        if block in self.ghosts:
            self.ghosts.remove(block)
        # the deepest of one request's blocks is the oldest
        queue.insert(next((i for i, b in enumerate(queue) if b in self.recent), len(queue)), block)
        self.recent.add(block)

    def victim(self, leaves, coming):
        while leaves:
            is_small = len(self.small) >= self.share
            queue = self.small if is_small else self.main
            if not any(block in leaves for block in queue):
                queue = self.main if is_small else self.small
            block = next(block for block in queue if block in leaves)
            queue.remove(block)
            if self.hits[block] <= (1 if queue is self.small else 0):
                if queue is self.small:
                    self.ghosts.append(block)
                    del self.ghosts[: max(0, len(self.ghosts) - (self.capacity - self.share))]
                return block
            self.hits[block] = 0 if queue is self.small else self.hits[block] - 1
            self.main.append(block)
            self.recent.add(block)
        return None


class Arc(NaiveCache):
    """The four lists as in the paper, the least recent block first."""

    def serve_all(self) -> list[int]:
        self.t1, self.t2, self.b1, self.b2 = [], [], [], []
        self.target = 0.0
        return super().serve_all()

    def hit(self, block):
        (self.t1 if block in self.t1 else self.t2).remove(block)
        self.t2.append(block)

    def come(self, block):
        if block in self.b1:
            step = max(1.0, len(self.b2) / len(self.b1))
            self.target = min(float(self.capacity), self.target + step)
        elif block in self.b2:
            step = max(1.0, len(self.b1) / len(self.b2))
            self.target = max(0.0, self.target - step)

    def victim(self, leaves, coming):
        if not leaves:
            return None
        is_new = coming not in self.b1 and coming not in self.b2
        l1, everything = self.t1 + self.b1, self.t1 + self.b1 + self.t2 + self.b2
        if is_new and len(l1) >= self.capacity and self.b1:
            self.b1.pop(0)
        elif is_new and len(l1) < self.capacity and len(everything) >= 2 * self.capacity:
            self.b2.pop(0)
        size = len(self.t1)
        is_over = size > self.target or (size == self.target and coming in self.b2)
        first = self.t1 if size and is_over else self.t2
        if not any(block in leaves for block in first):
            first = self.t2 if first is self.t1 else self.t1
        self.victims_list = first
        return next(block for block in first if block in leaves)

    def leave(self, block):
        self.victims_list.remove(block)
        (self.b1 if self.victims_list is self.t1 else self.b2).append(block)

    def enter(self, block):
        queue = self.t1
        for ghosts in (self.b1, self.b2):
            if block in ghosts:
                ghosts.remove(block)
                queue = self.t2
        # the deepest of one request's blocks is the least recent
        queue.insert(next((i for i, b in enumerate(queue) if b in self.path), len(queue)), block)
        while self.b1 and len(self.t1) + len(self.b1) > self.capacity:
            self.b1.pop(0)
        while self.b2 and len(self.t1 + self.b1 + self.t2 + self.b2) > 2 * self.capacity:
            self.b2.pop(0)


class WorkloadAware(Recency):
    def serve_all(self) -> list[int]:
        self.counts = [[0, 0, 0] for _ in range(NUM_CATEGORIES)]
        self.category: dict[Block, int] = {}
        self.ever: dict[Block, int] = {}
        self.seen: dict[Block, int] = {}
        self.ages = [1.0]
        return super().serve_all()

    turns: Sequence[int] = ()

    def note(self, block):
        number = self.ever.get(block, 0)
        if number:
            self.counts[self.category[block]][1] += 1
            self.counts[self.category[block]][2] += self.request - self.seen[block]
        turn = self.turns[self.request]
        self.category[block] = min(turn if turn >= 0 else number, NUM_CATEGORIES - 1)
        self.counts[self.category[block]][0] += 1
        self.ever[block], self.seen[block] = number + 1, self.request

    def hit(self, block):
        super().hit(block)
        self.note(block)

    def come(self, block):
        self.note(block)

    def chance(self, block):
        uses, reuses, waited = self.counts[self.category[block]]
        share, mean = (reuses + 1) / (uses + 2), (waited + 1) / (reuses + 1)
        left = share * exp(-(self.request - self.seen[block]) / mean)
        stay = sum(self.ages) / len(self.ages)
        return left * (1 - exp(-stay / mean)) / (1 - share + left)

    def victim(self, leaves, coming):
        def rank(block):
            return (self.chance(block), self.category[block], self.last[block], -len(block))

        found = min(leaves, key=rank, default=None)
        if found is not None:
            self.ages.append(self.request - self.seen[found])
        return found


NAIVE = {
    "lru": Lru,
    "lfu": Lfu,
    "fifo": Fifo,
    "clairvoyant": Clairvoyant,
    "s3-fifo": S3Fifo,
    "arc": Arc,
    "workload-aware": WorkloadAware,
}
