"""A discrete-event simulator of paged versus contiguous KV-cache memory for LLM serving.

As a library: `sim.run` an experiment, `sim.sweep` over its keys, `sim.read` what was written,
`sim.simulate` parts that were made by hand, or fill a `sim.Pool` request by request. Tables are
pandas DataFrames whose columns end in their units. Nothing prints and nothing exits: what is wrong
is a ConfigError, a TraceError or a ResultsError with the sentences of the command line.

>>> import sim
>>> requests = [
...     {"prompt_tokens": 25, "output_tokens": 5},
...     {"prompt_tokens": 47, "output_tokens": 9},
... ]
>>> results = sim.run({
...     "kv_cache": {"num_gpu_blocks": 64, "block_size": 16},
...     "max_model_len": 512,
...     "workload": {"kind": "inline", "requests": requests},
...     "allocator": [{"kind": "contiguous"}, {"kind": "paged", "block_size": 16}],
... })
>>> results.summary[["allocator", "num_finished", "num_running_max"]].to_dict("records")[1]
{'allocator': 'paged', 'num_finished': 2, 'num_running_max': 2}

Everything here is loaded when it is first used, so that `import sim` takes no time.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sim import parts, testing
    from sim.allocators.base import Admission, Allocator
    from sim.allocators.terms import ConservationError
    from sim.config.experiment import Experiment
    from sim.config.yaml_nodes import ConfigError
    from sim.costs.base import CostModel
    from sim.library.experiments import load, run, sweep
    from sim.library.pool import Pool
    from sim.library.results import Picture, Results, read
    from sim.library.simulation import Simulation, simulate
    from sim.library.tables import available, capacity_table, read_trace, write_trace
    from sim.results.files import ResultsError
    from sim.routers.base import Router
    from sim.schedulers.base import Scheduler
    from workloads.base import Workload
    from workloads.trace import Trace, TraceError
    from workloads.tracefile import TraceFile

    __version__: str

# where each name is; a module with the name itself is that module
_PLACES = {
    "Admission": "sim.allocators.base",
    "Allocator": "sim.allocators.base",
    "ConfigError": "sim.config.yaml_nodes",
    "ConservationError": "sim.allocators.terms",
    "CostModel": "sim.costs.base",
    "Experiment": "sim.config.experiment",
    "Picture": "sim.library.results",
    "Pool": "sim.library.pool",
    "Results": "sim.library.results",
    "ResultsError": "sim.results.files",
    "Router": "sim.routers.base",
    "Scheduler": "sim.schedulers.base",
    "Simulation": "sim.library.simulation",
    "Trace": "workloads.trace",
    "TraceError": "workloads.trace",
    "TraceFile": "workloads.tracefile",
    "Workload": "workloads.base",
    "available": "sim.library.tables",
    "capacity_table": "sim.library.tables",
    "load": "sim.library.experiments",
    "parts": "sim.parts",
    "read": "sim.library.results",
    "read_trace": "sim.library.tables",
    "run": "sim.library.experiments",
    "simulate": "sim.library.simulation",
    "sweep": "sim.library.experiments",
    "testing": "sim.testing",
    "write_trace": "sim.library.tables",
}

__all__ = [
    "Admission",
    "Allocator",
    "ConfigError",
    "ConservationError",
    "CostModel",
    "Experiment",
    "Picture",
    "Pool",
    "Results",
    "ResultsError",
    "Router",
    "Scheduler",
    "Simulation",
    "Trace",
    "TraceError",
    "TraceFile",
    "Workload",
    "__version__",
    "available",
    "capacity_table",
    "load",
    "parts",
    "read",
    "read_trace",
    "run",
    "simulate",
    "sweep",
    "testing",
    "write_trace",
]


if not TYPE_CHECKING:  # type checkers would take any name for one of ours

    def __getattr__(name: str) -> Any:
        """Load a name when it is first used."""
        if name == "__version__":
            from importlib.metadata import version

            return version("kvsim")
        if name not in _PLACES:
            raise AttributeError(f"module 'sim' has no attribute {name!r}")
        module = importlib.import_module(_PLACES[name])
        found = module if module.__name__ == f"sim.{name}" else getattr(module, name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
