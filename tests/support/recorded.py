"""Cases recorded from real engines, and what it takes to go through one again."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from workloads.content import Run, token_runs
from workloads.sequences import SequenceContent

TRACE_BLOCK = 512  # tokens that one of a case's hash_ids stands for
FIRST_OUTPUT, OUTPUTS_APART = 10**7, 10**4  # output tokens of a request that names none

Record = dict[str, Any]


class Case(NamedTuple):
    """One recorded run: its configuration with defaults, its requests as they arrive, its steps."""

    name: str
    config: Record
    requests: list[Record]
    steps: list[Record]


class Clock:
    """When the steps of a case are, and who arrives at each of them."""

    def __init__(self, requests: list[Record]) -> None:
        self._requests = requests
        self._step = -1

    def at(self, recorded: int) -> Record:
        """The step and who has arrived by then, for a step that the recording has next.

        It is the one after the last, or, if it is later, that of the next arrival.
        """
        to_come = [r["arrival_step"] for r in self._requests if r["arrival_step"] > self._step]
        last, follows = self._step, self._step + 1
        self._step = recorded if recorded in to_come[:1] else follows
        arrived = [r["id"] for r in self._requests if last < r["arrival_step"] <= self._step]
        return {"step": self._step, "arrived": arrived}


def golden_folder(engine: str) -> Path | None:
    """Where an engine's cases are: $KVSIM_GOLDEN_DIR, or $KVSIM_SHARED/golden; None if nowhere."""
    root = os.environ.get("KVSIM_GOLDEN_DIR")
    if root is None and "KVSIM_SHARED" in os.environ:
        root = os.path.join(os.environ["KVSIM_SHARED"], "golden")
    folder = Path(root) / engine if root else None
    return folder if folder is not None and folder.is_dir() else None


def case_paths(engine: str) -> list[Path]:
    """The files of an engine's cases, named ones first."""
    folder = golden_folder(engine)
    if folder is None:
        return []
    fuzz = [*folder.glob("fuzz/*.json.gz"), *folder.glob("*.json.gz")]
    return [*sorted(folder.glob("cases/*.in.json")), *sorted(fuzz)]


def read_case(path: Path) -> Case:
    if path.suffix == ".gz":
        data = json.loads(gzip.decompress(path.read_bytes()))
        given, lines = data["input"], data["output"]
    else:
        given = json.loads(path.read_text())
        output = path.with_name(path.name.replace(".in.json", ".out.jsonl"))
        lines = [json.loads(line) for line in output.read_text().splitlines()]
    requests = given["requests"]
    for i, request in enumerate(requests):
        first = FIRST_OUTPUT + i * OUTPUTS_APART
        request.setdefault("output_token_ids", list(range(first, first + request["output_len"])))
    requests.sort(key=lambda request: request["arrival_step"])
    has_head = "config" in lines[0]  # the settings with their defaults, where they were recorded
    config = lines[0]["config"] if has_head else given["config"]
    return Case(path.name.split(".")[0], config, requests, lines[1:] if has_head else lines)


def prompt_length(request: Record) -> int:
    return request.get("prompt_len") or len(request["prompt_token_ids"])


class RecordedContent(SequenceContent):
    """The tokens of a case's requests, the outputs as they were sampled."""

    def __init__(self, requests: list[Record]) -> None:
        super().__init__()
        self._prompts = [list(prompt_runs(request)) for request in requests]
        self._outputs = [list(runs_of_tokens(request["output_token_ids"])) for request in requests]
        salts = [request.get("cache_salt") for request in requests]
        names: dict[str | None, int] = {None: 0}
        self._salts = [names.setdefault(salt, len(names)) for salt in salts]

    def namespace(self, request: int) -> int:
        return self._salts[request]

    def prompt_runs(self, request: int, count: int) -> list[Run]:
        return self._prompts[request]

    def output_runs(self, request: int, count: int) -> list[Run]:
        return self._outputs[request]


def runs_of_tokens(ids: list[int]) -> Iterator[Run]:
    yield from token_runs(np.array(ids, np.int64)).tolist()


def prompt_runs(request: Record) -> Iterator[Run]:
    if "prompt_token_ids" in request:
        return runs_of_tokens(request["prompt_token_ids"])
    length = request["prompt_len"]
    blocks = range(TRACE_BLOCK)
    ids = [first * TRACE_BLOCK + i for first in request["hash_ids"] for i in blocks]
    return runs_of_tokens(ids[:length])
