"""The suites find plug-ins that break a rule, and say which; tests/contracts has the allocators."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from sim.allocators import Allocator
from sim.allocators.base import Admission
from sim.allocators.paged import Paged
from sim.allocators.unbounded import Unbounded
from sim.costs.linear import Linear
from sim.routers.base import Router, Server
from sim.routers.round_robin import RoundRobin
from sim.schedulers.base import MEMORY, NOTHING
from sim.schedulers.fcfs import Fcfs
from sim.sequence import IntArray
from sim.testing import (
    ContractError,
    check_allocator,
    check_cost,
    check_router,
    check_scheduler,
    check_workload,
)
from workloads.azure import Azure
from workloads.inline import Inline
from workloads.trace import Trace

calls = itertools.count()


class Nameless(Paged):
    kind = ""


class NeedsMore(Paged):
    kind = "needs_more"
    needs = {"prefix identity"}  # type: ignore[assignment]  # noqa: RUF012


class Slips(Paged):
    """Raises where somebody else's code may raise anything."""

    kind = "slips"

    def free(self, rows: IntArray) -> None:
        raise IndexError("list index out of range")


@pytest.mark.parametrize(
    ("factory", "sentence"),
    [
        (Nameless, r"^: has no kind; accepted: a class attribute"),
        (NeedsMore, r"^needs_more: needs is no frozenset, but \{'prefix identity'\}"),
        (dict, r"^dict: is no Allocator; accepted: a subclass of it"),
        (Allocator, r"^Allocator\(\) makes no Allocator: Can't instantiate abstract class"),
        (lambda paged=Paged(): paged, r"^paged: the factory gives the same object twice"),  # noqa: B008
    ],
)
def test_what_is_no_plug_in_is_said_before_any_history(
    factory: Callable[[], Any], sentence: str
) -> None:
    with pytest.raises(ContractError, match=sentence):
        check_allocator(factory)


def test_an_exception_of_a_plug_in_tells_after_which_steps() -> None:
    with pytest.raises(IndexError) as caught:
        check_allocator(Slips)
    assert caught.value.__notes__[0].startswith("seed 0: ")
    assert "the last of: " in caught.value.__notes__[1]
    assert caught.value.__notes__[1].endswith("])")


class ForgetsSuper(Paged):
    kind = "forgets_super"

    def bind(self, num_slots: int, sequences: Any, max_model_len: int) -> None:
        self.num_slots = num_slots


class ServesNothing(Paged):
    kind = "serves_nothing"

    def append(self, rows: IntArray, counts: IntArray) -> int:
        return None if super().append(rows, counts) else 0  # type: ignore[return-value]


class SaysYes(Paged):
    kind = "says_yes"

    def can_admit(self, row: int, count: int) -> Admission:
        return super().can_admit(row, count) is Admission.OK  # type: ignore[return-value]


class PromisesTrue(Paged):
    kind = "promises_true"

    def can_append(self, rows: IntArray, num_iterations: int) -> int:
        return bool(super().can_append(rows, num_iterations))


class GivesNoReason(Paged):
    kind = "gives_no_reason"

    def refusal(self, row: int) -> str:
        return None  # type: ignore[return-value]


class HidesSlots(Paged):
    kind = "hides_slots"

    def held_ranges(self, row: int) -> IntArray:
        return super().held_ranges(row)[1:]


class Remembers(Unbounded):
    """Keeps what it knew when it is given another pool."""

    kind = "remembers"

    def bind(self, num_slots: int, sequences: Any, max_model_len: int) -> None:
        known = getattr(self, "recorded", None)
        super().bind(num_slots, sequences, max_model_len)
        if known is not None:
            self.recorded[:] = known


