"""What public traces hold, and what a prefix cache of some size and policy finds in them.

A trace that is not on this machine is left out of what is returned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from sim.policies import References, hit_blocks, hit_rate, references
from workloads.anyfile import NamedTrace
from workloads.lengths import Lengths
from workloads.publictraces import AbsentTraceError, find
from workloads.sharing import prefix_hits
from workloads.trace import IntColumn, Trace

Traces = Mapping[str, str]  # names of public traces by the names in the answer
GAIN_SHARES = (2, 4, 8)  # an unbounded cache is cut by these where policies are compared


def trace_statistics(traces: Traces) -> dict[str, dict[str, float]]:
    """Requests, mean prompt and output, and the share of prompt tokens that came before.

    Means are whole tokens, as tables print them. The share is that of an unbounded cache over the
    order of arrivals, in tokens.
    """
    return {
        key: {
            "n": len(trace),
            "inp": round(float(trace.prompt_tokens.mean())),
            "out": round(float(trace.output_tokens.mean())),
            "hit": float(_unbounded_hits(trace).sum() / trace.prompt_tokens.sum()),
        }
        for key, trace in _present(traces).items()
    }


def mean_hit_per_request(traces: Traces) -> dict[str, float]:
    """Another definition of a hit rate: the mean over requests of the share of each prompt."""
    return {
        key: float((_unbounded_hits(trace) / trace.prompt_tokens).mean())
        for key, trace in _present(traces).items()
    }


def median_lengths(traces: Traces) -> dict[str, list[int]]:
    """Requests, and the medians of prompt and output tokens."""
    return {
        key: [
            len(trace),
            int(np.median(trace.prompt_tokens)),
            int(np.median(trace.output_tokens)),
        ]
        for key, trace in _present(traces).items()
    }


def median_prompts(traces: Traces) -> dict[str, int]:
    """The medians of prompt tokens, of files that have lengths alone."""
    found = {}
    for key, name in traces.items():
        lengths = Lengths(name=name, arrivals={"kind": "all_at_once"})
        try:
            found[key] = int(np.median(lengths.load(0).prompt_tokens))
        except AbsentTraceError:
            continue
    return found


def mean_lengths_and_ratio(trace: str) -> dict[str, float]:
    """Mean prompt and output, and the mean of their ratio over requests."""
    loaded = _load(trace)
    return {
        "inp": float(loaded.prompt_tokens.mean()),
        "out": float(loaded.output_tokens.mean()),
        "ratio": float((loaded.prompt_tokens / loaded.output_tokens).mean()),
    }


def share_of_maximum(
    traces: Traces, policy: str, capacity_tokens: int, block_size: int, keeps_outputs: bool = True
) -> dict[str, float]:
    """The hit rate of a cache as a share of what an unbounded one finds."""
    found = _references(traces, block_size)
    if not keeps_outputs:
        found = {key: asked.without_outputs() for key, asked in found.items()}
    return {
        key: _rate(asked, policy, capacity_tokens // block_size) / _rate(asked, "unbounded", 1)
        for key, asked in found.items()
    }


def how_many_below(
    traces: Traces, capacity_tokens: int, block_size: int, limit: float, least: int
) -> bool:
    """Whether at least so many traces, and all of them together, stay below a share."""
    shares = share_of_maximum(traces, "lru", capacity_tokens, block_size)
    return sum(share < limit for share in shares.values()) >= least


def hit_rates(
    traces: Traces, policies: Mapping[str, str], capacity_blocks: Sequence[int], block_size: int
) -> dict[str, list[float]]:
    """Hit rates at several capacities, by the name in the answer of each policy; of one trace."""
    found = _references(traces, block_size)
    if not found:
        return {}
    (asked,) = found.values()
    return {
        key: [_rate(asked, policy, capacity) for capacity in capacity_blocks]
        for key, policy in policies.items()
    }


def global_over_local(
    traces: Traces,
    nodes: int,
    capacity_tokens: int,
    block_size: int,
    follows_prefix: bool = False,
) -> dict[str, Any]:
    """One LRU cache of all nodes' memory against one a node, of one trace.

    Requests are dealt out in turn, or, with follows_prefix, by their second block: the first is
    that of the system prompt, which all share. hit is the ratio of hit rates, prefill the relative
    change of the tokens left to compute.
    """
    found = _references(traces, block_size)
    if not found:
        return {}
    (asked,) = found.values()
    capacity = capacity_tokens // block_size
    whole = int(hit_blocks("lru", asked, nodes * capacity).sum())
    parts = 0
    homes = _second_blocks(asked) if follows_prefix else np.arange(len(asked.num_asked))
    for node in range(nodes):
        mine = np.flatnonzero(homes % nodes == node)
        parts += int(hit_blocks("lru", asked.of(mine), capacity).sum())
    tokens = int(asked.prompt_tokens.sum())
    left = (tokens - whole * block_size) / (tokens - parts * block_size)
    return {"hit": whole / parts, "prefill": left - 1}


def lru_beats_lfu(traces: Traces, block_size: int) -> dict[str, bool]:
    """Whether LRU finds more than LFU at each of several parts of an unbounded cache."""
    return {
        key: all(
            _rate(asked, "lru", asked.num_blocks // cut)
            > _rate(asked, "lfu", asked.num_blocks // cut)
            for cut in GAIN_SHARES
        )
        for key, asked in _references(traces, block_size).items()
    }


def policy_gain(traces: Traces, policy: str, others: Sequence[str], block_size: int) -> Any:
    """Points of hit rate between a policy and the best of others, by trace and size."""
    return {
        f"{key} 1/{cut}": 100
        * (
            _rate(asked, policy, asked.num_blocks // cut)
            - max(_rate(asked, other, asked.num_blocks // cut) for other in others)
        )
        for key, asked in _references(traces, block_size).items()
        for cut in GAIN_SHARES
    }


def unbounded_hit_rate(traces: Traces, block_size: int) -> dict[str, float]:
    """The hit rate of a cache that never evicts, in tokens of full blocks."""
    return {
        key: _rate(asked, "unbounded", 1) for key, asked in _references(traces, block_size).items()
    }


def reuses_of_top_blocks(trace: str, block_size: int, share: float) -> float | None:
    """The share of all reuses that the most reused blocks get, a share of all blocks."""
    found = _references({"it": trace}, block_size)
    if not found:
        return None
    reuses = np.sort(_uses(found["it"]) - 1)[::-1].clip(min=0)
    top = max(1, round(share * len(reuses)))
    return float(reuses[:top].sum() / reuses.sum())


def hits_of_single_turns(trace: str) -> float | None:
    """The share of an unbounded cache's hit tokens that requests without further turns get."""
    found = _present({"it": trace})
    loaded = found.get("it")
    if loaded is None or loaded.session is None:
        return None
    sessions = np.asarray(loaded.session)
    _, session, turns = np.unique(sessions, return_inverse=True, return_counts=True)
    hits = _unbounded_hits(loaded)
    return float(hits[turns[session] == 1].sum() / hits.sum())


