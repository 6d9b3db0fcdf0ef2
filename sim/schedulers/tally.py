"""What schedulers count of the tokens that they find, and of those that they compute again."""

from __future__ import annotations


class Tally:
    """Counts of a run.

    num_queried_tokens were asked of a prefix cache, num_hit_tokens of them found, in
    num_hit_requests lookups that found anything. A lookup counts when its request is admitted; a
    scheduler may say that others count, too.

    num_recomputed_tokens were computed although the same request had computed them before: it was
    preempted and lost its memory, and did not find them in the cache when it resumed. A token that
    an iteration was to compute, but that was taken out of it, was not computed.
    """

    def __init__(self, caches_prefixes: bool) -> None:
        self._caches_prefixes = caches_prefixes
        self.num_queried_tokens = 0
        self.num_hit_tokens = 0
        self.num_hit_requests = 0
        self.num_recomputed_tokens = 0
        self._lost: dict[int, int] = {}  # of preempted requests: tokens that each had computed

    def looked_up(self, num_tokens: int, num_hit: int) -> None:
        """The cache was asked for a request of num_tokens tokens."""
        if self._caches_prefixes:
            self.num_queried_tokens += num_tokens
            self.num_hit_tokens += num_hit
            self.num_hit_requests += num_hit > 0

    def preempted(self, request: int, num_computed: int) -> None:
        """A request loses the memory of the num_computed tokens that it has computed or found.

        What it would still have had to compute again was counted when it resumed.
        """
        lost = self._lost.get(request, 0)
        self.num_recomputed_tokens -= max(0, lost - num_computed)
        self._lost[request] = max(lost, num_computed)

    def admitted(self, request: int, num_hit: int, num_sequences: int = 1) -> None:
        """A request begins, or resumes, behind the num_hit tokens that were found.

        Each of its sequences computes the rest.
        """
        if self._lost:  # nobody was preempted: the common case
            lost = self._lost.get(request, 0)
            self.num_recomputed_tokens += num_sequences * max(0, lost - num_hit)

    def counters(self) -> dict[str, int]:
        """The counts by name; those of lookups only where something can be found."""
        counts = {"num_recomputed_tokens": self.num_recomputed_tokens}
        if self._caches_prefixes:
            for name in ("num_queried_tokens", "num_hit_tokens", "num_hit_requests"):
                counts[name] = getattr(self, name)
        return counts
