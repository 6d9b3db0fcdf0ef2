"""Compile a launch for a GPU that is not there, and read what the compiler made of it.

Works in a process where TRITON_INTERPRET was not set when triton was imported. What can be read
without a GPU: registers, spills, shared memory, the instructions of the hot loop and the bytes it
loads. None of it is a time.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.runtime.driver import driver

from kernels.launch import Launch

_BIN = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
_INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P[T\d]+\s+)?([A-Z][A-Z0-9_.]*)([^;]*);")
_MATRIX = ("HMMA", "HGMMA", "QGMMA", "IMMA")  # tensor-core instructions
SCHEDULERS = 4  # an SM issues this many instructions a cycle


class CompileOnly(DriverBase):
    """A driver that names a target and can do nothing else."""

    def __init__(self, arch: int):
        self.arch = arch

    @classmethod
    def is_active(cls) -> bool:
        return True

    def map_python_to_cpp_type(self, ty: str) -> str:
        raise NotImplementedError("only launching asks for it, and nothing is launched here")

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.arch, 32)

    def get_current_device(self) -> int:
        # triton's cache in memory is keyed by device: a fixed number would mix up the targets
        return self.arch

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")

    def get_benchmarker(self) -> Any:
        raise RuntimeError("there is no GPU to time on: this driver only compiles.")


def compile_for(arch: int, launch: Launch) -> Any:
    """Compile a launch for compute capability `arch` (80, 90), specialised as a run would be."""
    driver.set_active(CompileOnly(arch))
    return launch.compile()


@dataclass(frozen=True)
class StaticReport:
    """What the compiler made of a kernel. shared and stack in bytes; ops and hot count instructions
    by name.
    """

    registers: int
    stack: int
    shared: int
    threads: int
    ops: Counter[str]
    hot: Counter[str]  # the innermost loop that uses the tensor cores, else the first loop

    @property
    def spills(self) -> int:
        """Loads and stores of spilled registers; LOCAL reads 0 even when there are some."""
        return count(self.ops, "LDL", "STL")

    @property
    def hot_instructions(self) -> int:
        return sum(self.hot.values())

    def async_bytes(self, width: int | None = None) -> int:
        """Bytes one iteration of the hot loop copies asynchronously into shared memory, all threads
        together.

        width: only by instructions that move so many bytes a thread.
        """
        copies = {op: n for op, n in self.hot.items() if op.startswith("LDGSTS")}
        chosen = {op: n for op, n in copies.items() if width in (None, _width(op))}
        return sum(n * _width(op) for op, n in chosen.items()) * self.threads

    @property
    def loaded_bytes(self) -> int:
        """Bytes one iteration of the hot loop loads from global memory by any load."""
        loads = {op: n for op, n in self.hot.items() if op.startswith(("LDGSTS", "LDG."))}
        return sum(n * _width(op) for op, n in loads.items()) * self.threads

    def issue_share(self, tile_bytes: int, bytes_per_cycle: float = 20.7) -> float:
        """Cycles to issue one iteration over cycles in which an SM's share of memory bandwidth
        delivers its tile.

        bytes_per_cycle: 4.8 TB/s / 132 SMs / 1.755 GHz, an H200 by its datasheet. Far below 1:
        memory decides.
        """
        issue = self.hot_instructions * (self.threads / 32) / SCHEDULERS
        return issue / (tile_bytes / bytes_per_cycle)


def count(ops: Counter[str], *prefixes: str) -> int:
    """Instructions whose name starts with one of the prefixes."""
    return sum(n for op, n in ops.items() if op.startswith(prefixes))


def inspect(compiled: Any) -> StaticReport:
    """Read registers, stack and SASS of a compiled kernel with the tools that come in the triton
    wheel.
    """
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder) / "kernel.cubin"
        cubin.write_bytes(compiled.asm["cubin"])
        usage, sass = _cuobjdump("-res-usage", cubin), _cuobjdump("-sass", cubin)
    code = [(int(at, 16), op, rest) for at, op, rest in _INSTRUCTION.findall(sass)]
    return StaticReport(
        registers=_usage(usage, "REG"),
        stack=_usage(usage, "STACK"),
        shared=compiled.metadata.shared,
        threads=32 * compiled.metadata.num_warps,
        ops=Counter(op for _, op, _ in code),
        hot=_hot_loop(code),
    )


def _cuobjdump(what: str, cubin: Path) -> str:
    command = [str(_BIN / "cuobjdump"), what, str(cubin)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _usage(text: str, key: str) -> int:
    found = re.search(rf"{key}:(\d+)", text)
    if not found:
        raise RuntimeError(f"cuobjdump printed no {key}: its format has changed.")
    return int(found.group(1))


def _width(op: str) -> int:
    return (
        16 if ".128" in op else 8 if ".64" in op else 2 if ".U16" in op else 1 if ".U8" in op else 4
    )


def _hot_loop(code: list[tuple[int, str, str]]) -> Counter[str]:
    """Instructions between a backward branch and its target: the smallest such range with
    tensor-core work.
    """
    loops = []
    for at, op, rest in code:
        target = re.search(r"0x([0-9a-f]+)", rest) if op.startswith("BRA") else None
        if target and int(target.group(1), 16) < at:
            low = int(target.group(1), 16)
            loops.append(Counter(name for a, name, _ in code if low <= a <= at))
    matrix = [loop for loop in loops if count(loop, *_MATRIX)]
    if matrix:
        return min(matrix, key=lambda loop: sum(loop.values()))
    return loops[0] if loops else Counter()
