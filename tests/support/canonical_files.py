"""A trace with everything in it, as a canonical file."""

import io

import numpy as np
import pyarrow.parquet as pq

from workloads.canonical import canonical_table
from workloads.content import ContentBuilder
from workloads.trace import Trace


def everything() -> Trace:
    """A trace that has every column."""
    content = ContentBuilder()
    content.add([(1, 0, 80)], 100)
    content.add([(1, 0, 80), (-2, 0, 20)], 120, output_source=7)
    content.add([(0, 41, 3)], 3)
    columns = {
        "max_tokens": [50, 50, 9],
        "namespace": [0, 0, 1],
        "session": [4, 4, 5],
        "parent": [-1, 0, -1],
        "think_ns": [0, 1_000_000_001, 0],
        "num_samples": [1, 2, 1],
        "beam_width": [1, 1, 4],
        "priority": [0, -3, 7],
    }
    return Trace(
        arrival_ns=np.array([5, 1_000_000_000, 2_500_000_000]),
        prompt_tokens=np.array([100, 120, 3]),
        output_tokens=np.array([20, 7, 1]),
        content=content.build(),
        notes={"dropped: no output": 2},
        has_output_identity=True,
        **{name: np.array(column) for name, column in columns.items()},
    )


def packed(trace: Trace) -> bytes:
    """The bytes of a canonical file."""
    buffer = io.BytesIO()
    pq.write_table(canonical_table(trace), buffer, compression="zstd")
    return buffer.getvalue()
