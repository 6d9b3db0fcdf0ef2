"""What every entry of the plug-in tables promises."""

from __future__ import annotations

import ast
import inspect
import json
import sys
from pathlib import Path
from typing import get_type_hints

import pydantic
import pytest
from trace_files import EXAMPLE_FILES, OPTIONS

import workloads
from workloads import (
    ARRIVALS,
    DURATIONS,
    FORMATS,
    LENGTH_DISTRIBUTIONS,
    PREFIXES,
    TURNS,
    WORKLOADS,
    open_file,
)
from workloads.arrivals import ArrivalProcess
from workloads.base import Workload
from workloads.distributions import LengthDistribution
from workloads.durations import Duration
from workloads.prefixes import Prefix
from workloads.publictraces import public_traces
from workloads.servegen_clients import LENGTHS
from workloads.trace import Trace, TraceError
from workloads.tracefile import TraceFile
from workloads.turns import Turns

TABLES = (WORKLOADS, ARRIVALS, LENGTH_DISTRIBUTIONS, PREFIXES, TURNS, DURATIONS)
ENTRIES = [item for table in TABLES for item in table.items()]
LENGTHS_ONLY = {"nanoflow"}
INLINE = {"kind": "inline", "requests": [{"prompt_tokens": 1, "output_tokens": 1}]}
EXAMPLES = {
    "filter": {"workload": INLINE},
    "mix": {"workloads": [INLINE, INLINE]},
    "repeat": {"workload": INLINE, "copies": 2, "shift_s": 5},
    "stretch": {
        "workload": {
            "kind": "inline",
            "requests": [
                {"arrival_s": second, "prompt_tokens": 1, "output_tokens": 1}
                for second in (0, 1, 3)
            ],
        },
        "rate": 2.0,
    },
    **{name: {"path": file, **OPTIONS.get(name, {})} for name, (file, _) in EXAMPLE_FILES.items()},
    "file": {"path": EXAMPLE_FILES["azure"][0]},
    "trace": {"name": "azure-conv-2023"},
    "servegen": {"path": ".", "duration_s": 600},
    "lengths": {"path": "requests.csv", "arrivals": {"kind": "all_at_once"}},
    "inline": {"requests": [{"prompt_tokens": 1, "output_tokens": 1}]},
    "alpaca": {"num_requests": 3, "arrivals": {"kind": "poisson", "rate": 1}},
    "sessions": {"path": "trace_0001.json", "arrivals": {"kind": "poisson", "rate": 1}},
    "sharegpt_json": {
        "path": "conversations.json",
        "tokenizer": "tokenizer.json",
        "arrivals": {"kind": "poisson", "rate": 1},
        "turns": "every",
    },
    "sharegpt": {"num_requests": 3, "arrivals": {"kind": "poisson", "rate": 1}},
    "wmt16": {"num_requests": 3, "arrivals": {"kind": "poisson", "rate": 1}},
    "synthetic": {
        "num_requests": 3,
        "arrivals": {"kind": "gamma", "rate": 1, "cv": 2},
        "prompt_tokens": {"kind": "uniform", "low": 3, "high": 5},
        "output_tokens": 4,
    },
}


@pytest.mark.parametrize(("name", "entry"), ENTRIES, ids=[name for name, _ in ENTRIES])
def test_parameters_are_annotated_so_that_a_configuration_can_be_checked(name, entry):
    assert entry.kind == name
    assert inspect.getdoc(entry)
    hints = get_type_hints(entry.__init__)
    for parameter in inspect.signature(entry).parameters:
        pydantic.TypeAdapter(hints[parameter])


def test_tables_hold_classes_of_their_kind():
    assert all(issubclass(entry, Workload) for entry in WORKLOADS.values())
    assert all(issubclass(entry, ArrivalProcess) for entry in ARRIVALS.values())
    assert all(issubclass(entry, LengthDistribution) for entry in LENGTH_DISTRIBUTIONS.values())
    assert all(issubclass(entry, Prefix) for entry in PREFIXES.values())
    assert all(issubclass(entry, Turns) for entry in TURNS.values())
    assert all(issubclass(entry, Duration) for entry in DURATIONS.values())
    assert all(issubclass(entry, TraceFile) for entry in FORMATS.values())
    assert FORMATS.items() <= WORKLOADS.items()


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_workload_loads_the_same_trace_again_and_says_whether_the_seed_matters(
    write, monkeypatch, companions, name
):
    if name == "sharegpt_json":
        pytest.importorskip("tokenizers", reason="its extra is not installed")
    for file, content in EXAMPLE_FILES.values():
        write(file, content)
    monkeypatch.chdir(companions)
    (companions / "traces/azure").mkdir(parents=True)
    write(f"traces/{public_traces()['azure-conv-2023'].shared}", EXAMPLE_FILES["azure"][1])
    write("chunk-1-trace.csv", "0,0.1,1.0,Gamma,1.0,10.0\n")
    write("chunk-1-dataset.json", json.dumps({"0": dict.fromkeys(LENGTHS, "{3: 0.5, 4: 0.5}")}))
    monkeypatch.setenv("KVSIM_SHARED", str(companions))
    monkeypatch.setenv("KVSIM_CACHE", str(companions / "cache"))
    workload = WORKLOADS[name](**EXAMPLES[name])
    if name in LENGTHS_ONLY:
        with pytest.raises(TraceError, match=r"has no arrival times; .* use 'kind: lengths'"):
            workload.load(seed=1)
        return
    trace = workload.load(seed=1)
    assert isinstance(trace, Trace)
    assert trace.digest() == workload.load(seed=1).digest()
    if not workload.uses_seed:
        assert trace.digest() == workload.load(seed=2).digest()
    for parameter in (*workload.nested, *workload.nested_lists):
        assert parameter in inspect.signature(WORKLOADS[name]).parameters


def test_a_file_of_no_known_format_names_those_that_are_known(write):
    with pytest.raises(TraceError, match=r"is in none of the known formats: .*azure, .*, table"):
        open_file(write("other.csv", "a,b\n1,2\n"))
    with pytest.raises(TraceError, match="no such file"):
        open_file("none.csv")
    with pytest.raises(TraceError, match="is no file name; accepted: "):
        open_file("a\0.csv")


def test_workloads_import_nothing_of_ours():
    imported = set()
    for path in Path(workloads.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                imported.add(node.module.split(".")[0])
    assert imported - sys.stdlib_module_names == {
        "numpy",
        "pyarrow",
        "tokenizers",
        "workloads",
        "yaml",
    }
