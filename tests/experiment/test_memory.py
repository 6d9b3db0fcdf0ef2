"""Memory grows with the requests of a run by little more than their rows: 96 bytes each."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SIZES = 50_000, 250_000
# the trace's columns are 24 bytes a request, the rows 96, the times of arrivals 8; then, one after
# the other, latencies and the pieces of the table. Measured: 176 to 179. A copy of the rows, or the
# table as a whole, is 96 more.
MOST_BYTES = 220

EXPERIMENT = """
name: many
kv_cache: {num_slots: 4096}
max_model_len: 64
workload:
  kind: synthetic
  num_requests: 1
  arrivals: {kind: poisson, rate: 100}
  prompt_tokens: {kind: uniform, low: 1, high: 9}
  output_tokens: {kind: uniform, low: 1, high: 3}
allocator: {kind: paged}
cost: {kind: constant, seconds: 0.003}
slo: {ttft_s: 0.01, tpot_s: 0.004}
"""
# pieces are as small beside these runs as they are beside one of ten million requests; the peak is
# not getrusage's, which a process inherits from the one that starts it
SCRIPT = """
import sys
from pathlib import Path
from sim.config import runspec
from sim.results import tables
from sim.cli import main
tables.PIECE = 1 << 14
for size in sys.argv[1:]:
    assert main(["run", "many.yaml", "--set", f"workload.num_requests={size}"]) == 0
    runspec._load_trace.cache_clear()
    status = Path("/proc/self/status").read_text()
    print("peak", 1024 * int(status.partition("VmHWM:")[2].split()[0]))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak is read from /proc")
def test_a_request_costs_little_more_memory_than_its_row(tmp_path: Path) -> None:
    (tmp_path / "many.yaml").write_text(EXPERIMENT)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *map(str, SIZES)],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=250,
    )
    small, large = (int(line[5:]) for line in done.stdout.splitlines() if line.startswith("peak"))
    growth = (large - small) / (SIZES[1] - SIZES[0])
    assert 0 < growth < MOST_BYTES, f"{growth:.0f} bytes a request"
