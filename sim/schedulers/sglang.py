"""The scheduler of SGLang: prompts first, admitted by how much decoding they are expected to need.

Models SGLang's Scheduler with its PrefillAdder and SchedulePolicy (0.5.x, one replica, no
speculative decoding) over its radix cache. A pass computes prompts if any can be admitted, in
chunks, one of them unfinished at most; else every running request decodes. A prompt is admitted if
memory has room for it, for all it may generate, and for new_token_ratio of what the running ones
may; the ratio falls with every decode step. When memory is short all the same, requests are
retracted, those with the fewest outputs first: they lose their memory and wait again, last in the
queue, and the ratio rises to what has been seen.
The rules were read in the public source, not compared with recorded runs of the engine.

Differs on purpose: a step ends before the next one is planned (the engine's
disable_overlap_schedule). A request that could never run is rejected or fails, where the engine
tries for ever; one whose output outgrows the pool fails, where the engine cuts its max_tokens
beforehand. If decodes that run along with prompts (enable_mixed_chunk) lack memory, they are
retracted, too; the engine ends with an error.
Needs an allocator with a radix tree: what can be evicted is half of what it counts.
"""

from __future__ import annotations

from typing import ClassVar

from sim.allocators.base import Allocator
from sim.batch import FIRST_FINISH, NUM_PENDING, describe
from sim.schedulers.base import NOTHING, check_least
from sim.schedulers.sglang_budget import Limits, NewTokenRatio
from sim.schedulers.sglang_orders import POLICIES, InBatch, PolicyName, WaitingOrder
from sim.schedulers.sglang_prefill import PrefillPass
from sim.schedulers.sglang_running import NO_ROW
from sim.schedulers.tree_steps import lacks_tree
from sim.sequence import IntArray, SequenceTable


