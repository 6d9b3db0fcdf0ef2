"""Kernels on the CPU: `TRITON_INTERPRET=1 pytest tests/kernels_interp`, in a process of their own.

The variable is read when triton is imported, and a process that has it cannot compile; so these
tests and tests/kernels_static never share one. Without torch and triton, or without the variable,
nothing here is collected, and the summary says so.
"""

import importlib.util
import os
from pathlib import Path

import numpy as np
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
    """Block tables of sequences with these lengths, as kvsim's paged allocator hands them out.

    Sequences come and go before, and grow in turns, so that blocks are scattered: shape, a list
    of block ids in logical order for each sequence.
    """
    pytest.importorskip("numba", reason="the simulator's allocators need its dependencies")
    from sim.allocators.paged import Paged
    from sim.sequence import Limits, SequenceTable, new_requests

    rng = np.random.default_rng(seed)
    wanted = np.array(lengths + [int(n) for n in rng.integers(1, 5 * block_size, 8)])
    columns = np.zeros_like(wanted), wanted, np.ones_like(wanted)
    limits = Limits(int(wanted.max()) + 2, columns[2])
    requests = new_requests(*columns, limits)
    sequences, allocator = SequenceTable(), Paged(block_size)
    num_slots = int((-(-wanted // block_size)).sum()) * block_size
    allocator.bind(num_slots, sequences, limits.max_model_len)
    rows = [sequences.open(requests, request) for request in range(len(wanted))]
    passing = rng.permutation(rows[len(lengths) :])
    for row in passing:
        allocator.admit(int(row), int(wanted[rows.index(row)]))
    allocator.free(passing[::2].astype(np.int64))
    left = dict(zip(rows, lengths, strict=False))
    while any(left.values()):
        for row in rng.permutation(list(left)):
            count = min(left[row], int(rng.integers(1, 2 * block_size)))
            assert allocator.append(np.array([row]), np.array([count])) == 1
            left[row] -= count
    return [allocator.block_table(row).tolist() for row in left]


def forked_tables(length, block_size, seed):
    """Two block tables of one sequence before and after the copy of a write to its fork.

    Returns the shared table, the table of the fork once it has a last block of its own, and that
    copy as a pair (source, destination), as kvsim's paged_cow allocator hands them out. Others hold
    blocks in between, so that both tables are scattered.
    """
    pytest.importorskip("numba", reason="the simulator's allocators need its dependencies")
    from sim.allocators.paged_cow import PagedCow
    from sim.allocators.shared_blocks import COPIED
    from sim.sequence import Limits, SequenceTable, new_requests

    rng = np.random.default_rng(seed)
    wanted = np.array([length, *rng.integers(1, 3 * block_size, 8)])
    columns = np.zeros_like(wanted), wanted, np.full_like(wanted, 9)
    limits = Limits(int(wanted.max()) + 9, columns[2])
    requests = new_requests(*columns, limits)
    sequences, allocator = SequenceTable(), PagedCow(block_size, watermark=0.0)
    num_blocks = int((-(-wanted // block_size)).sum()) + 2
    allocator.bind(num_blocks * block_size, sequences, limits.max_model_len)
    parent, *passing = [sequences.open(requests, request) for request in range(len(wanted))]
    for row in passing:
        allocator.admit(row, int(wanted[row - parent]))
    allocator.free(rng.permutation(passing)[:5].astype(np.int64))
    allocator.admit(parent, length)
    fork, no_rows = np.array([sequences.fork(parent)]), np.empty(0, np.int64)
    assert allocator.fork(np.array([parent]), fork, no_rows)
    shared = allocator.block_table(parent).tolist()
    allocator.record_events(1)
    assert allocator.append(fork, np.array([1])) == 1
    ((kind, old, new),) = allocator.events().tolist()
    assert kind == COPIED
    return shared, allocator.block_table(int(fork[0])).tolist(), (old, new)


@pytest.fixture(name="forked_tables")
def forked_tables_fixture():
    return forked_tables


@pytest.fixture(name="tables_from_allocator")
def tables_from_allocator_fixture():
    return tables_from_allocator
