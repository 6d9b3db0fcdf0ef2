"""Small simulations at random, and all that one leaves behind.

Run as a program, this file prints a digest of a fixed batch of them.
"""

import hashlib
import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from sim.allocators import ALLOCATORS, Allocator
from sim.allocators.declared import declared_prefixes
from sim.allocators.tree_policies import EVICTION_POLICIES
from sim.batch import KV_TOKENS, NUM_SEQS
from sim.branching import WorkloadBranches
from sim.costs import CostModel
from sim.costs.linear import Constant, Linear
from sim.engine.arrivals import FollowUps
from sim.engine.simulation import Memory, Options, Run, simulate
from sim.schedulers import SCHEDULERS, Scheduler
from sim.schedulers.sglang_orders import POLICIES
from sim.sequence import PRIORITY, IntArray, Limits, new_requests
from sim.testing import visible_state
from workloads import content as text
from workloads.content import ContentBuilder, own_output, own_prompt
from workloads.sequences import SequenceContent

Choose = Callable[[int, int], int]

TICK_NS = 500  # arrivals are multiples of it; an iteration of constant time takes two
FIXED_EXAMPLES = range(106, 131)  # seeds: every allocator and every scheduler is among them
NEED_A_TREE = {"mini_sglang", "sglang"}


class Plain(CostModel):
    """A cost model without compiled code and without its own plan."""

    kind = "plain"

    def iteration_s(self, batch: IntArray) -> float:
        return (700 + 90 * batch.item(NUM_SEQS) + 3 * batch.item(KV_TOKENS)) * 1e-9


class Beginning(NamedTuple):
    """What a prompt begins with: a whole earlier conversation or a text that others have too."""

    parent: int  # -1 for a text
    source: int
    length: int
    priority: int


class Example(NamedTuple):
    """One simulation, as plain data."""

    arrivals: list[tuple[int, int, int, int]]  # (ns, prompt, output, max_tokens)
    num_slots: int
    max_model_len: int
    allocator: tuple[str, dict[str, Any]]
    scheduler: tuple[str, dict[str, Any]]
    cost: int
    follow_ups: Sequence[tuple[int, int]] = ()  # (parent or -1, thinking ns); empty without any
    beginnings: Sequence[Beginning] = ()  # of each prompt; empty if none shares anything
    widths: Sequence[tuple[int, int]] = ()  # samples and beams of each request; empty without


def choose_allocator(choose: Choose, num_slots: int) -> tuple[str, dict[str, Any]]:
    """A registered allocator with parameters that fit the pool."""
    kinds = sorted(ALLOCATORS)
    kind = kinds[choose(0, len(kinds) - 1)]
    if kind == "paged":
        sizes = [size for size in (1, 3, 4, 16) if size <= num_slots]
        return kind, {
            "block_size": sizes[choose(0, len(sizes) - 1)],
            "watermark": (0.0, 0.1, 0.35)[choose(0, 2)],
            "reserve_max_tokens": choose(0, 3) == 3,
        }
    if kind == "paged_cow":
        sizes = [size for size in (1, 3, 4, 16) if size <= num_slots]
        return kind, {
            "block_size": sizes[choose(0, len(sizes) - 1)],
            "watermark": (0.0, 0.1, 0.35)[choose(0, 2)],
            "num_cpu_blocks": (0, 5000)[choose(0, 1)],
            "shared_prefix_tokens": (0, 0, 2, 5)[choose(0, 3)],
        }
    if kind in {"contiguous", "vattention"}:
        chosen = choose_placement if kind == "contiguous" else choose_pages
        return kind, chosen(choose, num_slots)
    if kind == "prefix":
        sizes = [size for size in (1, 2, 4) if 2 * size <= num_slots]
        return kind, {
            "block_size": sizes[choose(0, len(sizes) - 1)],
            "enable_prefix_caching": choose(0, 4) > 0,
            "free_order": ("prepend_unhashed", "append")[choose(0, 1)],
            "reserve_full_isl": bool(choose(0, 1)),
            "watermark": (0.0, 0.1, 0.35)[choose(0, 2)],
        }
    if kind in {"mini_sglang", "nano_vllm", "radix"}:
        sizes = [size for size in (1, 2, 4) if size <= num_slots]
        parameters: dict[str, Any] = {"block_size": sizes[choose(0, len(sizes) - 1)]}
        if kind == "radix":
            policies = sorted(EVICTION_POLICIES)
            parameters["eviction_policy"] = policies[choose(0, len(policies) - 1)]
            parameters["split_at_prompt"] = bool(choose(0, 1))
        return kind, parameters
    return kind, {}


