"""What the requests of a history say: prompts of which some begin alike."""

from __future__ import annotations

from workloads.content import Run
from workloads.sequences import SequenceContent


class SharedBeginnings(SequenceContent):
    """Prompts that begin alike, for some tokens, and outputs that continue each other's."""

    def __init__(self) -> None:
        super().__init__()
        self._own = 1000
        self._of: dict[int, tuple[int, int, int]] = {}  # by request
        self.begin(0, 0)

    def begin(self, source: int, alike: int, request: int | None = None) -> None:
        """A sequence has its first tokens, alike of them, from the source.

        It is that of the request, or of any one that nothing has been said of.
        """
        self._own += 1
        self._next = source, alike, self._own
        if request is not None:
            self._of[request] = self._next

    def runs(self, request: int, prompt_tokens: int, num_tokens: int) -> list[Run]:
        source, alike, own = self._of.get(request, self._next)
        alike = min(alike, num_tokens)
        rest = [(own, 0, num_tokens - alike)] if num_tokens > alike else []
        return [(source + 1, 0, alike), *rest] if alike else rest
