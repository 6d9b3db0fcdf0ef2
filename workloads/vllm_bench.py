"""The result of a run of vLLM's `bench serve`: the requests that a benchmark sent.

One JSON object, saved with --save-result --save-detailed: input_lens, output_lens and start_times
hold a cell a request; start_times are seconds of a clock without a known zero, and the first
arrival becomes time zero. input_lens and output_lens are tokens as the benchmark counted them. A
request that failed has an output of 0 (see zero_tokens). Requests are sorted by arrival: they
stand in the order in which they were drawn. Results without start_times say how fast requests came
on average but not when, so no times are made up for them: 'kind: lengths' generates some. Which
prompts share what is not known.
The program is at github.com/vllm-project/vllm (vllm/benchmarks/serve.py), Apache-2.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from workloads.documents import read_object
from workloads.intake import Reading, shown
from workloads.rows import Column, Rows
from workloads.rules import SECONDS, TOKENS
from workloads.trace import TraceError
from workloads.tracefile import TraceFile

DETAILED = "; save the result with --save-detailed"


@dataclass(frozen=True, kw_only=True)
class VLLMBench(TraceFile):
    """A result of vLLM's bench serve: path to the JSON file.

    Requests are sorted by arrival unless unsorted is "error".
    """

    unsorted: Literal["error", "sort"] = "sort"

    kind: ClassVar[str] = "vllm_bench"
    absolute_times: ClassVar[bool] = True
    columns: ClassVar[Sequence[Column]] = (
        Column(
            "start_times",
            "arrival_ns",
            SECONDS,
            hint="; for a result without them use 'kind: lengths', which generates arrivals",
        ),
        Column("input_lens", "prompt_tokens", TOKENS, hint=DETAILED),
        Column("output_lens", "output_tokens", TOKENS, hint=DETAILED),
    )

    @classmethod
    def recognizes(cls, path: str, start: bytes) -> bool:
        wanted = (b'"request_throughput"', b'"total_input_tokens"')
        return start.lstrip().startswith(b"{") and all(key in start for key in wanted)

    def read(self, columns: Sequence[Column]) -> Rows:
        document = read_object(self.path)
        reading = Reading(self.path, columns, self.on_bad_row, place="request")
        cells = [self._cells(document, column) for column in columns]
        for column, values in zip(columns, cells, strict=True):
            if len(values) != len(cells[0]):
                raise TraceError(
                    f"{self.path}: {column.name} has {len(values)} cells, {columns[0].name} has "
                    f"{len(cells[0])}; accepted: one a request"
                )
        for number, row in enumerate(zip(*cells, strict=True), 1):
            reading.add_row(number, row)
        return reading.rows()

    def _cells(self, document: dict[str, object], column: Column) -> list[Any]:
        cells = document.get(column.name)
        if cells is None:
            raise TraceError(f"{self.path}: has no {column.name}{column.hint}")
        if not isinstance(cells, list):
            rule = "accepted: a list with a cell a request"
            raise TraceError(f"{self.path}: {column.name} is {shown(cells)}; {rule}")
        return cells
