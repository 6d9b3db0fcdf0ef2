"""Generated requests that may share prefixes, follow each other, and be sampled together."""

# annotations stay objects here, as in tracefile: subclasses in other modules inherit these
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from workloads import checks
from workloads.beams import MAX_WIDTH
from workloads.compose import front_cells, grown, separate, with_own_text
from workloads.content import Content
from workloads.distributions import LENGTH_DISTRIBUTIONS
from workloads.generator import Generator
from workloads.prefixes import PREFIXES, Prefix
from workloads.streams import stream
from workloads.trace import IntColumn, Trace, TraceError
from workloads.turns import TURNS, Plan, Turns


@dataclass(frozen=True, kw_only=True)
class SharingGenerator(Generator):
    """What generated requests may have in common.

    prefix is a list of what prompts begin with, each {kind: …} (kvsim list prefixes) or a bare
    number of tokens that all have in common. It comes on top of a request's own prompt_tokens.
    turns are {kind: …} (kvsim list turns): what follows a request, when it has finished. Arrivals
    then are those of first turns, and num_requests counts all.
    num_samples is how many outputs are sampled in parallel for each prompt, a number or {kind: …}
    (kvsim list lengths). A follow-up continues the first of them.
    beam_width is how many beams a beam search keeps, likewise; one of the two.
    """

    prefix: Sequence[int | Mapping[str, object]] = ()
    turns: Mapping[str, object] | None = None
    num_samples: int | Mapping[str, object] | None = None
    beam_width: int | Mapping[str, object] | None = None

    nested: ClassVar[Mapping[str, Mapping[str, type]]] = {
        **Generator.nested,
        "turns": TURNS,
        "num_samples": LENGTH_DISTRIBUTIONS,
        "beam_width": LENGTH_DISTRIBUTIONS,
    }
    nested_lists: ClassVar[Mapping[str, Mapping[str, type]]] = {"prefix": PREFIXES}

    def check(self) -> None:
        """Check the parameters that all have. Raises ValueError "<parameter>: …"."""
        self.process()
        self.parts()
        self.followers()
        for name in ("num_samples", "beam_width"):
            if getattr(self, name) is not None:
                checks.build(name, getattr(self, name), LENGTH_DISTRIBUTIONS)
        if self.num_samples is not None and self.beam_width is not None:
            raise ValueError("beam_width: stands beside num_samples; accepted: one of the two")

    def parts(self) -> list[Prefix]:
        """What prompts begin with. Raises ValueError "prefix.<number>.<parameter>: …"."""
        return checks.build_list("prefix", self.prefix, PREFIXES)

    def followers(self) -> Turns | None:
        """The rule of what follows a request. Raises ValueError "turns.<parameter>: …"."""
        return None if self.turns is None else checks.build("turns", self.turns, TURNS)

    def trace(self, prompt: IntColumn, output: IntColumn, seed: int, notes: Counter[str]) -> Trace:
        """Requests with these texts of their own and these outputs.

        Raises TraceError if they cannot be: a prompt grows beyond any length, a time is too late.
        """
        return Trace(**self.columns(prompt, output, seed, notes), source=self.kind, notes=+notes)

    def columns(
        self, prompt: IntColumn, output: IntColumn, seed: int, notes: Counter[str]
    ) -> dict[str, Any]:
        """The columns and the content of such a trace, by name."""
        num_requests, turns = len(prompt), self.followers()
        plan = _apart(num_requests) if turns is None else turns.plan(num_requests, seed, notes)
        starts = self.arrival_times_ns(int(plan.session[:num_requests].max()) + 1, seed)
        found: dict[str, Any] = {
            "arrival_ns": starts,
            "prompt_tokens": prompt,
            "output_tokens": output,
        }
        if turns is not None:
            # a follow-up of a user in a loop comes after others have begun
            found["arrival_ns"] = np.maximum.accumulate(starts[plan.session])
            found |= {"parent": plan.parent, "think_ns": plan.think_ns}
            found |= {"session": plan.session} if turns.has_history else {}
        if self.prefix or (turns is not None and turns.has_history):
            content = self._content(plan, prompt, output, seed, notes)
            found |= {"content": content, "prompt_tokens": content.prompt_tokens()}
            found |= {"has_output_identity": True}
        for name in ("num_samples", "beam_width"):
            if getattr(self, name) is not None:
                counts = checks.build(name, getattr(self, name), LENGTH_DISTRIBUTIONS)
                found[name] = counts.draw(name, num_requests, stream(seed, name), notes)
                most = found[name].max()
                if most > MAX_WIDTH:
                    raise TraceError(f"{name}: draws {most}; accepted: at most {MAX_WIDTH}")
        return found

    def _content(
        self, plan: Plan, prompt: IntColumn, output: IntColumn, seed: int, notes: Counter[str]
    ) -> Content:
        turns = self.followers()
        continues = (plan.parent >= 0) & (turns is not None and turns.has_history)
        own = prompt[plan.text]
        if plan.own_tokens is not None:
            own = np.where(plan.parent >= 0, plan.own_tokens, own)
        front = front_cells(self.parts(), continues, seed, notes)[plan.text]
        cells = with_own_text(front, own, plan.text)
        if turns is None or not turns.has_history:
            return separate(cells)
        return grown(cells, plan, output, turns.max_prompt_tokens, notes)


def _apart(num_requests: int) -> Plan:
    """Requests that follow nobody, each with a text of its own."""
    rows = np.arange(num_requests)
    nobody, at_once = (np.broadcast_to(np.int64(value), num_requests) for value in (-1, 0))
    return Plan(rows, nobody, at_once, rows)