class Sglang(PrefillPass):
    """Compute prompts if any can be admitted, else let every running request decode.

    max_num_seqs is SGLang's max_running_requests (None: from 2,048 to 4,096 by pool and
    max_model_len, at most half of the pool's tokens). A pass computes at most
    chunked_prefill_size tokens (None: no chunks), and looks at no further prompt after
    max_prefill_tokens; with enable_mixed_chunk running requests decode along. schedule_policy
    orders those that wait: as they came, longest known prefix first, depth first in the tree,
    most max_tokens first, at random by random_seed. With lpm, who has hit in_batch_check tokens or
    fewer and repeats in_batch_deprioritize of one before it comes last. new_token_ratio begins
    at init_new_token_ratio x schedule_conservativeness, at most 1, and falls to
    min_new_token_ratio_factor of that in new_token_ratio_decay_steps decode steps; of max_tokens
    at most clip_max_new_tokens are counted. A retraction makes room for retract_decode_steps.
    """

    kind: ClassVar[str] = "sglang"
    admits_by_max_tokens = True

    def __init__(  # noqa: PLR0913, PLR0917 - the engine's settings
        self,
        max_num_seqs: int | None = None,
        chunked_prefill_size: int | None = 8192,
        max_prefill_tokens: int = 16384,
        schedule_policy: PolicyName = "fcfs",
        schedule_conservativeness: float = 1.0,
        enable_mixed_chunk: bool = False,
        init_new_token_ratio: float = 0.7,
        min_new_token_ratio_factor: float = 0.14,
        new_token_ratio_decay_steps: int = 600,
        retract_decode_steps: int = 20,
        clip_max_new_tokens: int = 4096,
        in_batch_check: int = 32,
        in_batch_deprioritize: int = 32,
        random_seed: int = 0,
    ) -> None:
        check_least(
            ("max_num_seqs", max_num_seqs, 1),
            ("chunked_prefill_size", chunked_prefill_size, 1),
            ("max_prefill_tokens", max_prefill_tokens, 1),
            ("new_token_ratio_decay_steps", new_token_ratio_decay_steps, 1),
            ("retract_decode_steps", retract_decode_steps, 0),
            ("clip_max_new_tokens", clip_max_new_tokens, 1),
            ("in_batch_check", in_batch_check, -1),
            ("in_batch_deprioritize", in_batch_deprioritize, 1),
            ("random_seed", random_seed, 0),
        )
        for name, share in (
            ("init_new_token_ratio", init_new_token_ratio),
            ("min_new_token_ratio_factor", min_new_token_ratio_factor),
        ):
            if not 0 <= share <= 1:
                raise ValueError(f"{name}: must be from 0 to 1, got {share}")
        if not 0 <= schedule_conservativeness < float("inf"):
            raise ValueError(
                f"schedule_conservativeness: must be at least 0, got {schedule_conservativeness}"
            )
        if schedule_policy not in POLICIES:
            raise ValueError(
                f"schedule_policy: unknown value {schedule_policy!r}; "
                f"accepted: {', '.join(POLICIES)}"
            )
        if enable_mixed_chunk and chunked_prefill_size is None:
            raise ValueError("enable_mixed_chunk: needs chunks, set chunked_prefill_size")
        self.max_num_seqs = max_num_seqs
        self.chunked_prefill_size = chunked_prefill_size
        self.max_prefill_tokens = max_prefill_tokens
        self.schedule_policy = schedule_policy
        self.schedule_conservativeness = schedule_conservativeness
        self.enable_mixed_chunk = enable_mixed_chunk
        self.init_new_token_ratio = init_new_token_ratio
        self.min_new_token_ratio_factor = min_new_token_ratio_factor
        self.new_token_ratio_decay_steps = new_token_ratio_decay_steps
        self.retract_decode_steps = retract_decode_steps
        self.clip_max_new_tokens = clip_max_new_tokens
        self.in_batch_check = in_batch_check
        self.in_batch_deprioritize = in_batch_deprioritize
        self.random_seed = random_seed
        self.enable_chunked_prefill = True  # what a queue asks; prompts are never too long here
        self.max_num_batched_tokens = max_prefill_tokens

    def objection(self, allocator: Allocator) -> str:
        objection = lacks_tree(self.kind, allocator)
        if objection:
            return objection
        size, chunk = getattr(allocator, "block_size", 1), self.chunked_prefill_size
        if chunk is not None and chunk % size:
            return (
                f"chunked_prefill_size: must be a multiple of the allocator's block_size {size}, "
                f"got {chunk}"
            )
        return ""

    def bind(self, requests: IntArray, sequences: SequenceTable, allocator: Allocator) -> None:
        super().bind(requests, sequences, allocator)
        capacity = self.capacity
        estimate = int(capacity / allocator.max_model_len * 512)
        default = min(max(2048, min(4096, estimate)), max(1, capacity // 2))
        self._num_places = self.max_num_seqs or default
        first = min(self.init_new_token_ratio * self.schedule_conservativeness, 1.0)
        least = first * self.min_new_token_ratio_factor
        self.ratio = NewTokenRatio(first, least, self.new_token_ratio_decay_steps)
        self._limits = Limits(self.max_prefill_tokens, self.chunked_prefill_size)
        in_batch = InBatch(self.in_batch_check, self.in_batch_deprioritize)
        self._order = WaitingOrder(self.schedule_policy, in_batch, self.random_seed)
        self._order.bind(self._memory, sequences, self._max_new, self._open)
        self._settled = 0  # iterations whose step of the ratio is made

    def counters(self) -> dict[str, int]:
        return {
            "num_queried_tokens": self.num_queried_tokens,
            "num_hit_tokens": self.num_hit_tokens,
        }

    @property
    def head_row(self) -> int | None:
        """None: nobody is looked at again before somebody has left."""
        return None

    def schedule(self, now_ns: int) -> bool:
        self.admitted.clear()
        self.preempted.clear()
        self._settled = 1
        while not (self._prefill(now_ns) or self._decode(now_ns)):
            if self.num_waiting == 0:
                self.ratio.reset()
                self.blocked = NOTHING
                return False
        self.blocked = self._reason if self.num_waiting else NOTHING
        return True

    # decodes

    def _decode(self, now_ns: int) -> bool:
        """One token for every running request, if any is left; who has ended is forgotten."""
        size = self.batch_size
        self._forget_ghosts()
        n = self.num_running
        if n and self._memory.make_room(self.running[:n]):
            self.ratio.step()
        elif n:
            self.ratio.current = self._retract(now_ns)
        if self.num_running < size or self.num_running == 0:
            self._is_full = False
        if self.num_running == 0:
            return False
        rows = self.running[: self.num_running]
        ones = self._ones[: len(rows)]
        served = self.allocator.append(rows, ones)
        assert served == len(rows), "decodes without memory"
        if self.num_running < n or self.batch.item(NUM_PENDING):
            describe(self.batch, self.sequences.rows, rows, ones)
        return True

    # the end of iterations

    def complete(self, boundaries: IntArray, num_iterations: int) -> None:
        self.ratio.step(num_iterations - self._settled)
        self._settled = 0
        num_finished = self._sample(boundaries, num_iterations)
        ended = self._finished[:num_finished]
        if self._rows_computed:
            self._end_prompts(self._rows_computed, ended.tolist())
            self._rows_computed = []
        elif num_finished:
            self._leave_ghosts(ended)
            self._leave(ended)

    @property
    def is_steady(self) -> bool:
        is_pure = self.batch.item(NUM_PENDING) == 0 and self._chunked == NO_ROW
        return self.num_running > 0 and self.num_waiting == 0 and is_pure and not self._num_ghosts

    def max_sleep(self) -> int:
        if self._rows_computed or (self.num_waiting and not self._is_full):
            return 0
        return self.batch.item(FIRST_FINISH) - 1
