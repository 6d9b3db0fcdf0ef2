"""A recorded case of nano-vllm gone through again, step by step; the first thing that differs."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from recorded import Case, Clock, Record, RecordedContent, prompt_length
from replay_v1 import Difference
from sim.allocators import Allocator
from sim.allocators.cached_blocks import WAS_EVICTED
from sim.allocators.nano_vllm import NanoVllm
from sim.config.plugin_keys import build_part
from sim.schedulers import Scheduler
from sim.schedulers.nano_vllm import NanoVllm as NanoVllmScheduler
from sim.sequence import REQUEST, IntArray, Limits, SequenceTable, new_requests

ENGINE = "nano_vllm"
MAX_MODEL_LEN = 4096  # longer than any recorded sequence: the engine has no such limit


def parts_of(case: Case) -> tuple[Allocator, Scheduler]:
    """The allocator and the scheduler that an experiment with the case's settings builds."""
    config, folder = case.config, Path()
    allocator = {"kind": "nano_vllm", "block_size": config["block_size"]}
    limits = {name: config[name] for name in ("max_num_seqs", "max_num_batched_tokens")}
    scheduler = {"kind": "nano_vllm", **limits}
    return build_part("allocator", allocator, folder), build_part("scheduler", scheduler, folder)


def num_slots_of(case: Case) -> int:
    slots: int = case.config["num_blocks"] * case.config["block_size"]
    return slots


def requests_of(case: Case, step_ns: int = 1) -> IntArray:
    arrivals = np.array([request["arrival_step"] * step_ns for request in case.requests])
    prompts = np.array([prompt_length(request) for request in case.requests])
    outputs = np.array([request["output_len"] for request in case.requests])
    return new_requests(arrivals, prompts, outputs, Limits(MAX_MODEL_LEN, outputs))


class Replay:
    """A case on its way: ids are the engine's, rows and request numbers ours."""

    def __init__(self, case: Case, allocator: NanoVllm, scheduler: NanoVllmScheduler) -> None:
        self.case, self.allocator, self.scheduler = case, allocator, scheduler
        self.ids = [request["id"] for request in case.requests]
        self.numbers = {name: i for i, name in enumerate(self.ids)}
        self.clock = Clock(case.requests)
        self.sequences = SequenceTable()
        allocator.bind(num_slots_of(case), self.sequences, MAX_MODEL_LEN)
        allocator.bind_content(RecordedContent(case.requests))
        allocator.record_events(1 << 16)
        scheduler.bind(requests_of(case), self.sequences, allocator)

    def first_difference(self) -> Difference | None:
        for record in self.case.steps:
            ours = self._step(record)
            for field, wanted in record.items():
                if field.startswith("after_"):
                    for name, value in wanted.items():
                        if value != ours[field][name]:
                            where = f"{field}.{name}"
                            return Difference(record["step"], where, value, ours[field][name])
                elif wanted != ours[field]:
                    return Difference(record["step"], field, wanted, ours[field])
        return None

    def _step(self, record: Record) -> Record:
        scheduler, now = self.scheduler, self.clock.at(record["step"])
        step = now["step"]
        for name in now["arrived"]:
            scheduler.add(self.numbers[name])
        scheduler.schedule(step)
        ours = now | {
            "prefill": scheduler.is_prefill,
            "preempted": [self.ids[request] for request in scheduler.preempted],
            "scheduled": [[self.ids[i], start, n] for i, start, n in scheduler.scheduled()],
            "after_schedule": self._state(),
        }
        before = self._in_service()
        scheduler.complete(np.array([step, step + 1]), 1)
        left = self._in_service()
        events = self.allocator.events().tolist()
        ours["evicted"] = [block for kind, _, block in events if kind == WAS_EVICTED]
        ours["finished"] = [name for name in before if name not in left]
        ours["after_update"] = self._state()
        return ours

    def _in_service(self) -> dict[str, int]:
        """The rows of requests that hold memory, by name."""
        rows = self.scheduler.running[: self.scheduler.num_running].tolist()
        return {self.ids[self.sequences.rows.item(row, REQUEST)]: row for row in rows}

    def _state(self) -> Record:
        """As the engine shows it: a prompt that is computed in part waits, though it has blocks."""
        rows = self._in_service()
        names = list(rows)
        partial = names[-1:] if self.scheduler.is_chunked else []
        counts = self.allocator.ref_counts()
        return {
            "waiting": partial + [self.ids[request] for request in self.scheduler.waiting()],
            "running": names[: len(names) - len(partial)],
            "tables": {
                name: self.allocator.block_table(row).tolist() for name, row in rows.items()
            },
            "free": self.allocator.free_list().tolist(),
            "hashed": self.allocator.findable()[:, 0].tolist(),
            "refs": {str(i): counts.item(i) for i in np.flatnonzero(counts).tolist()},
        }
