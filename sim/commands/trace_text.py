"""Traces in words: what kvsim trace prints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from workloads.inspection import Validation

MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86400
QUANTILES = ("mean", "p5", "median", "p95", "p99", "max")
INDENT = 14


def info_lines(facts: Mapping[str, Any], about: str) -> list[str]:
    """A trace's facts (workloads.inspection) on one screen."""
    lines = [f"{facts['file']}", _line("format", f"{facts['format']}: {about}")]
    lines.append(_line("requests", _requests(facts)))
    if (arrivals := facts["arrivals"]) is not None and arrivals["iat_cv"] is not None:
        lines.append(_line("burstiness", _burstiness(arrivals)))
    lines.append(_line("tokens", "".join(f"{name:>11}" for name in QUANTILES) + f"{'sum':>16}"))
    lines += _length_lines(facts)
    lines.append(_line("provides", ", ".join(facts["provides"]) or "lengths alone"))
    lines.append(_line("sharing", _sharing(facts["sharing"])))
    if facts["sessions"] is not None:
        lines.append(_line("sessions", _sessions(facts["sessions"])))
    lines += _zero_lines(facts)
    notes = [f"{reason}: {count:,}" for reason, count in facts["notes"].items()]
    lines += [_line("" if i else "notes", note) for i, note in enumerate(notes)]
    lines += _refusal_lines(facts)
    if facts["digest"] is not None:
        lines.append(_line("digest", facts["digest"]))
    return lines


def _line(name: str, text: str) -> str:
    return f"  {name:<{INDENT - 2}}{text}"


def _requests(facts: Mapping[str, Any]) -> str:
    text, arrivals = f"{facts['rows']:,}", facts["arrivals"]
    if arrivals is None:
        return f"{text}, without arrival times"
    text += f" in {duration(arrivals['span_s'])}"
    return text if arrivals["rate_per_s"] is None else f"{text}, {arrivals['rate_per_s']:.4g}/s"


def _burstiness(arrivals: Mapping[str, Any]) -> str:
    return (
        f"CV of gaps {arrivals['iat_cv']:.3g}, variance/mean of arrivals in a second "
        f"{arrivals['dispersion_1s']:.3g} (Poisson: 1, 1); {arrivals['zero_gaps']:,} at the time "
        "of the one before"
    )


def _length_lines(facts: Mapping[str, Any]) -> Iterator[str]:
    for name in ("prompt", "output", "max_tokens"):
        if name in facts:
            cells = [f"{facts[name][q]:>11,.{1 if q == 'mean' else 0}f}" for q in QUANTILES]
            total = f"{facts[f'{name}_sum']:>16,}" if f"{name}_sum" in facts else ""
            yield _line(f"  {name}", "".join(cells) + total)


def _sharing(sharing: Mapping[str, Any] | None) -> str:
    if sharing is None:
        return "not known: this format does not say what prompts share"
    if sharing["hit_frac"] is None:
        return "no prompt has tokens"
    return (
        f"an unbounded cache would serve {100 * sharing['hit_frac']:.1f} % of prompt tokens "
        f"({100 * sharing['hit_block_frac']:.1f} % in blocks of {sharing['block_size']}), "
        f"{sharing['full_hits']:,} prompts entirely"
    )


def _sessions(sessions: Mapping[str, Any]) -> str:
    text = (
        f"{sessions['sessions']:,}, turns mean {sessions['turns_mean']:.3g}, median "
        f"{sessions['turns_median']:g}, max {sessions['turns_max']:,}"
    )
    return f"{text}; {sessions['follow_ups']:,} follow-ups" if "follow_ups" in sessions else text


def _zero_lines(facts: Mapping[str, Any]) -> Iterator[str]:
    empty = [f"{facts[f'zero_{what}']:,} without {what}" for what in ("prompt", "output")]
    if facts["zero_prompt"] or facts["zero_output"]:
        yield _line("zeros", ", ".join(empty))


def _refusal_lines(facts: Mapping[str, Any]) -> Iterator[str]:
    if facts["refusal"] is None:
        return
    said = facts["refusal"].removeprefix(f"{facts['file']}: ").removeprefix(f"{facts['file']}/")
    yield _line("a run says", said)
    if facts["read_with"]:
        options = ", ".join(f"{name}: {value}" for name, value in facts["read_with"].items())
        yield _line("", f"and takes it with {{{options}}}{_other_way(facts['read_with'])}")


def _other_way(read_with: Mapping[str, str]) -> str:
    return " (or zero_tokens: drop)" if "zero_tokens" in read_with else ""


def duration(seconds: float) -> str:
    """A time span in the largest unit that it fills."""
    for unit, size in (("days", DAY_S), ("h", HOUR_S), ("min", MINUTE_S)):
        if seconds >= 2 * size:
            return f"{seconds / size:.4g} {unit}"
    return f"{seconds:.4g} s"


def validation_lines(found: Validation) -> list[str]:
    """What is wrong with a file, or that nothing is."""
    if not found.problems:
        return [f"{found.path}: {found.kind}, {found.num_good:,} rows, no problem"]
    return [
        f"{found.path}: {found.kind}, {found.num_good:,} good rows, and",
        *(f"  {p.count:,} x {p.reason}; the first: {p.first}" for p in found.problems),
    ]


def conversion_lines(facts: Mapping[str, Any]) -> list[str]:
    """What was written, and what was lost on the way."""
    lines = [
        f"{facts['file']}: {facts['format']}, {facts['rows']:,} requests",
        _line("digest", f"{facts['digest']} of what was read"),
        _line("sha256", facts["sha256"]),
    ]
    notes = [f"{reason}: {count:,}" for reason, count in facts["notes"].items()]
    lost = [f"{reason}: {count:,} requests" for reason, count in facts["lost"].items()]
    lines += [_line("" if i else "read", note) for i, note in enumerate(notes)]
    return lines + [_line("" if i else "lost", text) for i, text in enumerate(lost or ["nothing"])]
