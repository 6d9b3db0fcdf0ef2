"""What kvsim trace convert can write, and what each target cannot carry.

A target is a function from a trace and a path to what was lost: a count of rows for each reason.
TARGETS is their table; to add one, write a function and add a line.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from workloads.blockwise import block_ids, hits_lost, ids_of_nothing_shared
from workloads.canonical import write_canonical
from workloads.content import IntColumn
from workloads.sharing import prefix_hits
from workloads.trace import COLUMNS, NANOSECONDS, Trace

BoolColumn = NDArray[np.bool_]
Target = Callable[[Trace, Path], dict[str, int]]
LENGTHS = {"arrival_ns", "prompt_tokens", "output_tokens"}
MOONCAKE_BLOCK = 512
MILLISECOND, TICK = NANOSECONDS // 1000, 100  # ns; Azure stamps count ticks of 100 ns
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def write_mooncake(trace: Trace, path: Path) -> dict[str, int]:
    """JSON lines with ids of 512-token blocks, whole milliseconds.

    Namespaces become part of the ids. Without prefix identity every block is a new one.
    """
    lost = _absent(trace, carried={"namespace"})
    lost["arrival rounded to a millisecond"] = _not_whole(trace.arrival_ns, MILLISECOND)
    if trace.content is None:
        lost["hash_ids made up: the source does not know what prompts share"] = len(trace)
        ids = ids_of_nothing_shared(trace.prompt_tokens, MOONCAKE_BLOCK)
    else:
        less = hits_lost(trace.content, MOONCAKE_BLOCK, trace.namespace)
        lost[f"shares less: prefixes that end within a block of {MOONCAKE_BLOCK}"] = _count(less)
        lost["output of an earlier request in the prompt"] = _count(_with_outputs(trace))
        ids = block_ids(trace.content, MOONCAKE_BLOCK, trace.namespace)
    columns = zip(
        _rounded(trace.arrival_ns, MILLISECOND).tolist(),
        trace.prompt_tokens.tolist(),
        trace.output_tokens.tolist(),
        ids,
        strict=True,
    )
    names = ("timestamp", "input_length", "output_length", "hash_ids")
    _write_lines(path, (json.dumps(dict(zip(names, row, strict=True))) for row in columns))
    return _counted(lost)


def write_vidur(trace: Trace, path: Path) -> dict[str, int]:
    """arrived_at,num_prefill_tokens,num_decode_tokens, in seconds to the last nanosecond."""
    lost = _absent(trace)
    rows = (f"{_seconds(t)},{prompt},{output}" for t, prompt, output in _lengths(trace))
    _write_lines(path, ["arrived_at,num_prefill_tokens,num_decode_tokens", *rows])
    return _counted(lost)


def write_azure(trace: Trace, path: Path) -> dict[str, int]:
    """TIMESTAMP,ContextTokens,GeneratedTokens with seven digits; time 0 is the start of 1970."""
    lost = _absent(trace)
    lost["arrival rounded to 100 ns"] = _not_whole(trace.arrival_ns, TICK)
    if trace.arrival_ns[0]:
        lost["arrival counted from the first one when read"] = len(trace)
    rows = (
        f"{_stamp(ticks)},{prompt},{output}"
        for ticks, (_, prompt, output) in zip(
            _rounded(trace.arrival_ns, TICK).tolist(), _lengths(trace), strict=True
        )
    )
    _write_lines(path, ["TIMESTAMP,ContextTokens,GeneratedTokens", *rows])
    return _counted(lost)


TARGETS: dict[str, Target] = {
    "canonical": write_canonical,
    "mooncake": write_mooncake,
    "vidur": write_vidur,
    "azure": write_azure,
}


def _lengths(trace: Trace) -> Iterable[tuple[int, int, int]]:
    columns = (trace.arrival_ns, trace.prompt_tokens, trace.output_tokens)
    return zip(*(column.tolist() for column in columns), strict=True)


def _absent(trace: Trace, carried: Collection[str] = ()) -> dict[str, int]:
    """How many rows have a value in a column that only a canonical file has."""
    lost = {}
    for name in COLUMNS:
        column = getattr(trace, name)
        if column is not None and name not in LENGTHS and name not in carried:
            is_said = column >= 0 if name == "parent" else np.ones(len(trace), np.bool_)
            lost[f"no {name}"] = _count(is_said)
    if trace.content is not None and not carried:
        lost["no prefix identity"] = len(trace)
    return lost


def _with_outputs(trace: Trace) -> BoolColumn:
    """Whether each prompt has a run of an output's source, or begins with an earlier one."""
    content = trace.content
    assert content is not None
    is_output = np.isin(content.source, content.output_source)
    total = np.concatenate([[0], np.cumsum(is_output)])
    named: BoolColumn = np.diff(total[content.first_run]) > 0
    if content.outputs is None:
        return named
    hits = prefix_hits(content, trace.namespace)
    return named | (prefix_hits(content, trace.namespace, trace.output_tokens) > hits)


def _counted(lost: dict[str, int]) -> dict[str, int]:
    return {reason: count for reason, count in lost.items() if count}


def _count(values: IntColumn | BoolColumn) -> int:
    return int(np.count_nonzero(values))


def _not_whole(times_ns: IntColumn, unit_ns: int) -> int:
    return _count(times_ns % unit_ns)


def _rounded(times_ns: IntColumn, unit_ns: int) -> IntColumn:
    """Times in units, to the nearest; order stays."""
    return (times_ns + unit_ns // 2) // unit_ns


def _seconds(time_ns: int) -> str:
    """Nanoseconds as decimal seconds, without zeros at the end."""
    whole, rest = divmod(time_ns, NANOSECONDS)
    return f"{whole}.{rest:09d}".rstrip("0").removesuffix(".")


def _stamp(ticks: int) -> str:
    """Ticks of 100 ns as a date and time of day with seven digits."""
    whole, rest = divmod(ticks, NANOSECONDS // TICK)
    return f"{EPOCH + timedelta(seconds=whole):%Y-%m-%d %H:%M:%S}.{rest:07d}"


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write lines as UTF-8."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{line}\n" for line in lines)
