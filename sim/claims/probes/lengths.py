"""How long the requests of the built-in workloads are."""

from __future__ import annotations

from sim.claims.probes.results import Seeds
from sim.config.plugin_keys import PLUGINS
from workloads.joint import Joint

NUM_SEEDS = 5


def mean_lengths(
    workload: str, scale_to_paper: bool = False, num_requests: int = 7200
) -> dict[str, Seeds]:
    """Mean prompt (input) and mean output of sharegpt or alpaca, in tokens, for each seed."""
    cls = PLUGINS["workload"][0][workload]
    assert issubclass(cls, Joint)
    drawn = cls(num_requests, {"kind": "all_at_once"}, scale_to_paper)
    traces = [drawn.load(seed) for seed in range(NUM_SEEDS)]
    return {
        "input": Seeds(tuple(float(trace.prompt_tokens.mean()) for trace in traces)),
        "output": Seeds(tuple(float(trace.output_tokens.mean()) for trace in traces)),
    }


def ratio_of_lengths(
    longer: str, shorter: str, scale_to_paper: bool = False, num_requests: int = 7200
) -> dict[str, Seeds]:
    """How many times as long the mean prompt and output of one workload are as another's."""
    both = [mean_lengths(name, scale_to_paper, num_requests) for name in (longer, shorter)]
    return {
        name: Seeds(
            tuple(x / y for x, y in zip(both[0][name].values, both[1][name].values, strict=True))
        )
        for name in both[0]
    }
