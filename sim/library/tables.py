"""Tables that need no run: what can be named, how many requests fit, and traces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import pandas as pd

from sim import catalog
from sim.capacity import Serving, capacity_rows
from sim.classes import find_class
from sim.config import PLUGINS
from sim.hardware_keys import read_device, read_model
from sim.hardware_types import Device, Model
from sim.plugins import guess, parameter_names
from sim.yaml_nodes import ConfigError, KeyPath, dotted
from workloads.canonical import write_canonical
from workloads.formats import open_file
from workloads.trace import Trace, TraceError

Named = str | Mapping[str, Any]


def available(table: str | None = None) -> pd.DataFrame:
    """What an experiment can name, built in and of installed packages: one row a name.

    Columns: table, name, about. table is one of allocators, schedulers, costs, routers, workloads,
    engines, models, devices, …; all of them if it is left out. Raises ConfigError.

    >>> import sim
    >>> "paged" in set(sim.available("allocators")["name"])
    True
    """
    tables = catalog.tables()
    if table is not None and table not in tables:
        raise ConfigError([f"table: unknown table {table!r}{guess(table, list(tables))}"])
    rows = [
        (name, entry, about)
        for name, entries in tables.items()
        for entry, about in entries.items()
        if table in {None, name}
    ]
    return pd.DataFrame(rows, columns=["table", "name", "about"])


def capacity_table(
    models: Named | Sequence[Named],
    devices: Named | Sequence[Named],
    tensor_parallel_sizes: Sequence[int] = (1,),
    lengths: Sequence[int] = (),
    **serving: Any,
) -> pd.DataFrame:
    """The KV pool that each model leaves on each device, and how many requests fit: GiB, blocks.

    models and devices are named as in an experiment. lengths are tokens of requests, each a column
    requests_of_N. serving may say gpu_memory_utilization, block_size, max_model_len, dtype,
    kv_cache_dtype, activation_bytes, non_torch_bytes. What cannot be is a row with its reason.
    Raises ConfigError.

    >>> import sim
    >>> table = sim.capacity_table("llama-3-8b", ["a100-80gb", "h100"], lengths=[4096])
    >>> table[["device", "num_blocks", "requests_of_4096"]].to_dict("records")[0]
    {'device': 'a100-80gb-sxm', 'num_blocks': 28809, 'requests_of_4096': 112}
    """
    problems: list[str] = []

    def report(path: KeyPath, sentence: str) -> None:
        problems.append(f"{dotted(path)}: {sentence}")

    found = [read_model(name, Path(), report) for name in _listed(models)]
    chosen = [read_device(name, report) for name in _listed(devices)]
    known = [field.name for field in fields(Serving)]
    problems += [f"{key}: unknown key{guess(key, known)}" for key in serving if key not in known]
    if problems:
        raise ConfigError(problems)
    own = [model for model in found if isinstance(model, Model)]
    gpus = [device for device in chosen if isinstance(device, Device)]
    rows = capacity_rows(own, gpus, tensor_parallel_sizes, Serving(**serving), lengths)
    return pd.DataFrame(list(rows))


def _listed(names: Named | Sequence[Named]) -> list[Named]:
    return [names] if isinstance(names, str | Mapping) else list(names)


def read_trace(path: str | PathLike[str], kind: str | None = None, **options: Any) -> Trace:
    """The requests of a trace file. Its format is recognized, unless kind names one.

    options are what an experiment's workload may say beside the path, such as limit. Raises
    TraceError if the file cannot be read, ConfigError for a wrong option.

    >>> import sim, tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "mine.csv"
    >>> _ = file.write_text("arrival_s,prompt_tokens,output_tokens\\n0,25,5\\n0.5,47,9\\n")
    >>> trace = sim.read_trace(file, limit=1)
    >>> len(trace), trace.prompt_tokens.tolist(), dict(trace.notes)
    (1, [25], {'cut: beyond limit': 1})
    """
    try:
        if kind is None:
            file: Any = open_file(fspath(path))
            known = parameter_names(type(file))
            unknown = [key for key in options if key not in known]
            if unknown:
                raise ValueError(f"{unknown[0]}: unknown key{guess(unknown[0], known)}")
            file = replace(file, **options)
        else:
            file = find_class(kind, *PLUGINS["workload"])(path=fspath(path), **options)
    except (TypeError, ValueError) as error:
        if isinstance(error, TraceError):
            raise
        raise ConfigError([str(error)]) from None
    trace: Trace = file.load(0)
    return trace


def write_trace(trace: Trace, path: str | PathLike[str]) -> None:
    """Write a trace as canonical Parquet, with all that it knows.

    `read_trace` gives the same trace again, and an experiment reads it with {kind: file}. Raises
    TraceError if it cannot be written.

    >>> import sim, tempfile, pathlib
    >>> import numpy as np
    >>> columns = {"arrival_ns": [0, 10], "prompt_tokens": [25, 47], "output_tokens": [5, 9]}
    >>> trace = sim.Trace(**{name: np.array(values) for name, values in columns.items()})
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "mine.parquet"
    >>> sim.write_trace(trace, file)
    >>> sim.read_trace(file).digest() == trace.digest()
    True
    """
    try:
        write_canonical(trace, Path(path))
    except OSError as error:
        raise TraceError(f"{path}: cannot be written: {error.strerror}") from None
