"""What a workload promises: a trace, and the same one for the same parameters, file and seed."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sim.testing.rules import made, require
from workloads.base import Workload
from workloads.trace import Trace
from workloads.tracefile import TraceFile

NO_TRACE = b"\x00\x7fthis is no trace\x00"


def check_workload(factory: Callable[[], Workload], seeds: Iterable[int] = range(3)) -> None:
    """Run the contract of workloads: of a trace format, on the file that factory names.

    Raises ContractError with the rule that is broken, TraceError if the file cannot be read.

    >>> import sim.testing
    >>> from workloads import WORKLOADS
    >>> requests = [{"prompt_tokens": 20, "output_tokens": 5}]
    >>> sim.testing.check_workload(lambda: WORKLOADS["inline"](requests))
    """
    workload = made(factory, Workload)
    digests = {}
    for seed in seeds:
        trace = workload.load(seed)
        require(isinstance(trace, Trace), workload, f"load gives no Trace, but {trace!r}")
        again, anew = workload.load(seed).digest(), factory().load(seed).digest()
        is_same = trace.digest() == again == anew
        require(is_same, workload, f"load({seed}) gives another trace the second time")
        digests[seed] = again
    is_honest = workload.uses_seed or len(set(digests.values())) == 1
    require(is_honest, workload, "the trace depends on the seed; uses_seed must be True")
    if isinstance(workload, TraceFile):
        takes_all = type(workload).recognizes("noise.bin", NO_TRACE)
        require(not takes_all, workload, "recognizes says yes to a file that is no trace")
