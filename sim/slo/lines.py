"""What is searched: a line for each allocator and swept value, and two that no engine can have.

unbounded memory   allocator `unbounded`: what the workload, the scheduler and the times alone give;
                   no memory does better
oracle lengths     allocator `paged` that takes all blocks of a request at admission, told how long
                   it will be: nobody is preempted. No upper bound: blocks are held before they are
                   written, so memory that preempts now and then may admit more

A clairvoyant eviction order bounds caches without an engine (kvsim trace policies), not here:
what is evicted changes when requests run, and so what is asked for next. One that the
experiment's scheduler does not run on is a line with the reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sim.config.experiment import Experiment, resolve_experiment
from sim.config.plugins import Config
from sim.config.runspec import RunSpec, load_trace, uses_seed
from sim.config.yaml_nodes import ConfigError, Document

RATE_KEYS = ("workload.arrivals.rate", "workload.rate")
OFFLINE: dict[str, Config] = {
    "unbounded memory": {"kind": "unbounded"},
    "oracle lengths": {"kind": "paged", "reserve_max_tokens": True},
}
START_RATE = 1.0  # requests per second, if the workload has no rate of its own
OVERLAP = 2  # a trace has windows of its own for seeds if it is so many times as long as one


@dataclass(frozen=True)
class Line:
    """What has one capacity. spec is its run at the experiment's own rate; None if there is none.

    offline is the name of one that no engine can have, else empty. cells are its summary cells.
    """

    cells: Config
    offline: str = ""
    spec: RunSpec | None = None
    skip: str = ""

    @property
    def label(self) -> str:
        """Its name in tables."""
        if self.offline:
            swept = {key: cell for key, cell in self.cells.items() if key != "allocator"}
            return _text({"allocator": f"offline: {self.offline}", **swept})
        return _text(self.cells)


def _text(cells: Config) -> str:
    named = {key.rpartition(".")[2]: cell for key, cell in cells.items() if cell is not None}
    kind = named.pop("allocator")
    return ", ".join([str(kind), *(f"{key}={_cell(key, cell)}" for key, cell in named.items())])


def _cell(key: str, cell: Any) -> str:
    """A value in a label; of replicas, which are a mapping, how many and their router's kind."""
    if key == "replicas":
        replicas = json.loads(cell)
        router = replicas.get("router") or {"kind": "round_robin"}
        return f"{replicas['count']} {router['kind']}" if replicas["count"] > 1 else "1"
    return str(cell)


def searched(
    document: Document, folder: Path, offline: bool = True
) -> tuple[Experiment, list[Line]]:
    """The experiment without its sweep of rates, and its lines; offline adds those no engine can
    have. Points that differ in their rate alone, as those of a zip or a list may, are one line.
    Raises ConfigError.
    """
    data: Config = document.data
    if "policies" in data:
        place = document.place(("policies",))
        raise ConfigError([f"{place}: policies: are replayed without time; a rate needs an engine"])
    sweep = data.get("sweep")
    if isinstance(sweep, dict):
        sweep = {key: values for key, values in sweep.items() if key not in RATE_KEYS}
    data = {**data, "sweep": sweep, "seeds": 1, "figures": []}
    experiment = resolve_experiment(replace(document, data=data), folder)
    found = _different(_line(spec) for spec in _specs(experiment))
    known = {_same(line.spec) for line in found if line.spec}
    for name, allocator in OFFLINE.items() if offline else ():
        others = _offline(name, allocator, replace(document, data=data), folder)
        lines = _different(others)
        found += [line for line in lines if not line.spec or _same(line.spec) not in known]
    return experiment, found


def _different(lines: Iterable[Line]) -> list[Line]:
    """The lines, of those with the same cells the first that can be run."""
    found: dict[str, Line] = {}
    for line in lines:
        cells = json.dumps([line.cells, line.offline])
        if cells not in found or (found[cells].skip and not line.skip):
            found[cells] = line
    return list(found.values())


