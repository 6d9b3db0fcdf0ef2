"""What a sequence consists of: the runs of its prompt, and those of what it generates."""

from __future__ import annotations

from collections.abc import Iterator

from workloads.content import Content, IntColumn, Run, own_output, own_prompt


class SequenceContent:
    """The content of requests' sequences, prompt and output.

    Without content nobody shares anything, but each request finds its own tokens again. Requests
    of different namespaces share nothing. priority says whose content is worth more: the lower, the
    more; without it all have 0.
    """

    def __init__(
        self,
        content: Content | None = None,
        namespace: IntColumn | None = None,
        priority: IntColumn | None = None,
    ) -> None:
        self._content = content
        self._namespace = namespace
        self._priority = priority

    def namespace(self, request: int) -> int:
        return 0 if self._namespace is None else self._namespace.item(request)

    def priority(self, request: int) -> int:
        return 0 if self._priority is None else self._priority.item(request)

    def prompts(self) -> Iterator[tuple[int, list[Run]]]:
        """(request, runs of its prompt) of all whose prompts are known to consist of something."""
        for request in range(0 if self._content is None else len(self._content)):
            yield request, self.prompt_runs(request, 0)

    def prompt_runs(self, request: int, count: int) -> list[Run]:
        """The runs of a prompt of count tokens."""
        if self._content is None:
            return [(own_prompt(request), 0, count)]
        return self._content.runs(request)

    def output_runs(self, request: int, count: int) -> list[Run]:
        """The runs of the first count tokens that a request generates."""
        if self._content is None:
            return [(own_output(request), 0, count)]
        return self._content.output_runs(request, count)

    def runs(self, request: int, prompt_tokens: int, num_tokens: int) -> list[Run]:
        """The runs of the first num_tokens tokens of a sequence, or of a little more."""
        runs = self.prompt_runs(request, prompt_tokens)
        if num_tokens > prompt_tokens:
            runs = joined(runs, self.output_runs(request, num_tokens - prompt_tokens))
        return runs


def joined(runs: list[Run], more: list[Run]) -> list[Run]:
    """Runs one after the other, in the one form of their content."""
    if not runs or not more:
        return runs + more
    (source, start, length), (next_source, next_start, next_length) = runs[-1], more[0]
    if source != next_source or start + length != next_start:
        return runs + more
    return [*runs[:-1], (source, start, length + next_length), *more[1:]]
