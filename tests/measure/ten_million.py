"""What ten million requests in one run cost: time, beside bare SimPy events, and memory.

python tests/measure/ten_million.py              kvsim check and kvsim run of ten_million.yaml
python tests/measure/ten_million.py 1000000      the same with so many requests

Everything happens in this process, one after the other; peak memory is that of all of it up to
then. It takes some minutes, and half a gigabyte on disk. Not a test.
"""

from __future__ import annotations

import json
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path

from sim import runspec
from sim.bench import bare_event_us
from sim.cli import main

FILE = Path(__file__).with_suffix(".yaml")


def command(*arguments: str) -> float:
    """Run a kvsim command; return its wall time in seconds, and say what it has cost."""
    started = time.perf_counter()
    code = main([arguments[0], str(FILE), *arguments[1:]])
    wall_s = time.perf_counter() - started
    assert code == 0, code
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"\nkvsim {arguments[0]}: {wall_s:.1f} s, peak memory {peak / 1e9:.2f} GB\n", flush=True)
    return wall_s


def measure(num_requests: int) -> None:
    """Check and run the experiment with so many requests, in a folder that is then removed."""
    size = f"workload.num_requests={num_requests}"
    bare_us = [bare_event_us()]
    command("check", "--set", size)
    runspec._load_trace.cache_clear()
    with tempfile.TemporaryDirectory() as folder:
        wall_s = command("run", "--set", size, "--out", folder)
        (manifest,) = Path(folder).glob("*/runs/*/manifest.json")
        simulated_s = json.loads(manifest.read_text(encoding="utf-8"))["wall_s"]
        (table,) = manifest.parent.glob("requests.parquet")
        print(f"requests.parquet: {table.stat().st_size / 1e6:.0f} MB")
    bare_us.append(bare_event_us())
    event_us = statistics.mean(bare_us)
    print(f"a bare SimPy event: {bare_us[0]:.2f} us before, {bare_us[1]:.2f} us after")
    for name, seconds in (("simulated", simulated_s), ("in all", wall_s)):
        events = seconds / num_requests / event_us * 1e6
        print(
            f"{name}: {num_requests / seconds:,.0f} requests/s, {events:.1f} bare events a "
            f"request, {1e6 / events:,.0f} requests/s where a bare event takes 1 us"
        )


if __name__ == "__main__":
    measure(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000)
