"""The formats of trace files, and which of them a file is."""

from __future__ import annotations

import os

from workloads import installed
from workloads.apex import Apex
from workloads.azure import Azure
from workloads.bailian import Bailian
from workloads.base import Workload
from workloads.burstgpt import BurstGPT
from workloads.canonical import Canonical
from workloads.columns import Columns
from workloads.dynamo import Dynamo
from workloads.files import LINE_ENDS, NEWLINE, first_bytes
from workloads.kv_cache_tester import KVCacheTester
from workloads.llmservingsim import LLMServingSim
from workloads.llmservingsim_measured import LLMServingSimMeasured
from workloads.lmcache_agent import LMCacheAgent
from workloads.mooncake import Mooncake
from workloads.nanoflow import Nanoflow
from workloads.openai_log import OpenAILog
from workloads.ragpulse import RAGPulse
from workloads.table import Table
from workloads.trace import TraceError
from workloads.tracefile import TraceFile
from workloads.tracelab import TraceLab
from workloads.vidur import Vidur
from workloads.vllm_bench import VLLMBench

# asked in this order whether they recognize a file
FORMATS: dict[str, type[TraceFile]] = {
    "nanoflow": Nanoflow,  # before azure, whose header it has
    "canonical": Canonical,
    "apex": Apex,
    "azure": Azure,
    "bailian": Bailian,
    "burstgpt": BurstGPT,
    "dynamo": Dynamo,
    "kv_cache_tester": KVCacheTester,
    "lmcache_agent": LMCacheAgent,  # before mooncake, whose keys it has
    "llmservingsim": LLMServingSim,
    "llmservingsim_measured": LLMServingSimMeasured,
    "mooncake": Mooncake,
    "openai_log": OpenAILog,
    "ragpulse": RAGPulse,
    "table": Table,
    "tracelab": TraceLab,
    "vidur": Vidur,
    "vllm_bench": VLLMBench,
    "columns": Columns,  # any other file, if told which columns are which
}


def open_file(path: str) -> TraceFile:
    """The workload that reads this file or folder, with defaults for all but its path.

    Formats that installed packages bring are asked when none of ours recognizes it. Raises
    TraceError if it cannot be read or no format recognizes it.
    """
    start = b"" if os.path.isdir(path) else first_bytes(path).lstrip()
    for entry in FORMATS.values():
        if entry.recognizes(path, start):
            return entry(path)
    if not start and not os.path.isdir(path):
        raise TraceError(f"{path}: is empty; at least one request is needed")
    file, failures = _open_installed(path, start)
    if file is not None:
        return file
    if b"\r" in start.strip() and NEWLINE not in start:
        raise TraceError(f"{path}: its lines end in a carriage return; accepted: {LINE_ENDS}")
    unasked = "".join(f"; not asked: {failure}" for failure in failures)
    raise TraceError(
        f"{path}: is in none of the known formats: {', '.join([*FORMATS, *_installed()])}; for "
        f"other column names say which are which, with 'kind: columns'{unasked}"
    )


def _installed() -> dict[str, type[TraceFile] | str]:
    """The formats that installed packages bring, or why one cannot be used."""
    return {
        name: entry
        for name, entry in installed.load_each(Workload).items()
        if name not in FORMATS and (isinstance(entry, str) or issubclass(entry, TraceFile))
    }


def _open_installed(path: str, start: bytes) -> tuple[TraceFile | None, list[str]]:
    """The file as an installed format has it, and which formats could not be asked."""
    failures = []
    for name, entry in _installed().items():
        if isinstance(entry, str):
            failures.append(entry)
            continue
        try:
            if entry.recognizes(path, start):
                return entry(path), failures
        except Exception as error:  # somebody else's code may raise anything
            failures.append(f"{name}: {type(error).__name__}: {error}")
    return None, failures
