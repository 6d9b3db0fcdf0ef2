"""The capacity policies of TensorRT-LLM: reserve to completion, or admit what fits and pause.

From the source (Apache-2.0; cpp/tensorrt_llm/batch_manager: capacityScheduler.cpp,
kvCacheManager.cpp, scheduledBlocksManager.h, microBatchScheduler.cpp, pauseRequests.cpp): requests
are looked at in order of arrival, and the first that does not fit ends the round. With
guaranteed_no_evict a request starts only if the blocks of its prompt and max_tokens, beside what
the running ones may still take, are free; blocks that it would share with running requests are not
counted, and a request that has started is never paused. With max_utilization it starts if its
prompt fits now; where a running one finds no block, the last that has started is paused: it loses
its blocks, its tokens become its prompt, it keeps its place in the order, and nobody starts in that
iteration. An iteration computes at most max_num_batched_tokens tokens (max_num_tokens there) of at
most max_num_seqs requests (max_batch_size).
Of reuse (docs/source/features/kvcache.md, evictionPolicy.cpp) the allocator `prefix` has what
traces can ask for: blocks are found by content, and without priorities of their own all have the
default of 35, so that the priority queues are one LRU queue, in which a request's last block comes
first.
Assumed, or different on purpose: a block is found from the iteration on in which it is computed, so
that a twin in the same iteration hits it, where the engine holds the twin back for one iteration;
of a block that matches in part nothing is reused (enable_partial_reuse is on there, and copies);
one block of the pool is never given away, because `prefix` keeps vLLM's null block;
retention priorities, the pool on the host and the static policy are left out; a chunk of a prompt
may end anywhere, where the engine ends it with a block; a request that could never fit is rejected.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from sim.allocators.base import Admission, Allocator, BoolArray
from sim.schedulers.fcfs import Fcfs
from sim.sequence import MAX_FINAL_TOKENS, IntArray, SequenceTable

Policy = Literal["guaranteed_no_evict", "max_utilization"]


class TrtLlm(Fcfs):
    """Serve requests in order of arrival, with or without a promise that they can finish.

    capacity_scheduler_policy guaranteed_no_evict admits what can be reserved to completion,
    max_utilization what fits now, and pauses who came last. max_num_batched_tokens limits the
    tokens of one iteration (null: no limit); without chunked prefill a longer prompt is rejected.
    """

    kind: ClassVar[str] = "trtllm"

    def __init__(
        self,
        capacity_scheduler_policy: Policy = "guaranteed_no_evict",
        max_num_seqs: int = 2048,
        max_num_batched_tokens: int | None = 8192,
        enable_chunked_prefill: bool = False,
    ) -> None:
        super().__init__(max_num_seqs, max_num_batched_tokens, enable_chunked_prefill)
        if capacity_scheduler_policy not in {"guaranteed_no_evict", "max_utilization"}:
            raise ValueError(
                f"capacity_scheduler_policy: unknown value {capacity_scheduler_policy!r}; "
                "accepted: guaranteed_no_evict, max_utilization"
            )
        self.capacity_scheduler_policy = capacity_scheduler_policy
        self.admits_by_max_tokens = capacity_scheduler_policy == "guaranteed_no_evict"

    def bind(self, requests: IntArray, sequences: SequenceTable, allocator: Allocator) -> None:
        super().bind(requests, sequences, allocator)
        self._outgrows = np.zeros(len(requests), np.bool_)  # of those that nothing else rules out
        if self.admits_by_max_tokens:
            self._outgrows = allocator.never_finishes(requests) & ~super().never_fits(requests)

    def never_fits(self, requests: IntArray) -> BoolArray:
        return super().never_fits(requests) | self._outgrows

    def refusal(self, request: int) -> str:
        if not self._outgrows[request]:
            return super().refusal(request)
        longest = self.requests.item(request, MAX_FINAL_TOKENS)
        return (
            f"may become {longest} tokens long, for which the pool of "
            f"{self.allocator.num_slots} slots is too small"
        )

    def _take(self, row: int, num_tokens: int) -> Admission:
        if self.admits_by_max_tokens:
            running = self.running[: self.num_running]
            if not self.allocator.can_finish(row, running):
                return Admission.LATER
        return self.allocator.admit(row, num_tokens)
