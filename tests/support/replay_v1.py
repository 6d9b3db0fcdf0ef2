"""A recorded case of vLLM v1 gone through again, step by step, and the first thing that differs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from recorded import Case, Clock, Record, RecordedContent, prompt_length
from sim.allocators import Allocator
from sim.allocators.cached_blocks import BECAME_CACHED
from sim.allocators.prefix import Prefix
from sim.config.plugin_keys import build_part
from sim.schedulers import Scheduler
from sim.schedulers.vllm_v1 import VllmV1
from sim.schedulers.vllm_v1_async import Step, VllmV1Async
from sim.sequence import (
    FINISHED,
    NUM_COMPUTED,
    NUM_GENERATED,
    NUM_TOKENS,
    PRIORITY,
    PROMPT_TOKENS,
    REQUEST,
    STATUS,
    IntArray,
    Limits,
    SequenceTable,
    new_requests,
)


class Rules(NamedTuple):
    """What an engine's version does, beside what a case configures."""

    free_order: str
    has_watermark: bool  # and the check of the whole input
    single_request_exempt: bool
    count_blocked_lookups: bool


VERSIONS = {
    "vllm_v1": Rules("prepend_unhashed", True, True, False),
    "vllm_v1_0.16": Rules("append", False, False, True),
}


class Difference(NamedTuple):
    step: int
    field: str
    recorded: Any
    ours: Any

    def __str__(self) -> str:
        return f"step {self.step}, {self.field}: recorded {self.recorded}, ours {self.ours}"


def parts_of(case: Case, rules: Rules) -> tuple[Allocator, Scheduler]:
    """The allocator and the scheduler that an experiment with the case's settings builds."""
    config, folder = case.config, Path()
    allocator = {
        "kind": "prefix",
        "block_size": config["block_size"],
        "enable_prefix_caching": config["enable_prefix_caching"],
        "free_order": rules.free_order,
        "reserve_full_isl": config["reserve_full_isl"] and rules.has_watermark,
        "watermark": config["watermark"] if rules.has_watermark else 0.0,
    }
    scheduler = {
        "kind": "vllm_v1",
        "single_request_exempt": rules.single_request_exempt,
        "count_blocked_lookups": rules.count_blocked_lookups,
        "wait_forever": True,
    }
    same = ("max_num_seqs", "max_num_batched_tokens", "enable_chunked_prefill", "policy")
    scheduler |= {name: config[name] for name in same}
    scheduler["long_prefill_token_threshold"] = config["long_prefill_token_threshold"]
    if config["pipeline_depth"] != 1:
        scheduler["kind"] = "vllm_v1_async"
    return build_part("allocator", allocator, folder), build_part("scheduler", scheduler, folder)


def requests_of(case: Case, step_ns: int = 1) -> IntArray:
    columns = [
        np.array([request["arrival_step"] * step_ns for request in case.requests]),
        np.array([prompt_length(request) for request in case.requests]),
        np.array([request["output_len"] for request in case.requests]),
    ]
    requests = new_requests(*columns, Limits(case.config["max_model_len"], columns[2]))
    requests[:, PRIORITY] = [request.get("priority", 0) for request in case.requests]
    return requests


def generated(row: IntArray) -> int:
    return row.item(NUM_TOKENS) - row.item(PROMPT_TOKENS)


