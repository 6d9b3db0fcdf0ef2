"""Kernels on the CPU: `TRITON_INTERPRET=1 pytest tests/kernels_interp`, in a process of their own.

The variable is read when triton is imported, and a process that has it cannot compile; so these
tests and tests/kernels_static never share one. Without torch and triton, or without the variable,
nothing here is collected, and the summary says so.
"""

import importlib.util
import os
from pathlib import Path

import pytest

HAVE_TRITON = bool(importlib.util.find_spec("torch") and importlib.util.find_spec("triton"))
RUNNABLE = HAVE_TRITON and os.environ.get("TRITON_INTERPRET") == "1"
collect_ignore_glob = [] if RUNNABLE else ["test_*.py"]


def pytest_collection_modifyitems(items):
    """triton 3.6.0's interpreter takes loop bounds in a way that numpy deprecates (issue 9171)."""
    ignore = pytest.mark.filterwarnings("ignore:Conversion of an array with ndim > 0")
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(ignore)


def pytest_terminal_summary(terminalreporter):
    if not RUNNABLE:
        terminalreporter.write_line(
            "tests/kernels_interp was not run: it needs torch, triton and TRITON_INTERPRET=1"
        )


def tables_from_allocator(lengths, block_size, seed):
    """Block tables of sequences with these lengths, each sequence's blocks in logical order.

    They are drawn at random: any table an allocator could hand out is one of these.
    """
    from kernels.cases import draw_tables  # torch may be missing

    return draw_tables(lengths, block_size, seed)


@pytest.fixture(name="tables_from_allocator")
def tables_from_allocator_fixture():
    return tables_from_allocator
