"""Hand-worked traces through the engine: when each token comes, and who is served when."""

import numpy as np
import pytest

from sim.allocators import Admission, Allocator
from sim.allocators.paged import Paged
from sim.allocators.terms import FREE, TOKEN_STATES, KVUsage, check_terms
from sim.allocators.unbounded import Unbounded
from sim.batch import KV_TOKENS, NUM_SEQS, PREFILL_TOKENS
from sim.costs import CostModel
from sim.costs.linear import Constant, Linear
from sim.engine.simulation import Memory, Options, Run, simulate
from sim.schedulers.fcfs import Fcfs
from sim.sequence import (
    FINISH_NS,
    FINISHED,
    FIRST_SCHEDULED_NS,
    FIRST_TOKEN_NS,
    NEVER_NS,
    NUM_COMPUTED,
    NUM_GENERATED,
    NUM_SLOTS,
    NUM_TOKENS,
    PENDING,
    REJECTED,
    STATUS,
    IntArray,
    Limits,
    new_requests,
)

US = 1000  # the iteration of the constant model below, in ns

AMPLE = Memory(num_slots=1000, max_model_len=100)

TIMES = [FIRST_SCHEDULED_NS, FIRST_TOKEN_NS, FINISH_NS]


class Tokens(Allocator):
    """Plain Python: a token takes a slot, and nothing is ever held unwritten."""

    kind = "tokens"

    def can_allocate(self, row: int) -> Admission:
        num_tokens = self.sequences.rows.item(row, NUM_TOKENS)
        if num_tokens > self.num_slots:
            return Admission.NEVER
        return Admission.OK if num_tokens <= self.terms[FREE] else Admission.LATER

    def append(self, rows: IntArray, counts: IntArray) -> int:
        for i, (row, count) in enumerate(zip(rows.tolist(), counts.tolist(), strict=True)):
            if count > self.terms[FREE]:
                return i
            self._move(row, count)
        return len(rows)

    def free(self, rows: IntArray) -> None:
        for row in rows.tolist():
            self._move(row, -self.sequences.rows.item(row, NUM_COMPUTED))

    def can_append(self, rows: IntArray, num_iterations: int) -> int:
        return min(num_iterations, self.terms.item(FREE) // len(rows))

    def check(self, rows: IntArray) -> None:
        held = int(self.sequences.rows[rows, NUM_SLOTS].sum())
        check_terms(self.terms, KVUsage(held, 0, 0, 0, 0, self.num_slots - held), self.kind)

    def refusal(self, row: int) -> str:
        return f"needs {self.sequences.rows.item(row, NUM_TOKENS)} slots"

    def _move(self, row: int, count: int) -> None:
        self.sequences.rows[row, [NUM_COMPUTED, NUM_SLOTS]] += count
        self.terms[TOKEN_STATES] += count
        self.terms[FREE] -= count


class AlwaysLater(Tokens):
    """Admits nobody, and never says so."""

    kind = "always_later"

    def can_allocate(self, row: int) -> Admission:
        return Admission.LATER


class PlainLinear(CostModel):
    """Plain Python: Linear's formula."""

    kind = "plain_linear"

    def iteration_s(self, batch: IntArray) -> float:
        kv_tokens, prefill = batch.item(KV_TOKENS), batch.item(PREFILL_TOKENS)
        return 1e-6 + 3e-8 * batch.item(NUM_SEQS) + 2e-9 * kv_tokens + 5e-9 * prefill


class Counts(PlainLinear):
    """Counts how often it is asked."""

    calls = 0

    def iteration_s(self, batch: IntArray) -> float:
        self.calls += 1
        return super().iteration_s(batch)


def run_of(
    arrivals: list[tuple[int, int, int]],
    allocator: Allocator | None = None,
    scheduler: Fcfs | None = None,
    cost: CostModel | None = None,
    memory: Memory = AMPLE,
    single_step: bool = False,
) -> Run:
    """Requests of (arrival ns, prompt, output)."""
    columns = np.array(arrivals, np.int64).T
    requests = new_requests(*columns, Limits(memory.max_model_len, columns[2]))
    return simulate(
        requests,
        memory,
        allocator or Unbounded(),
        scheduler or Fcfs(),
        cost or Constant(US * 1e-9),
        Options(single_step=single_step),
    )


def times_of(run: Run) -> list[list[int]]:
    """First scheduled, first token and finish of every request."""
    return run.requests[:, TIMES].tolist()


def random_arrivals(seed: int, count: int) -> list[tuple[int, int, int]]:
    rng = np.random.default_rng(seed)
    arrival = np.sort(rng.integers(0, 40 * US, count))
    lengths = rng.integers(1, 30, (2, count))
    return list(zip(arrival.tolist(), lengths[0].tolist(), lengths[1].tolist(), strict=True))


def test_the_prefill_gives_the_first_token_and_each_iteration_one_more() -> None:
    run = run_of([(0, 4, 3)])
    assert times_of(run) == [[0, 1 * US, 3 * US]]
    assert run.requests[0, [NUM_GENERATED, STATUS]].tolist() == [3, FINISHED]
    assert run.recorder.num_iterations == 3
    assert (run.status, run.reason, run.start_ns, run.end_ns) == ("finished", "", 0, 3 * US)


def test_times_follow_what_the_batch_contains() -> None:
    """base 10 + 1 a sequence + 1 a KV token + 1 a prompt token, in ns.

    19 for the prompt of 4; then B's prompt of 2 beside A's fifth token takes 10 + 2 + 7 + 2 = 21;
    then 10 + 2 + 6 + 3 = 21, in which both finish.
    """
    run = run_of([(0, 4, 3), (1, 2, 2)], cost=Linear(1e-8, 1e-9, 1e-9, 1e-9))
    assert times_of(run) == [[0, 19, 61], [19, 40, 61]]


def test_an_arrival_at_a_boundary_is_served_at_it_and_one_after_it_at_the_next() -> None:
    run = run_of([(0, 2, 6), (2 * US, 1, 2), (2 * US + 1, 1, 1), (4 * US - 1, 1, 1)])
    assert times_of(run)[1:] == [
        [2 * US, 3 * US, 4 * US],
        [3 * US, 4 * US, 4 * US],
        [4 * US, 5 * US, 5 * US],
    ]
    assert times_of(run)[0] == [0, US, 6 * US], "others do not change A's times"


def test_an_arrival_when_the_last_request_finishes_starts_at_once() -> None:
    run = run_of([(0, 2, 3), (3 * US, 2, 1)])
    assert times_of(run)[1] == [3 * US, 4 * US, 4 * US]


def test_a_finish_gives_its_place_to_an_arrival_of_the_same_instant() -> None:
    """A frees the only place at 3 us, the moment at which B arrives."""
    run = run_of([(0, 2, 3), (3 * US, 2, 1)], scheduler=Fcfs(max_num_seqs=1))
    assert times_of(run)[1][0] == 3 * US
    assert run.recorder.num_queued_iterations == 0


def test_simultaneous_arrivals_are_served_in_order_of_their_ids() -> None:
    run = run_of([(500, 2, 2)] * 4, scheduler=Fcfs(max_num_seqs=1))
    assert run.requests[:, FIRST_SCHEDULED_NS].tolist() == [500 + 2 * US * i for i in range(4)]


def test_time_passes_in_idle_gaps_without_iterations() -> None:
    run = run_of([(500, 2, 3), (10_500, 2, 1)], allocator=Paged(4))
    assert times_of(run) == [[500, 1500, 3500], [10_500, 11_500, 11_500]]
    assert run.recorder.num_iterations == 4
    table = run.recorder.timeline()
    assert table["num_running"] == [4 * US]
    assert table["free"] == [996 * 4 * US + 1000 * 7 * US]
    assert (run.start_ns, run.end_ns) == (500, 11_500)


def test_a_prompt_of_max_model_len_is_rejected_and_the_next_one_proceeds() -> None:
    run = run_of([(5, 10, 3), (5, 9, 3)], memory=Memory(1000, 10))
    rejected, served = run.requests
    assert rejected[[STATUS, FINISH_NS, FIRST_SCHEDULED_NS]].tolist() == [REJECTED, 5, NEVER_NS]
    assert run.scheduler.reasons == {0: "has a prompt of 10 tokens, max_model_len is 10"}
    assert served[[STATUS, NUM_GENERATED]].tolist() == [FINISHED, 1]
    assert run.status == "finished"


def test_an_output_is_cut_at_max_model_len() -> None:
    run = run_of([(0, 8, 10), (0, 3, 4)], memory=Memory(1000, 10))
    assert run.requests[:, NUM_GENERATED].tolist() == [2, 4]
    assert run.requests[:, FINISH_NS].tolist() == [2 * US, 4 * US]


def test_a_prompt_in_chunks_gives_its_first_token_with_the_last_chunk() -> None:
    chunks = Fcfs(max_num_batched_tokens=4, enable_chunked_prefill=True)
    run = run_of([(0, 10, 2)], scheduler=chunks)
    assert times_of(run) == [[0, 3 * US, 4 * US]]


def test_decodes_are_served_before_prompts_share_the_rest_of_the_budget() -> None:
    """A decodes one token of the budget of 4, so B's prompt of 6 takes two iterations of 3."""
    chunks = Fcfs(max_num_batched_tokens=4, enable_chunked_prefill=True)
    run = run_of([(0, 4, 5), (1, 6, 1)], scheduler=chunks)
    assert times_of(run) == [[0, US, 5 * US], [US, 3 * US, 3 * US]]


def test_without_chunks_a_prompt_longer_than_the_budget_is_rejected() -> None:
    run = run_of([(0, 5, 2), (0, 4, 2)], scheduler=Fcfs(max_num_batched_tokens=4))
    assert run.requests[:, STATUS].tolist() == [REJECTED, FINISHED]
    assert run.scheduler.reasons[0].startswith("needs 5 tokens in one iteration")


@pytest.mark.parametrize("single_step", [False, True])
def test_a_run_in_which_nothing_can_change_ends_as_stalled(single_step: bool) -> None:
    run = run_of([(0, 2, 2), (4 * US, 2, 2)], AlwaysLater(), single_step=single_step)
    assert run.status == "stalled"
    assert run.reason.startswith("2 requests wait, nothing runs")
    assert run.requests[:, STATUS].tolist() == [PENDING, PENDING]
    assert run.requests[:, TIMES].tolist() == [[NEVER_NS] * 3] * 2
    assert run.end_ns == 4 * US
    assert run.recorder.timeline()["num_waiting"] == [4 * US], "the first one waited for 4 us"


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("single_step", [False, True])
def test_an_allocator_in_plain_python_runs_like_the_compiled_one(
    seed: int, single_step: bool
) -> None:
    """Tokens is paged memory with blocks of one slot."""
    arrivals, memory = random_arrivals(seed, 25), Memory(90, 60)
    plain = run_of(arrivals, Tokens(), memory=memory, single_step=single_step)
    paged = run_of(arrivals, Paged(1), memory=memory)
    assert plain.scheduler.num_preemptions > 0
    assert plain.requests.tolist() == paged.requests.tolist()
    assert plain.recorder.timeline() == paged.recorder.timeline()
    assert plain.recorder.queued_integrals() == paged.recorder.queued_integrals()


@pytest.mark.parametrize("seed", range(3))
def test_a_cost_model_in_plain_python_runs_like_the_compiled_one(seed: int) -> None:
    arrivals = random_arrivals(seed, 25)
    compiled = run_of(arrivals, Paged(4), cost=Linear(1e-6, 3e-8, 2e-9, 5e-9))
    plain = run_of(arrivals, Paged(4), cost=PlainLinear())
    assert plain.requests.tolist() == compiled.requests.tolist()
    assert plain.recorder.timeline() == compiled.recorder.timeline()


def test_a_cost_model_is_called_once_an_iteration_in_single_steps() -> None:
    cost = Counts()
    run = run_of(random_arrivals(1, 10), cost=cost, single_step=True)
    assert cost.calls == run.recorder.num_iterations


def test_a_trace_without_requests_ends_where_it_starts() -> None:
    empty = np.zeros(0, np.int64)
    requests = new_requests(empty, empty, empty, Limits(10, empty))
    run = simulate(requests, Memory(10, 10), Paged(2), Fcfs(), Constant())
    assert (run.status, run.recorder.num_iterations) == ("finished", 0)
    assert run.end_ns == run.start_ns