def _specs(experiment: Experiment) -> list[RunSpec]:
    return [spec for spec in experiment.specs if isinstance(spec, RunSpec)]


def _line(spec: RunSpec, offline: str = "") -> Line:
    begin = {key: spec.cells[key] for key in ("experiment", "run", "seed")}
    cells = {k: cell for k, cell in spec.cells.items() if k not in {*begin, *RATE_KEYS}}
    paced = replace(spec, cells={**begin, **cells})  # a rate of its own is not what it is run at
    return Line(cells, offline, None if spec.skip else paced, spec.skip)


def _same(spec: RunSpec) -> str:
    return json.dumps({k: v for k, v in spec.config.items() if k != "engine"}, sort_keys=True)


def _offline(name: str, allocator: Config, document: Document, folder: Path) -> Iterator[Line]:
    """The lines of one that no engine can have; swept keys of allocators are not its own."""
    data = {**document.data, "allocator": allocator}
    if isinstance(data["sweep"], dict):
        own = {k: v for k, v in data["sweep"].items() if not k.startswith("allocator.")}
        data["sweep"] = own
    if "reserve_max_tokens" in allocator:
        data["workload"] = {**data["workload"], "max_tokens": "output"}
    try:
        experiment = resolve_experiment(replace(document, data=data), folder)
    except ConfigError as error:
        yield Line({"allocator": allocator["kind"]}, name, None, error.lines[0])
        return
    for spec in _specs(experiment):
        yield _line(spec, name)


def at_rate(spec: RunSpec, rate: float, seed: int, num_requests: int, offline: str = "") -> RunSpec:
    """A run at so many requests per second, of at least so many requests if they are generated.

    A workload without a rate of its own is stretched (workload kind `stretch`).
    """
    workload = _paced(spec.config["workload"], rate, num_requests)
    base = spec.run_id.removesuffix(f"-seed={spec.seed}")
    run_id = f"{'offline-' if offline else ''}{base}-rate={rate:g}-seed={seed}"
    begin = {"run": run_id, "seed": seed, "offline": offline, "rate": rate}
    return replace(
        spec,
        run_id=run_id,
        seed=seed,
        config={**spec.config, "workload": workload, "seed": seed},
        cells={**spec.cells, **begin},
        records_blocks=False,
    )


def own_rate(workload: Config) -> float | None:
    """The rate that a workload is generated at; None if it has none."""
    arrivals = workload.get("arrivals")
    rates = (part.get("rate") for part in (arrivals, workload) if isinstance(part, dict))
    return next((float(rate) for rate in rates if rate is not None), None)


def _has_rate(part: Any) -> bool:
    return isinstance(part, dict) and "rate" in part


def _paced(workload: Config, rate: float, num_requests: int) -> Config:
    if _has_rate(workload.get("arrivals")):
        paced = {**workload, "arrivals": {**workload["arrivals"], "rate": rate}}
        if "num_requests" in workload:
            paced["num_requests"] = max(num_requests, workload["num_requests"])
        return paced
    if workload["kind"] == "stretch":
        return {**workload, "rate": rate}
    inner = {key: value for key, value in workload.items() if key != "max_tokens"}
    outer = {"rate": rate, "num_requests": num_requests, "max_tokens": workload["max_tokens"]}
    return {"kind": "stretch", "workload": inner, **outer}


def num_windows(spec: RunSpec, seeds: int, num_requests: int) -> int:
    """How many of the seeds give runs that differ. Raises TraceError if the trace is not read.

    A trace that is stretched differs by its window, if it is long enough to have several.
    """
    workload = _paced(spec.config["workload"], START_RATE, num_requests)
    if workload["kind"] != "stretch":
        return seeds if uses_seed(workload) else 1
    if uses_seed(workload["workload"]):
        return seeds
    whole = load_trace(workload["workload"], Path(spec.folder), 0)
    return seeds if len(whole) >= OVERLAP * num_requests else 1