class Replay:
    """A case on its way: ids are the engine's, rows and request numbers ours."""

    def __init__(self, case: Case, allocator: Prefix, scheduler: VllmV1) -> None:
        self.case, self.allocator, self.scheduler = case, allocator, scheduler
        self.ids = [request["id"] for request in case.requests]
        self.numbers = {name: i for i, name in enumerate(self.ids)}
        self.requests = requests_of(case)
        config, self.sequences = case.config, SequenceTable()
        num_slots = config["num_gpu_blocks"] * config["block_size"]
        allocator.bind(num_slots, self.sequences, config["max_model_len"])
        allocator.bind_content(RecordedContent(case.requests))
        allocator.record_events(1 << 16)
        scheduler.bind(self.requests, self.sequences, allocator)
        self.clock = Clock(case.requests)
        self.in_flight: Step | None = None
        self.has_run: set[int] = set()
        self.tables: dict[int, list[int]] = {}
        self.counted = (0, 0)

    def first_difference(self) -> Difference | None:
        for record in self.case.steps:
            found = self._difference_in(record)
            if found is not None:
                return found
        return None

    def _difference_in(self, record: Record) -> Difference | None:
        step = record["step"]
        if record.get("stalled"):
            return None if not self.scheduler.num_running else Difference(step, "stalled", 1, 0)
        now = self.clock.at(step)
        for name in now["arrived"]:
            self.scheduler.add(self.numbers[name])
        end_step = self._schedule(step)
        ours = now | self._scheduled()
        before = self._generated()
        end_step()
        ours |= self._events()
        ours["sampled"] = self._sampled(before)
        ours["finished"] = {name for name in ours["sampled"] if self._has_finished(name)}
        ours["after_update"] = self._state()
        return self._compare(record, ours)

    def _schedule(self, step: int) -> Callable[[], None]:
        """Schedule a step; return what hands out tokens: of this step or of that in flight."""
        scheduler = self.scheduler
        if not isinstance(scheduler, VllmV1Async):
            scheduler.schedule(step)
            return lambda: scheduler.complete(np.array([step, step + 1]), 1)
        ended, self.in_flight = self.in_flight, scheduler.plan_step(step)
        return lambda: scheduler.end_step(ended, (step, step + 1)) if ended else None

    def _compare(self, record: Record, ours: Record) -> Difference | None:
        is_heap = self.case.config["policy"] == "priority"
        for field, mine in ours.items():
            theirs = record.get(field, {})
            if field == "finished":
                theirs = set(theirs)
            if field.startswith("after_"):
                for name, value in theirs.items():
                    wanted, got = value, mine[name]
                    if name == "waiting" and is_heap:
                        wanted, got = sorted(wanted), sorted(got)
                    if wanted != got:
                        return Difference(record["step"], f"{field}.{name}", wanted, got)
            elif theirs != mine:
                return Difference(record["step"], field, theirs, mine)
        return None

    def _scheduled(self) -> Record:
        scheduler, served = self.scheduler, self.scheduler.scheduled()
        tables = self._tables()
        new = {admitted.request: admitted.num_hit for admitted in scheduler.admitted}
        ours: Record = {"new": [], "resumed": [], "appended": []}
        for request, _ in served:
            table = tables[request]
            if request in new:
                entry = {"id": self.ids[request], "hit_tokens": new[request], "block_ids": table}
                ours["resumed" if request in self.has_run else "new"].append(entry)
            elif len(table) > len(self.tables[request]):
                ours["appended"].append([self.ids[request], table[len(self.tables[request]) :]])
        self.has_run |= new.keys()
        self.tables = tables
        queried, hits = scheduler.tally.num_queried_tokens, scheduler.tally.num_hit_tokens
        ours |= {
            "scheduled": [[self.ids[request], count] for request, count in served],
            "total_scheduled": sum(count for _, count in served),
            "preempted": [self.ids[request] for request in scheduler.preempted],
            "prefix_queries": queried - self.counted[0],
            "prefix_hits": hits - self.counted[1],
            "after_schedule": self._state(),
        }
        self.counted = (queried, hits)
        return ours

    def _generated(self) -> dict[str, int]:
        """How many tokens each request that holds a row has generated."""
        rows = self.sequences.rows[sorted(self.scheduler.open_rows())]
        return {self.ids[row.item(REQUEST)]: generated(row) for row in rows}

    def _sampled(self, before: dict[str, int]) -> dict[str, list[int]]:
        """The tokens that requests have generated since."""
        after, sampled = self._generated(), {}
        for name, count in before.items():
            request = self.numbers[name]
            total = after.get(name, self.requests.item(request, NUM_GENERATED))
            if total > count:
                tokens = self.case.requests[request]["output_token_ids"]
                sampled[name] = tokens[count:total]
        return sampled

    def _has_finished(self, name: str) -> bool:
        return self.requests.item(self.numbers[name], STATUS) == FINISHED

    def _events(self) -> Record:
        cached: dict[str, list[int]] = {}
        evicted = []
        for kind, row, block in self.allocator.events().tolist():
            if kind == BECAME_CACHED:
                request = self.sequences.rows.item(row, REQUEST)
                cached.setdefault(self.ids[request], []).append(block)
            else:
                evicted.append(block)
        return {"evicted_blocks": evicted, "cached_blocks": [[k, v] for k, v in cached.items()]}

    def _tables(self) -> dict[int, list[int]]:
        rows = self.scheduler.running[: self.scheduler.num_running].tolist()
        requests = self.sequences.rows[rows, REQUEST].tolist() if rows else []
        tables = [self.allocator.block_table(row).tolist() for row in rows]
        return dict(zip(requests, tables, strict=True))

    def _state(self) -> Record:
        scheduler, rows = self.scheduler, self.sequences.rows
        running = scheduler.running[: scheduler.num_running].tolist()
        names = [self.ids[rows.item(row, REQUEST)] for row in running]
        counts, free = self.allocator.ref_counts(), self.allocator.free_list().tolist()
        found = self.allocator.findable()
        tables = {self.ids[request]: table for request, table in self._tables().items()}
        return {
            "running": names,
            "waiting": [self.ids[request] for request in scheduler.waiting()],
            "free_blocks": len(free),
            "used_blocks": len(counts) - 1 - len(free),
            "cached_hashes": int((found[:, 1] == -1).sum()),
            "block_tables": tables,
            "num_computed_tokens": self._column(names, running, NUM_COMPUTED),
            "num_tokens": self._column(names, running, NUM_TOKENS),
            "free_queue": free,
            "ref_cnt": {str(i): counts.item(i) for i in np.flatnonzero(counts).tolist()},
            "hashed_blocks": found[:, 0].tolist(),
        }

    def _column(self, names: list[str], running: list[int], column: int) -> dict[str, int]:
        rows = self.sequences.rows
        return {name: rows.item(row, column) for name, row in zip(names, running, strict=True)}
