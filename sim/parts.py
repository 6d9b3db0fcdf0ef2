"""What plug-ins are written with, in one place that stays: base classes, columns, helpers.

An allocator derives from Allocator, a scheduler from Scheduler, a cost model from CostModel, a
router from Router; a trace format from TraceFile, any other source of requests from Workload.
What each must do stands in the class; `sim.testing` has a suite for each.

>>> from sim.parts import NUM_SLOTS, Allocator
>>> Allocator.__abstractmethods__ >= {"append", "free", "check"}
True

Of memory: a sequence is a row of sequences.rows, whose columns are the names in capitals;
`resize_row` sets how many slots a row holds and how many of them are written, and moves the
conservation terms along; `recount` and `check_terms` are what `Allocator.check` is made of. Of
schedulers: `describe` and `start_row` fill the batch. Of cost models: the cells of a batch are
NUM_SEQS and the others of sim.batch. Of trace formats: a Column says which rule a cell must keep.
"""

from sim.allocators.base import Admission, Allocator
from sim.allocators.terms import (
    EXTERNAL,
    FREE,
    ConservationError,
    KVUsage,
    check_terms,
    recount,
    resize_row,
)
from sim.batch import (
    DECODE_KV_TOKENS,
    KV_TOKENS,
    NUM_DECODE_SEQS,
    NUM_SEQS,
    PREFILL_PAIRS,
    PREFILL_TOKENS,
    describe,
    start_row,
)
from sim.costs.base import CostModel
from sim.routers.base import Router, Server
from sim.schedulers.base import MAX_NUM_SEQS, MEMORY, NOTHING, TOKEN_BUDGET, Scheduler
from sim.sequence import (
    FINAL_TOKENS,
    MAX_FINAL_TOKENS,
    NUM_COMPUTED,
    NUM_SLOTS,
    NUM_TOKENS,
    PROMPT_TOKENS,
    REQUEST,
    IntArray,
    SequenceTable,
)
from workloads.base import Workload
from workloads.readers import read_csv, read_jsonl, read_parquet
from workloads.rows import Column, Rows
from workloads.rules import MILLISECONDS, SECONDS, TIMESTAMP, TOKENS
from workloads.trace import Trace, TraceError
from workloads.tracefile import TraceFile

__all__ = [
    "DECODE_KV_TOKENS",
    "EXTERNAL",
    "FINAL_TOKENS",
    "FREE",
    "KV_TOKENS",
    "MAX_FINAL_TOKENS",
    "MAX_NUM_SEQS",
    "MEMORY",
    "MILLISECONDS",
    "NOTHING",
    "NUM_COMPUTED",
    "NUM_DECODE_SEQS",
    "NUM_SEQS",
    "NUM_SLOTS",
    "NUM_TOKENS",
    "PREFILL_PAIRS",
    "PREFILL_TOKENS",
    "PROMPT_TOKENS",
    "REQUEST",
    "SECONDS",
    "TIMESTAMP",
    "TOKENS",
    "TOKEN_BUDGET",
    "Admission",
    "Allocator",
    "Column",
    "ConservationError",
    "CostModel",
    "IntArray",
    "KVUsage",
    "Router",
    "Rows",
    "Scheduler",
    "SequenceTable",
    "Server",
    "Trace",
    "TraceError",
    "TraceFile",
    "Workload",
    "check_terms",
    "describe",
    "read_csv",
    "read_jsonl",
    "read_parquet",
    "recount",
    "resize_row",
    "start_row",
]