def choose_placement(choose: Choose, num_slots: int) -> dict[str, Any]:
    """A contiguous allocator's parameters."""
    parameters: dict[str, Any] = {
        "reservation": ("max", "pow2", "oracle", "max_tokens")[choose(0, 3)],
        "placement": ("first_fit", "best_fit", "next_fit", "buddy")[choose(0, 3)],
    }
    if parameters["placement"] == "buddy":
        return {**parameters, "min_block": (1, 4, 8)[choose(0, 2)]}
    return {**parameters, "granularity": (1, 8)[choose(0, 1)], "compaction": bool(choose(0, 1))}


def choose_pages(choose: Choose, num_slots: int) -> dict[str, Any]:
    """The parameters of vattention."""
    sizes = [size for size in (1, 2, 5) if size <= num_slots]
    return {
        "block_size": sizes[choose(0, len(sizes) - 1)],
        "watermark": (0.0, 0.1)[choose(0, 1)],
        "deferred_reclamation": choose(0, 3) > 0,
        "map_ahead": choose(0, 3) > 0,
    }


def choose_scheduler(choose: Choose, memory: str) -> tuple[str, dict[str, Any]]:
    """A registered scheduler: few or many sequences, with and without a token budget."""
    has_tree = ALLOCATORS[memory].has_prefix_tree
    kinds = [kind for kind in sorted(SCHEDULERS) if has_tree or kind not in NEED_A_TREE]
    kind = kinds[choose(0, len(kinds) - 1)]
    parameters: dict[str, Any] = {"max_num_seqs": choose(1, 8)}
    if kind == "static":
        return kind, parameters
    if kind == "tgi":
        budgets = {"max_batch_prefill_tokens": choose(1, 60), "max_waiting_tokens": choose(0, 9)}
        parameters |= budgets if choose(0, 1) else {}
        return kind, {**parameters, "waiting_served_ratio": (0.0, 0.3, 1.2)[choose(0, 2)]}
    if kind == "sglang":
        return kind, parameters | choose_sglang(choose)
    if kind == "trtllm":
        policy = ("guaranteed_no_evict", "max_utilization")[choose(0, 1)]
        parameters["capacity_scheduler_policy"] = policy
    if kind.startswith("vllm_v1"):
        parameters["policy"] = ("fcfs", "priority")[choose(0, 1)]
        parameters["long_prefill_token_threshold"] = (0, 3, 8)[choose(0, 2)]
        parameters["count_blocked_lookups"] = bool(choose(0, 1))
    if kind == "vllm_v0":
        parameters["max_num_batched_tokens"] = choose(1, 60)
        parameters["max_paddings"] = choose(0, 20)
        parameters["preemption_mode"] = ("auto", "recompute", "swap")[choose(0, 2)]
        return kind, parameters
    if choose(0, 1):
        parameters["max_num_batched_tokens"] = choose(1, 40)
        if kind not in {"mini_sglang", "nano_vllm"}:
            parameters["enable_chunked_prefill"] = bool(choose(0, 1))
    return kind, parameters


