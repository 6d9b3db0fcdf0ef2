"""The lengths of a trace file under generated arrivals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from workloads import checks
from workloads.columns import Columns
from workloads.formats import open_file
from workloads.origin import check_origin, locate
from workloads.sharing_generator import SharingGenerator
from workloads.trace import Trace
from workloads.tracefile import TraceFile, check_rows


@dataclass(frozen=True)
class Lengths(SharingGenerator):
    """Requests as long as a file's, in its order, at generated times: path or name, arrivals.

    For files that have no arrival times, or to replay one at another rate. Times that the file
    has are neither read nor checked. The format is recognized from the file; name is that of a
    public trace (see kvsim trace fetch).
    zero_tokens is what happens to a row without a prompt or without an output: "drop" it, or take
    it as "one" token; without it such a row is a bad row.
    prompt_column and output_column name the columns of a table in no known format.
    """

    path: str | None = None
    arrivals: Mapping[str, object] = field(kw_only=True)
    name: str | None = None
    limit: int | None = None
    on_bad_row: Literal["error", "drop"] = "error"
    zero_tokens: Literal["drop", "one"] | None = None
    prompt_column: str | None = None
    output_column: str | None = None

    kind: ClassVar[str] = "lengths"

    def __post_init__(self) -> None:
        check_origin(self.path, self.name)
        check_rows(self.path or self.name, self.limit, self.on_bad_row)
        if self.zero_tokens is not None:
            checks.one_of("zero_tokens", self.zero_tokens, ["drop", "one"])
        if self.prompt_column is not None or self.output_column is not None:
            self._columns()
        self.check()

    def load(self, seed: int) -> Trace:
        """The file's lengths; the seed decides the times, and what is shared if that is asked."""
        file = (
            self._columns()
            if self.prompt_column is not None
            else open_file(locate(self.path, self.name))
        )
        file = replace(
            file, limit=self.limit, on_bad_row=self.on_bad_row, zero_tokens=self.zero_tokens
        )
        rows = file.lengths()
        prompt, output = rows.fields["prompt_tokens"], rows.fields["output_tokens"]
        found = self.columns(prompt, output, seed, rows.notes)
        known: dict[str, Any] = {**rows.fields, "content": rows.content}
        for name in found.keys() - {"prompt_tokens", "output_tokens"}:
            if known.get(name) is not None:
                rows.notes[f"ignored: {name} of the file, replaced"] += len(rows)
        known |= {"has_output_identity": rows.has_output_identity, **found}
        return Trace(**known, source=rows.source, notes=dict(rows.notes))

    def _columns(self) -> TraceFile:
        if self.prompt_column is None or self.output_column is None:
            missing = "prompt" if self.prompt_column is None else "output"
            raise ValueError(f"{missing}_column: is missing; name both columns or none")
        return Columns(
            locate(self.path, self.name),
            prompt_column=self.prompt_column,
            output_column=self.output_column,
        )
