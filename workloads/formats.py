"""The formats of trace files, and which of them a file is."""

from __future__ import annotations

import os

from workloads.azure import Azure
from workloads.dynamo import Dynamo
from workloads.files import first_bytes
from workloads.kv_cache_tester import KVCacheTester
from workloads.mooncake import Mooncake
from workloads.openai_log import OpenAILog
from workloads.ragpulse import RAGPulse
from workloads.table import Table
from workloads.trace import TraceError
from workloads.tracefile import TraceFile
from workloads.tracelab import TraceLab
from workloads.vllm_bench import VLLMBench

# asked in this order whether they recognize a file
FORMATS: dict[str, type[TraceFile]] = {
    "azure": Azure,
    "dynamo": Dynamo,
    "kv_cache_tester": KVCacheTester,
    "mooncake": Mooncake,
    "openai_log": OpenAILog,
    "ragpulse": RAGPulse,
    "table": Table,
    "tracelab": TraceLab,
    "vllm_bench": VLLMBench,
}


def open_file(path: str) -> TraceFile:
    """The workload that reads this file or folder, with defaults for all but its path.

    Raises TraceError if it cannot be read or no format recognizes it.
    """
    start = b"" if os.path.isdir(path) else first_bytes(path)
    for entry in FORMATS.values():
        if entry.recognizes(path, start):
            return entry(path)
    raise TraceError(f"{path}: is in none of the known formats: {', '.join(FORMATS)}")
