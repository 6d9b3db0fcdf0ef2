"""A trace in numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from workloads.content import Content
from workloads.sharing import prefix_hits
from workloads.trace import COLUMNS, NANOSECONDS, IntColumn, Trace

BLOCK = 16  # tokens; engines cache prefixes in whole blocks, most often of this size


def summarize(trace: Trace) -> dict[str, Any]:
    """Size, lengths, arrivals and sharing of a trace, ready for JSON: see measure."""
    columns = {name: getattr(trace, name) for name in COLUMNS}
    known = {name: column for name, column in columns.items() if column is not None}
    return {
        "source": trace.source,
        "digest": trace.digest(),
        "provides": sorted(trace.provides),
        **measure(known, hits_of(known, trace.content)),
        "notes": dict(trace.notes),
    }


def hits_of(columns: Mapping[str, IntColumn], content: Content | None) -> IntColumn | None:
    """Tokens of each prompt that an unbounded cache would serve; None if content is not known."""
    return None if content is None else prefix_hits(content, columns.get("namespace"))


def measure(columns: Mapping[str, IntColumn], hits: IntColumn | None) -> dict[str, Any]:
    """Columns of requests in numbers, in order of arrival; lengths may be zero.

    prompt, output and, if there is one, max_tokens: mean, p5, median, p95, p99, max, in tokens
    (quantiles interpolated linearly); zero_prompt and zero_output: rows without tokens;
    arrivals: first_s, last_s and span_s in seconds, rate_per_s (gaps over span), iat_cv (the
    coefficient of variation of the gaps), dispersion_1s (variance over mean of the number of
    arrivals in each second from the first one on; 1 for a Poisson process), zero_gaps; sharing:
    of hits, if given; sessions: their number and their turns. A value that is not defined, such
    as the rate of one request, is None, and so is a part about which the columns say nothing.
    """
    prompt, output = columns["prompt_tokens"], columns["output_tokens"]
    facts: dict[str, Any] = {
        "rows": len(prompt),
        "prompt_sum": int(prompt.sum()),
        "output_sum": int(output.sum()),
        "zero_prompt": int(np.count_nonzero(prompt == 0)),
        "zero_output": int(np.count_nonzero(output == 0)),
        "prompt": _lengths(prompt),
        "output": _lengths(output),
    }
    if "max_tokens" in columns:
        facts["max_tokens"] = _lengths(columns["max_tokens"])
    facts["arrivals"] = _arrivals(columns["arrival_ns"]) if "arrival_ns" in columns else None
    facts["sharing"] = None if hits is None else _sharing(hits, prompt)
    facts["sessions"] = _sessions(columns)
    return facts


def _lengths(tokens: IntColumn) -> Mapping[str, float]:
    p5, median, p95, p99 = np.percentile(tokens, [5, 50, 95, 99])
    return {
        "mean": float(tokens.mean()),
        "p5": float(p5),
        "median": float(median),
        "p95": float(p95),
        "p99": float(p99),
        "max": int(tokens.max()),
    }


def _arrivals(arrival_ns: IntColumn) -> Mapping[str, float | None]:
    gaps = np.diff(arrival_ns)
    span_s = int(arrival_ns[-1] - arrival_ns[0]) / NANOSECONDS
    spread = len(gaps) > 0 and span_s > 0
    return {
        "first_s": int(arrival_ns[0]) / NANOSECONDS,
        "last_s": int(arrival_ns[-1]) / NANOSECONDS,
        "span_s": span_s,
        "rate_per_s": len(gaps) / span_s if spread else None,
        "iat_cv": float(gaps.std() / gaps.mean()) if spread else None,
        "dispersion_1s": _dispersion(arrival_ns) if spread else None,
        "zero_gaps": int(np.count_nonzero(gaps == 0)),
    }


def _dispersion(arrival_ns: IntColumn) -> float:
    """Variance over mean of arrivals per second, from the first arrival on.

    Counted over the seconds that have arrivals; the empty ones add nothing to either sum, so a
    trace of months costs no more than one of minutes.
    """
    seconds = (arrival_ns - arrival_ns[0]) // NANOSECONDS
    num_bins = int(seconds[-1]) + 1
    _, counts = np.unique(seconds, return_counts=True)
    mean = len(arrival_ns) / num_bins
    variance = float((counts.astype(np.float64) ** 2).sum()) / num_bins - mean**2
    return variance / mean


def _sharing(hits: IntColumn, prompt: IntColumn) -> Mapping[str, float | None]:
    """What an unbounded prefix cache would serve, of all prompt tokens, and in whole blocks.

    hit_frac counts tokens, hit_block_frac those in whole blocks of BLOCK; full_hits are prompts
    that an earlier one begins with.
    """
    total = int(prompt.sum())
    whole_blocks = hits // BLOCK * BLOCK
    return {
        "hit_tokens": int(hits.sum()),
        "hit_frac": int(hits.sum()) / total if total else None,
        "block_size": BLOCK,
        "hit_block_frac": int(whole_blocks.sum()) / total if total else None,
        "full_hits": int(np.count_nonzero((hits == prompt) & (prompt > 0))),
    }


def _sessions(columns: Mapping[str, IntColumn]) -> Mapping[str, float] | None:
    """Sessions and their turns; without session numbers, chains of parents are the sessions."""
    if "session" in columns:
        _, turns = np.unique(columns["session"], return_counts=True)
    elif "parent" in columns:
        turns = np.bincount(_roots(columns["parent"]))
        turns = turns[turns > 0]
    else:
        return None
    facts = {
        "sessions": len(turns),
        "turns_mean": float(turns.mean()),
        "turns_median": float(np.median(turns)),
        "turns_max": int(turns.max()),
    }
    if "parent" in columns:
        facts["follow_ups"] = int(np.count_nonzero(columns["parent"] >= 0))
    return facts


def _roots(parents: IntColumn) -> IntColumn:
    """The first turn before each row: pointers are followed, twice as far in each step."""
    above = np.where(parents < 0, np.arange(len(parents)), parents)
    while not np.array_equal(further := above[above], above):
        above = further
    return above
