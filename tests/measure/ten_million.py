"""What ten million requests in one run cost: time, beside bare SimPy events, and memory.

python tests/measure/ten_million.py              kvsim check and kvsim run of ten_million.yaml
python tests/measure/ten_million.py 1000000      the same with so many requests

Everything happens in this process, one after the other; peak memory is that of all of it up to
then. Ratios are of CPU time, so that a busy machine matters less. It takes some minutes, and half
a gigabyte on disk. Not a test.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sim.bench.events import bare_event_us
from sim.cli import main
from sim.config import runspec
from sim.runs import runner

FILE = Path(__file__).with_suffix(".yaml")
NUM_EVENTS = 1_000_000


def cpu_s(function: Callable[[], object]) -> float:
    """CPU seconds of this process during a call."""
    started = time.process_time()
    function()
    return time.process_time() - started


def command(*arguments: str) -> float:
    """Run a kvsim command, and say what it has cost; its CPU time in seconds."""
    codes: list[int] = []
    started = time.perf_counter()
    spent_s = cpu_s(lambda: codes.append(main([arguments[0], str(FILE), *arguments[1:]])))
    wall_s = time.perf_counter() - started
    assert codes == [0], codes
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(
        f"\nkvsim {arguments[0]}: {wall_s:.1f} s, of CPU time {spent_s:.1f} s, "
        f"peak memory {peak / 1e9:.2f} GB\n",
        flush=True,
    )
    return spent_s


def measure(num_requests: int) -> None:
    """Check and run the experiment with so many requests, in a folder that is then removed."""
    size = f"workload.num_requests={num_requests}"
    simulating: list[float] = []
    simulate = runner.simulate

    def timed(*parts: Any) -> Any:
        runs: list[Any] = []
        simulating.append(cpu_s(lambda: runs.append(simulate(*parts))))
        return runs[0]

    runner.simulate = timed
    bare_s = cpu_s(lambda: bare_event_us(NUM_EVENTS))
    command("check", "--set", size)
    runspec._load_trace.cache_clear()
    with tempfile.TemporaryDirectory() as folder:
        all_s = command("run", "--set", size, "--out", folder)
        (table,) = Path(folder).glob("*/runs/*/requests.parquet")
        print(f"requests.parquet: {table.stat().st_size / 1e6:.0f} MB")
    bare_s += cpu_s(lambda: bare_event_us(NUM_EVENTS))
    event_s = bare_s / 2 / NUM_EVENTS
    print(f"a bare SimPy event: {event_s * 1e6:.2f} us of CPU time")
    for name, seconds in (("simulated", simulating[0]), ("in all", all_s)):
        events = seconds / num_requests / event_s
        print(
            f"{name}: {num_requests / seconds:,.0f} requests/s, {events:.1f} bare events a "
            f"request, {1e6 / events:,.0f} requests/s where a bare event takes 1 us"
        )


if __name__ == "__main__":
    measure(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000)