@pytest.mark.parametrize(
    ("factory", "sentence"),
    [
        (ForgetsSuper, r"^forgets_super: bind leaves no terms; it begins with super\(\).bind"),
        (ServesNothing, "^serves_nothing: append answers None; accepted: a whole number"),
        (SaysYes, r"^says_yes: can_admit answers (True|False); accepted: Admission.OK, .LATER"),
        (PromisesTrue, "^promises_true: can_append answers (True|False); accepted: a whole number"),
        (lambda: GivesNoReason(7), "^gives_no_reason: refusal gives no reason, but None"),
        (HidesSlots, r"^hides_slots: held_ranges of row \d+ are not its \d+ slots"),
        (Remembers, "^remembers: "),
    ],
)
def test_an_allocator_that_answers_what_is_no_answer_is_told_which(
    factory: Callable[[], Any], sentence: str
) -> None:
    with pytest.raises(AssertionError, match=sentence):
        check_allocator(factory)


class AdmitsNobody(Fcfs):
    def _admit(self, budget: int, now_ns: int) -> None:
        self.blocked = MEMORY


class SaysNoReason(Fcfs):
    def schedule(self, now_ns: int) -> bool:
        goes_on = super().schedule(now_ns)
        self.blocked = NOTHING
        return goes_on


class RunsTwice(Fcfs):
    def schedule(self, now_ns: int) -> bool:
        goes_on = super().schedule(now_ns)
        self.run_row(self.running.item(0))
        return goes_on


class Idles(Fcfs):
    """Iterates although nobody runs."""

    def schedule(self, now_ns: int) -> bool:
        return True


class SleepsLong(Fcfs):
    def max_sleep(self) -> int:
        return super().max_sleep() + 1


class SleepsOn(Fcfs):
    def max_sleep(self) -> int:
        return 50


class Forgets(Fcfs):
    """Loses every tenth request."""

    def add(self, request: int) -> None:
        if request % 10:
            super().add(request)


class KeepsMemory(Fcfs):
    def _leave(self, rows: IntArray) -> None:
        self.num_finished += len(rows)


class IgnoresItsLimit(Fcfs):
    def _admit(self, budget: int, now_ns: int) -> None:
        limit, self.max_num_seqs = self.max_num_seqs, 100
        super()._admit(budget, now_ns)
        self.max_num_seqs = limit


@pytest.mark.parametrize(
    ("factory", "sentence"),
    [
        (AdmitsNobody, r"^fcfs: the run stalls: \d+ requests wait, nothing runs"),
        (SaysNoReason, r"^fcfs: requests wait, and blocked says no reason"),
        (RunsTwice, r"^fcfs: a row runs twice"),
        (Idles, r"^fcfs: schedule\(\) made an iteration of no sequences"),
        (SleepsLong, r"^fcfs: max_sleep: requests \[.*\] differ between a run that sleeps"),
        (
            SleepsOn,
            r"^fcfs: max_sleep: a run that sleeps raises ValueError: .*, single",
        ),
        (Forgets, r"^fcfs: a request never ends"),
        (KeepsMemory, r"^fcfs: a row that does not run holds memory"),
        (lambda: IgnoresItsLimit(2), r"^fcfs: 3 sequences run, max_num_seqs is 2"),
    ],
)
def test_a_scheduler_that_breaks_a_rule_is_found(
    factory: Callable[[], Fcfs], sentence: str
) -> None:
    with pytest.raises(ContractError, match=sentence) as caught:
        check_scheduler(factory)
    assert caught.value.__notes__[0].startswith("with memory of kind ")


class Broken(Linear):
    source = "assumed"


class SaysNothing(Linear):
    source = "not stated"


class NotANumber(Broken):
    def iteration_s(self, batch: IntArray) -> float:
        return math.nan


class FallsWithLength(Broken):
    def iteration_s(self, batch: IntArray) -> float:
        return 1 / (1 + super().iteration_s(batch))


class FallsWithBatch(Broken):
    def iteration_s(self, batch: IntArray) -> float:
        return 1e-9 * batch.item(1) + 1 / batch.item(0)


class WritesIntoTheBatch(Broken):
    def iteration_s(self, batch: IntArray) -> float:
        batch[0] += 1
        return 1.0


class PlansOnAndOn(Broken):
    def plan(
        self, batch: IntArray, boundaries: IntArray, num_iterations: int, until_ns: int
    ) -> int:
        return super().plan(batch, boundaries, num_iterations, 2**62)


