"""Where a calibration comes from: commit, kernel files, GPU, software, and the machine's state at
a sentinel."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import triton

KERNELS = Path(__file__).resolve().parents[1]
SMI_STATE = "clocks.sm,clocks.mem,temperature.gpu,power.draw,clocks_event_reasons.active"
RENAMED = ("clocks_event_reasons", "clocks_throttle_reasons")  # drivers before 535 know the second
SMI_FIXED = "driver_version,power.limit,clocks.max.sm,clocks.max.mem,ecc.mode.current"
ENVIRONMENT = ("TRITON_DEFAULT_FP_FUSION", "CUDA_VISIBLE_DEVICES", "TRITON_PTXAS_PATH")


def _output(*command: str) -> str | None:
    try:
        done = subprocess.run(
            command, cwd=KERNELS, capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def git() -> dict[str, Any]:
    """Commit and whether kernels/ differs from it, its calibrations aside; both None outside a git
    checkout."""
    status = _output("git", "status", "--porcelain", "--", ".", ":(exclude)calibrations")
    return {
        "commit": _output("git", "rev-parse", "HEAD"),
        "dirty": None if status is None else bool(status),
    }


def kernel_hashes() -> dict[str, str]:
    """SHA-256 of every source file below kernels/, by its path there: what identifies the kernels
    even without a commit."""
    return {
        p.relative_to(KERNELS).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in sorted(KERNELS.rglob("*.py"))
    }


def changed_files(calibration: Path) -> list[str]:
    """Source files that differ from those that a calibration.json was measured with, or that only
    one side has."""
    then, now = json.loads(calibration.read_text())["kernel_files"], kernel_hashes()
    return sorted(name for name in then.keys() | now.keys() if then.get(name) != now.get(name))


def smi(query: str) -> dict[str, str]:
    """What nvidia-smi says of the first GPU; empty where it cannot be run."""
    line = _output("nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits", "--id=0")
    values = line.split(",") if line else []
    return dict(zip(query.split(","), (v.strip() for v in values), strict=False)) if values else {}


def machine_state() -> dict[str, str]:
    """Clocks, temperature, power and why clocks are held back; keys are the current names, also
    where only the old ones are known."""
    found = smi(SMI_STATE)
    if not found:
        old = smi(SMI_STATE.replace(*RENAMED))
        found = {key.replace(*reversed(RENAMED)): value for key, value in old.items()}
    return found


def gpu() -> dict[str, Any]:
    """Name and size of the GPU."""
    found = torch.cuda.get_device_properties(0)
    return {
        "name": found.name,
        "sm_count": found.multi_processor_count,
        "l2_bytes": found.L2_cache_size,
        "mem_bytes": found.total_memory,
        "capability": f"{found.major}.{found.minor}",
        "cuda": torch.version.cuda,
        **smi(SMI_FIXED),
    }


def software() -> dict[str, Any]:
    """Versions, and the variables that change what is compiled."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "numpy": np.__version__,
        "ptxas": _output(
            str(Path(triton.__file__).parent / "backends/nvidia/bin/ptxas"), "--version"
        ),
        "env": {name: os.environ[name] for name in ENVIRONMENT if name in os.environ},
        "argv": sys.argv[1:],
    }


def ptx_hash(kernel: Any) -> str:
    """What identifies a compiled kernel."""
    return hashlib.sha256(kernel.asm["ptx"].encode()).hexdigest()


def compiled_kernel(
    kernel: Any, options: dict[str, Any], compiled: list[dict[str, Any]]
) -> dict[str, Any]:
    """Registers, spills, shared memory and the hash of a compiled kernel that has run on a GPU.

    compiled: what was compiled before (`precompile`); the stack, which only the machine code tells,
    is that of the entry with the same PTX, and None without one.
    """
    ptx = ptx_hash(kernel)
    return {
        "config": {k: str(v) for k, v in options.items()},
        "regs": kernel.n_regs,
        "spills": kernel.n_spills,
        "stack": next((c["stack"] for c in compiled if c.get("ptx_sha256") == ptx), None),
        "shared": kernel.metadata.shared,
        "ptx_sha256": ptx,
    }
