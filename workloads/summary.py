"""A trace in numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from workloads.trace import NANOSECONDS, IntColumn, Trace


def summarize(trace: Trace) -> dict[str, Any]:
    """Size, lengths and arrivals of a trace, ready for JSON.

    prompt and output: mean, median, p95, max, in tokens (quantiles interpolated linearly);
    arrivals: first_s, last_s and span_s in seconds, rate_per_s (gaps over span), iat_cv (the
    coefficient of variation of the gaps), dispersion_1s (variance over mean of the number of
    arrivals in each second from the first one on; 1 for a Poisson process), zero_gaps. A value
    that is not defined, such as the rate of one request, is None.
    """
    facts: dict[str, Any] = {
        "source": trace.source,
        "digest": trace.digest(),
        "provides": sorted(trace.provides),
        "rows": len(trace),
        "prompt_sum": int(trace.prompt_tokens.sum()),
        "output_sum": int(trace.output_tokens.sum()),
        "prompt": _lengths(trace.prompt_tokens),
        "output": _lengths(trace.output_tokens),
    }
    if trace.max_tokens is not None:
        facts["max_tokens"] = _lengths(trace.max_tokens)
    facts["arrivals"] = _arrivals(trace.arrival_ns)
    facts["notes"] = dict(trace.notes)
    return facts


def _lengths(tokens: IntColumn) -> Mapping[str, float]:
    median, p95 = np.percentile(tokens, [50, 95])
    return {
        "mean": float(tokens.mean()),
        "median": float(median),
        "p95": float(p95),
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