class PlansOtherTimes(Broken):
    def plan(
        self, batch: IntArray, boundaries: IntArray, num_iterations: int, until_ns: int
    ) -> int:
        planned = super().plan(batch, boundaries, num_iterations, until_ns)
        boundaries[planned] += 1
        return planned


@pytest.mark.parametrize(
    ("factory", "sentence"),
    [
        (SaysNothing, "^linear: source does not say where the times come from"),
        (NotANumber, "^linear: iteration_s gives nan; accepted: a number of seconds, at least 0"),
        (FallsWithLength, "^linear: iteration_s falls from .* tokens more"),
        (FallsWithBatch, "^linear: iteration_s falls from .* become"),
        (WritesIntoTheBatch, "^linear: iteration_s changes the batch"),
        (PlansOnAndOn, "^linear: plan goes on behind until_ns: "),
        (PlansOtherTimes, "^linear: plan gives other times than iteration_s"),
    ],
)
def test_a_cost_model_that_breaks_a_rule_is_found(
    factory: Callable[[], Linear], sentence: str
) -> None:
    with pytest.raises(ContractError, match=sentence):
        check_cost(factory)


class TooFar(RoundRobin):
    def route(self, request: int, replicas: Sequence[Server]) -> int:
        return len(replicas)


class FromTheEnd(RoundRobin):
    def route(self, request: int, replicas: Sequence[Server]) -> int:
        return -1


class Looks(Router):
    kind = "looks"

    def route(self, request: int, replicas: Sequence[Server]) -> int:
        hits = [replica.lookup(request) for replica in replicas]
        return hits.index(max(hits))


class Wanders(RoundRobin):
    """Goes by something outside of the run."""

    def route(self, request: int, replicas: Sequence[Server]) -> int:
        return next(calls) // 7 % len(replicas)


@pytest.mark.parametrize(
    ("factory", "sentence"),
    [
        (TooFar, "^round_robin: route gives 1; accepted: 0 to 0"),
        (FromTheEnd, "^round_robin: route gives -1; accepted: 0 to 0"),
        (Looks, "^looks: calls lookup; reads_prefixes must be True"),
        (Wanders, "^round_robin: sends requests elsewhere when replicas sleep"),
    ],
)
def test_a_router_that_breaks_a_rule_is_found(factory: Callable[[], Router], sentence: str) -> None:
    with pytest.raises(ContractError, match=sentence):
        check_router(factory)


REQUESTS = [{"prompt_tokens": 20, "output_tokens": 5}]


class Changes(Inline):
    def load(self, seed: int) -> Trace:
        one = np.array([next(calls) + 1], np.int64)
        return Trace(one, one, one)


class HidesItsSeed(Inline):
    def load(self, seed: int) -> Trace:
        one = np.array([seed + 1], np.int64)
        return Trace(one, one, one)


class GivesAList(Inline):
    def load(self, seed: int) -> Any:
        return []


class TakesAll(Azure):
    kind = "takes_all"

    @classmethod
    def recognizes(cls, path: str, start: bytes) -> bool:
        return True


@pytest.mark.parametrize(
    ("factory", "sentence"),
    [
        (lambda: Changes(REQUESTS), r"^inline: load\(0\) gives another trace the second time"),
        (lambda: HidesItsSeed(REQUESTS), "^inline: the trace depends on the seed; uses_seed must"),
        (lambda: GivesAList(REQUESTS), r"^inline: load gives no Trace, but \[\]"),
    ],
)
def test_a_workload_that_breaks_a_rule_is_found(
    factory: Callable[[], Inline], sentence: str
) -> None:
    with pytest.raises(ContractError, match=sentence):
        check_workload(factory)


def test_a_format_that_takes_every_file_is_found(tmp_path: Any) -> None:
    path = tmp_path / "t.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:01:51.16,12,3\n")
    with pytest.raises(ContractError, match=r"^takes_all: recognizes says yes to a file"):
        check_workload(lambda: TakesAll(str(path)))


def test_the_broken_ones_would_pass_were_they_whole() -> None:
    """Guards the tests above: it is their fault that is found."""
    check_scheduler(lambda: Fcfs(2), seeds=range(1))
    check_cost(Broken)
    check_router(RoundRobin, seeds=range(2))
