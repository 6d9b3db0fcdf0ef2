"""The keys at the top of an experiment file."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_validator

from sim.config.plugins import Strict
from sim.config.pool import DType, KvCacheKeys, KvDType, NumGpus
from sim.hardware.keys import Bytes, ModelLen
from sim.recording.tables import DEFAULT_MAX_EVENTS

Seconds = Annotated[float, Field(gt=0)]
MAX_REPLICAS = 10_000
MAX_REPLAY_BLOCK = 1 << 20  # tokens, far above any engine's block


class SloKeys(Strict):
    """Limits a request must keep to count as good, in seconds.

    ttft_s is the time to the first token.
    tpot_s is the time per output token after it.
    e2e_s is the time from arrival to the last token.
    """

    ttft_s: Seconds | None = None
    tpot_s: Seconds | None = None
    e2e_s: Seconds | None = None


class ReplicasKeys(Strict):
    """Several replicas of the engine behind a router, each with a pool of the given size.

    count is how many there are. router says which of them serves a request (kvsim list routers);
    round_robin if it is left out.
    """

    count: Annotated[int, Field(ge=1, le=MAX_REPLICAS)]
    router: Any = None


class RecordKeys(Strict):
    """What a run keeps of every iteration, beside its other tables (sim.recording.tables).

    blocks says whether it does: iterations, phases of requests, and every change of the pool and of
    block tables. max_events is how many rows there may be of a run; one with more is sampled.
    """

    blocks: bool = True
    max_events: Annotated[int, Field(ge=1000)] = DEFAULT_MAX_EVENTS

    @model_validator(mode="before")
    @classmethod
    def _of_word(cls, value: Any) -> Any:
        """The word blocks is short for a mapping."""
        if isinstance(value, dict):
            return value
        if value == "blocks":
            return {}
        raise ValueError(f"got {value!r}; accepted: blocks, or {{blocks: true, max_events: N}}")


class TopKeys(Strict):
    """An experiment. Plug-ins, presets, seeds and sweep are looked into separately.

    name is also that of the folder of results: letters, digits, dots, _ and -.
    description says what the experiment asks, in a few sentences.
    model is a preset (kvsim list models), the path of a config.json, or numbers; in an editor a
    path begins with a dot, / or $, or ends in .json.
    device is a preset (kvsim list devices) or numbers.
    gpu_memory_utilization is the fraction of the device's memory that may be used; an engine may
    set another (vllm-0.32: 0.92).
    activation_bytes are kept free for activations.
    non_torch_bytes are kept free for what else takes memory.
    tensor_parallel_size is the number of GPUs that the model is split over.
    dtype is that of the weights; auto is what the model's config says.
    kv_cache_dtype is that of the KV cache; auto is dtype.
    kv_cache gives the size of the pool, instead of what model and device leave.
    max_model_len is the longest sequence in tokens; the model's own if it is left out.
    workload is where the requests come from (kvsim list workloads).
    engine is a preset (kvsim list engines), or the path of a file like one that begins with a dot,
    / or $, or ends in .yaml: what it sets, allocator and scheduler may override key by key.
    allocator is the memory under test, or a list of them (kvsim list allocators).
    scheduler decides what runs in an iteration (kvsim list schedulers); fcfs if it is left out, and
    there is no engine.
    cost is how long an iteration takes (kvsim list costs); linear if it is left out.
    replicas are several engines behind a router, {count: 4, router: {kind: least_loaded}}; one
    without a router if it is left out.
    seeds is how many seeds there are, from 0 on, or a list of them; 1 if it is left out.
    sweep maps dotted keys, such as allocator.block_size, to lists of values: one run for each
    combination; engine may be all, for every preset.
    slo are limits that a request must keep to count as good.
    figures are drawn when all runs are done.
    record is blocks, or {blocks: true, max_events: 2000000}: each run keeps who held which block
    when, and what every request did, or of so many iterations one where that is more than
    max_events rows (at least 1,000; 2,000,000 if it is left out); nothing without record.
    report makes a page of it all, report.html beside the tables.
    """

    name: str
    description: str = ""
    model: Any = None
    device: Any = None
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] = 0.9
    activation_bytes: Bytes = 0
    non_torch_bytes: Bytes = 0
    tensor_parallel_size: NumGpus = 1
    dtype: DType = "auto"
    kv_cache_dtype: KvDType = "auto"
    kv_cache: KvCacheKeys | None = None
    max_model_len: ModelLen | None = None
    workload: Any
    engine: Any = None
    allocator: Any
    scheduler: Any = None
    cost: Any = None
    replicas: ReplicasKeys | None = None
    seeds: Any = 1
    sweep: Any = None
    slo: SloKeys | None = None
    figures: list[str] | None = None
    record: RecordKeys | None = None
    report: bool = False

    @property
    def max_events(self) -> int:
        """How many rows a run may record; 0 if it records nothing."""
        return self.record.max_events if self.record is not None and self.record.blocks else 0


class ReplayedTrace(Strict):
    """A trace that policies are replayed on.

    workload is where the prompts come from (kvsim list workloads); seed 0 draws what it draws.
    block_size is in tokens: a cache finds and evicts whole blocks.
    """

    workload: Any
    block_size: Annotated[int, Field(ge=1, le=MAX_REPLAY_BLOCK)] = 16


class ReplayKeys(Strict):
    """An experiment without an engine: eviction policies of a prefix cache, replayed on traces.

    name is also that of the folder of results: letters, digits, dots, _ and -.
    description says what the experiment asks, in a few sentences.
    policies are the eviction policies to compare (kvsim list policies), in place of engine,
    allocator, scheduler and cost; the bounds unbounded, clairvoyant and none are always there.
    traces maps what a trace is called in tables and figures to its workload and block_size.
    capacity_tokens are the sizes of the cache; what an unbounded one holds in the end, halved ten
    times, if they are left out.
    figures are drawn when all runs are done.
    report makes a page of it all, report.html beside the tables.
    """

    name: str
    description: str = ""
    policies: list[str]
    traces: Any
    capacity_tokens: list[Annotated[int, Field(ge=1)]] | None = None
    figures: list[str] | None = None
    report: bool = False