def block_lifespans_s(
    quantiles: Mapping[str, Mapping[str, Any]], block_size: int
) -> dict[str, float]:
    """Quantiles of the seconds between a block's first and last use; {name: {trace, quantile}}."""
    result = {}
    for key, entry in quantiles.items():
        present = _present({"it": entry["trace"]})
        if present:
            asked = references(present["it"], block_size)
            spans = _lifespans_s(asked, present["it"])
            result[key] = float(np.quantile(spans, entry["quantile"]))
    return result


def turn_shares(trace: str, window_tokens: int) -> dict[str, float]:
    """The share of conversations of several turns, and of those longer than a window.

    Of a table with a row a turn: conv, opt_prompt, opt_output.
    """
    table = pd.read_csv(find(trace))
    tokens = table["opt_prompt"] + table["opt_output"]
    turns = table.groupby("conv").size()
    return {
        "multi": float((turns > 1).mean()),
        "over4k": float((tokens.groupby(table["conv"]).sum() > window_tokens).mean()),
    }


@lru_cache(maxsize=4)
def _load(name: str) -> Trace:
    return NamedTrace(name=name, unsorted="sort", zero_tokens="drop").load(0)


def _present(traces: Traces) -> dict[str, Trace]:
    """Those of the traces that are on this machine."""
    found = {}
    for key, name in traces.items():
        try:
            found[key] = _load(name)
        except AbsentTraceError:
            continue
    return found


def _references(traces: Traces, block_size: int) -> dict[str, References]:
    return {key: references(trace, block_size) for key, trace in _present(traces).items()}


def _rate(asked: References, policy: str, capacity_blocks: int) -> float:
    return hit_rate(asked, hit_blocks(policy, asked, capacity_blocks))


def _unbounded_hits(trace: Trace) -> IntColumn:
    assert trace.content is not None
    return prefix_hits(trace.content, trace.namespace)


def _second_blocks(asked: References) -> IntColumn:
    """The second block of each prompt, or its only one; 0 without any."""
    second = asked.first[:-1] + np.minimum(1, np.maximum(asked.num_asked - 1, 0))
    return np.where(asked.num_asked > 0, asked.blocks[np.minimum(second, len(asked.blocks) - 1)], 0)


def _uses(asked: References) -> IntColumn:
    return np.bincount(asked.prompt_blocks[0], minlength=asked.num_blocks)


def _lifespans_s(asked: References, trace: Trace) -> Any:
    blocks, rows = asked.prompt_blocks
    times = trace.arrival_ns[rows]
    first = np.full(asked.num_blocks, np.iinfo(np.int64).max)
    last = np.full(asked.num_blocks, -1)
    np.minimum.at(first, blocks, times)
    np.maximum.at(last, blocks, times)
    return (last - first)[last >= 0] / 1e9
