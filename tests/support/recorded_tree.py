"""Recorded cases of SGLang's radix cache: operations, and what each of them left."""

from __future__ import annotations

import gzip
import json
from collections.abc import Hashable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from recorded import Record, golden_folder
from workloads.content import Run, token_runs

ENGINE = "sglang_radix"


class TreeCase(NamedTuple):
    """One recorded history: its configuration, its operations, and a record of each."""

    name: str
    config: Record
    ops: list[Record]
    records: list[Record]


class Difference(NamedTuple):
    index: int
    op: str
    field: str
    recorded: Any
    ours: Any

    def __str__(self) -> str:
        return (
            f"op {self.index} ({self.op}), {self.field}: recorded {self.recorded}, ours {self.ours}"
        )


def case_paths() -> list[Path]:
    """The files of the cases, named ones first; empty without the engine's folder."""
    folder = golden_folder(ENGINE)
    if folder is None:
        return []
    return [*sorted(folder.glob("cases/*.in.json")), *sorted(folder.glob("fuzz*/*.json.gz"))]


def read_case(path: Path) -> TreeCase:
    if path.suffix == ".gz":
        data = json.loads(gzip.decompress(path.read_bytes()))
        given, records = data["input"], data["output"]
    else:
        given = json.loads(path.read_text())
        output = path.with_name(path.name.replace(".in.json", ".out.jsonl"))
        records = [json.loads(line) for line in output.read_text().splitlines()][1:]
    name = f"{path.parent.name}/{path.name.split('.')[0]}"
    return TreeCase(name, given["config"], given["ops"], records)


def is_of_requests(case: TreeCase) -> bool:
    """Whether the operations are those of requests, or those of the tree alone."""
    return case.config.get("mode") == "requests"


def runs_of(tokens: list[int]) -> list[Run]:
    return [(source, start, n) for source, start, n in token_runs(np.array(tokens)).tolist()]


def tokens_of(runs: Any) -> list[int]:
    return [start + i for _, start, length in runs for i in range(length)]


def first_difference(wanted: Record, ours: Record, index: int, op: str) -> Difference | None:
    """The first field that differs, as deep within states and trees as it can be named."""
    found = _first_unlike(wanted, ours, "")
    return Difference(index, op, *found) if found is not None else None


def _first_unlike(wanted: Any, ours: Any, place: str) -> tuple[str, Any, Any] | None:
    """Place and both values; every recorded field must be there."""
    inner: list[tuple[str, Any, Any]] = []
    if isinstance(wanted, dict) and isinstance(ours, dict):
        names = [*wanted, *(ours if place else ())]  # a record need not show all that we know
        inner = [(f"{place}.{name}".strip("."), wanted.get(name), ours.get(name)) for name in names]
    elif isinstance(wanted, list) and isinstance(ours, list) and len(wanted) == len(ours):
        pairs = enumerate(zip(wanted, ours, strict=True))
        inner = [(f"{place}[{i}]", *pair) for i, pair in pairs if isinstance(pair[0], dict)]
    for part, value, mine in inner:
        found = _first_unlike(value, mine, part)
        if found is not None:
            return found
    return (place, wanted, ours) if place and wanted != ours else None


def slots_of(blocks: Any, block_size: int) -> list[int]:
    """The slots of blocks, as the engine numbers them."""
    return [
        block * block_size + i for block in np.asarray(blocks).tolist() for i in range(block_size)
    ]


class Namespaces:
    """Numbers for the names of namespaces, and back."""

    def __init__(self) -> None:
        self._names: list[Hashable] = [None]

    def number(self, name: Hashable) -> int:
        if name not in self._names:
            self._names.append(name)
        return self._names.index(name)

    def name(self, number: int) -> Hashable:
        return self._names[number]