def choose_sglang(choose: Choose) -> dict[str, Any]:
    """Knobs of SGLang's scheduler on a small scale: ratios that move within a few steps."""
    chunk = (None, 4, 8, 40)[choose(0, 3)]
    return {
        "chunked_prefill_size": chunk,
        "max_prefill_tokens": choose(1, 60),
        "schedule_policy": POLICIES[choose(0, len(POLICIES) - 1)],
        "enable_mixed_chunk": chunk is not None and choose(0, 2) == 0,
        "init_new_token_ratio": (0.0, 0.05, 0.7)[choose(0, 2)],
        "new_token_ratio_decay_steps": choose(1, 20),
        "retract_decode_steps": choose(0, 5),
        "clip_max_new_tokens": (1, 3, 4096)[choose(0, 2)],
        "in_batch_check": choose(-1, 4),
        "in_batch_deprioritize": choose(1, 4),
    }


def choose_example(choose: Choose) -> Example:
    """A small trace with bursts and ties, in a pool that is often too small for it."""
    now, arrivals = 0, []
    longest = choose(2, 20)
    for _ in range(choose(1, 14)):
        now += TICK_NS * (0, choose(0, 3), choose(0, 40))[choose(0, 2)]
        output = choose(1, longest)
        arrivals.append((now, choose(1, longest), output, output + choose(0, 12)))
    num_slots = choose(8, 100)
    max_model_len = choose(max(3, longest // 2), 2 * longest + 4)
    allocator = choose_allocator(choose, num_slots)
    example = Example(
        arrivals,
        num_slots,
        max_model_len,
        allocator,
        choose_scheduler(choose, allocator[0]),
        choose(0, 2),
        choose_follow_ups(choose, len(arrivals)),
        choose_beginnings(choose, [prompt for _, prompt, _, _ in arrivals]),
        choose_widths(choose, len(arrivals)),
    )
    return fit_prefixes(example)


def choose_widths(choose: Choose, num_requests: int) -> list[tuple[int, int]]:
    """Sometimes several samples or beams a request."""
    if choose(0, 2):
        return []
    return [(choose(1, 4), 1) if choose(0, 1) else (1, choose(1, 4)) for _ in range(num_requests)]


def choose_beginnings(choose: Choose, prompts: list[int]) -> list[Beginning]:
    """Mostly a few texts that prompts begin with, and outputs that come back as prompts."""
    if choose(0, 3) == 0:
        return []
    beginnings = []
    for request, prompt in enumerate(prompts):
        parent = choose(0, request - 1) if request > 0 and choose(0, 1) else -1
        beginnings.append(Beginning(parent, choose(1, 2), choose(0, prompt), choose(0, 2)))
    return beginnings


def content_of(example: Example) -> SequenceContent | None:
    if not example.beginnings:
        return None
    builder, prompts = ContentBuilder(), []
    for begin, (_, prompt, _, _) in zip(example.beginnings, example.arrivals, strict=True):
        runs = [(begin.source, 0, begin.length)]
        if begin.parent >= 0:
            runs = [*prompts[begin.parent], (own_output(begin.parent), 0, prompt)]
        runs = cut(runs, begin.length)
        prompts.append([*runs, (own_prompt(len(prompts)), 0, prompt - begin.length)])
        builder.add(prompts[-1], prompt)
    return SequenceContent(builder.build())


def cut(runs: list[text.Run], length: int) -> list[text.Run]:
    """The first length tokens."""
    found = []
    for source, start, count in runs:
        found.append((source, start, min(count, length)))
        length -= found[-1][2]
    return found


def choose_follow_ups(choose: Choose, num_requests: int) -> list[tuple[int, int]]:
    """Sometimes conversations: half of the requests come after an earlier one."""
    if choose(0, 2):
        return []
    turns = [(-1, 0)]
    for request in range(1, num_requests):
        parent = choose(0, request - 1) if choose(0, 1) else -1
        turns.append((parent, TICK_NS * (0, 1, choose(0, 40))[choose(0, 2)]))
    return turns


def fit_prefixes(example: Example) -> Example:
    """The example, without declared prefixes if they would fill its pool."""
    kind, parameters = example.allocator
    num_tokens, content = parameters.get("shared_prefix_tokens", 0), content_of(example)
    if not num_tokens or content is None:
        return example
    size = parameters["block_size"]
    num_prefixes = len(set(declared_prefixes(content, num_tokens).values()))
    if num_prefixes * -(-num_tokens // size) < example.num_slots // size:
        return example
    return example._replace(allocator=(kind, {**parameters, "shared_prefix_tokens": 0}))


def requests_and_options(example: Example, single_step: bool) -> tuple[IntArray, Options]:
    """The requests of an example, and how they are run."""
    columns = np.array(example.arrivals, np.int64).T
    requests = new_requests(*columns[:3], Limits(example.max_model_len, columns[3]))
    requests[:, PRIORITY] = [beginning.priority for beginning in example.beginnings] or 0
    turns = np.array(example.follow_ups, np.int64).reshape(-1, 2).T
    follow_ups = FollowUps(*turns) if example.follow_ups else None
    widths = np.array(example.widths, np.int64).reshape(-1, 2).T
    branches = WorkloadBranches(*widths, seed=1) if example.widths else None
    how = Options(
        single_step=single_step,
        follow_ups=follow_ups,
        content=content_of(example),
        branches=branches,
    )
    return requests, how


def parts_of(example: Example) -> tuple[Allocator, Scheduler, CostModel]:
    """The parts of an example's engine, new."""
    costs = [Constant(2e-9 * TICK_NS), Linear(7e-7, 9e-8, 3e-9, 2.5e-9), Plain()]
    kind, parameters = example.allocator
    policy, settings_ = example.scheduler
    return ALLOCATORS[kind](**parameters), SCHEDULERS[policy](**settings_), costs[example.cost]


def run_example(example: Example, single_step: bool) -> Run:
    requests, how = requests_and_options(example, single_step)
    memory = Memory(example.num_slots, example.max_model_len)
    return simulate(requests, memory, *parts_of(example), how)


def left_behind(run: Run) -> dict[str, Any]:
    """All that a run leaves, as plain Python values."""
    recorder, scheduler = run.recorder, run.scheduler
    memory = {name: array.tolist() for name, array in visible_state(run.allocator).items()}
    cells = np.flatnonzero(scheduler.gaps)
    distances = run.allocator.reuse_distances()
    places = np.flatnonzero(scheduler.gaps[:0] if distances is None else distances)
    return {
        "requests": run.requests.tolist(),
        "reasons": sorted(run.scheduler.reasons.items()),
        "end": (run.status, run.reason, run.start_ns, run.end_ns),
        "timeline": recorder.timeline(),
        "queued": recorder.queued_integrals(),
        "num_iterations": recorder.num_iterations,
        "num_queued_iterations": recorder.num_queued_iterations,
        "num_running_max": recorder.num_running_max,
        "measured_from_ns": recorder.measured_from_ns,
        "scheduler": (scheduler.num_finished, scheduler.num_preemptions, scheduler.num_waiting),
        "ratio": getattr(getattr(scheduler, "ratio", None), "current", None),
        "counters": (scheduler.counters(), run.allocator.counters()),
        "gaps": [cells.tolist(), scheduler.gaps[cells].tolist()],
        "distances": None if distances is None else (places.tolist(), distances[places].tolist()),
        "memory": memory,
    }


def fixed_batch() -> list[Example]:
    return [choose_example(random.Random(seed).randint) for seed in FIXED_EXAMPLES]


def digest_of_batch() -> str:
    state = hashlib.sha256()
    for example in fixed_batch():
        state.update(repr(left_behind(run_example(example, single_step=False))).encode())
    return state.hexdigest()


if __name__ == "__main__":
    import numba

    print("plain" if numba.config.DISABLE_JIT else "compiled", digest_of_batch())
