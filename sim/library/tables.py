"""Tables that need no run: what can be named, how many requests fit, and traces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
from pydantic import Field

from sim import catalog
from sim.config.classes import find_class
from sim.config.plugins import Report, Strict, guess, parameter_names, shown, validate
from sim.config.point import PLUGINS
from sim.config.pool import DType, KvDType
from sim.config.yaml_nodes import ConfigError, KeyPath, dotted
from sim.hardware.capacity import Serving, capacity_rows
from sim.hardware.keys import read_device, read_model
from sim.hardware.types import MAX_MODEL_LEN, Device, Model
from sim.library.plain import listed, path_of, plain, whole
from sim.results.files import ResultsError, replacing
from workloads.canonical import write_canonical
from workloads.formats import open_file
from workloads.trace import Trace, TraceError
from workloads.tracefile import TraceFile

Named = str | Mapping[str, Any]
MAX_GPUS = 1024
Bytes = Annotated[int, Field(ge=0, le=1 << 50)]


class ServingKeys(Strict):
    """What `capacity_table` may be told beside models and devices: Serving's, of capacity.py."""

    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] = 0.9
    block_size: Annotated[int, Field(ge=1, le=1 << 20)] = 16
    max_model_len: Annotated[int, Field(ge=1, le=MAX_MODEL_LEN)] | None = None
    dtype: DType = "auto"
    kv_cache_dtype: KvDType = "auto"
    activation_bytes: Bytes = 0
    non_torch_bytes: Bytes = 0


def available(table: str | None = None) -> pd.DataFrame:
    """What an experiment can name, built in and of installed packages: one row a name.

    Columns: table, name, about. table is one of allocators, schedulers, costs, routers, workloads,
    engines, models, devices, …; all of them if it is left out. Raises ConfigError.

    >>> import sim
    >>> "paged" in set(sim.available("allocators")["name"])
    True
    """
    tables = catalog.tables()
    if table is not None and (not isinstance(table, str) or table not in tables):
        raise ConfigError([f"table: unknown table {shown(table)}{guess(str(table), list(tables))}"])
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
    kv_cache_dtype, activation_bytes, non_torch_bytes. What cannot be is a row with its reason;
    columns end in their units, _gib or _bytes_per_token, and are counts otherwise. Raises
    ConfigError for a name that is unknown and a number that cannot be.

    >>> import sim
    >>> table = sim.capacity_table("llama-3-8b", ["a100-80gb", "h100"], lengths=[4096])
    >>> table[["device", "num_blocks", "requests_of_4096"]].to_dict("records")[0]
    {'device': 'a100-80gb-sxm', 'num_blocks': 28809, 'requests_of_4096': 112}
    """
    problems: list[str] = []

    def report(path: KeyPath, sentence: str) -> None:
        problems.append(f"{dotted(path)}: {sentence}" if path else sentence)

    found = [read_model(name, Path(), report) for name in _named("models", models, report)]
    chosen = [read_device(name, report) for name in _named("devices", devices, report)]
    keys = validate(ServingKeys, plain(serving, (), report), (), report)
    sizes = _counts("tensor_parallel_sizes", tensor_parallel_sizes, MAX_GPUS, report)
    tokens = _counts("lengths", lengths, MAX_MODEL_LEN, report)
    if problems or keys is None:
        raise ConfigError(problems)
    own = [model for model in found if isinstance(model, Model)]
    gpus = [device for device in chosen if isinstance(device, Device)]
    rows = capacity_rows(own, gpus, sizes, Serving(**keys.model_dump()), tokens)
    return pd.DataFrame(list(rows))


def _named(key: str, names: Any, report: Report) -> list[Any]:
    """One name or several, as an experiment would say them; what is none is reported."""
    try:
        accepted = "a name, a mapping, or a list of them"
        given = [names] if isinstance(names, str | Mapping) else listed(key, names, accepted)
    except ValueError as error:
        report((), str(error))
        return []
    if not given or None in given:
        report((key,), "a name is missing; accepted: at least one, and no None")
    return [plain(name, (key,), report) for name in given if name is not None]


def _counts(key: str, values: Any, most: int, report: Report) -> list[int]:
    """A list of whole numbers; what is none is reported."""
    try:
        return [whole(key, value, 1, most) for value in listed(key, values, "whole numbers")]
    except ValueError as error:
        report((), str(error))
        return []


def read_trace(
    path: str | PathLike[str], kind: str | type[TraceFile] | None = None, **options: Any
) -> Trace:
    """The requests of a trace file. Its format is recognized, unless kind names one.

    kind is a name, "module:Class" or a class; options are what an experiment's workload may say
    beside the path, such as limit. Raises TraceError if the file cannot be read, ConfigError for
    a wrong option.

    >>> import sim, tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "mine.csv"
    >>> _ = file.write_text("arrival_s,prompt_tokens,output_tokens\\n0,25,5\\n0.5,47,9\\n")
    >>> trace = sim.read_trace(file, limit=1)
    >>> len(trace), trace.prompt_tokens.tolist(), dict(trace.notes)
    (1, [25], {'cut: beyond limit': 1})
    """
    place = str(path_of(path, "path", "the path of a trace file"))
    problems: list[str] = []

    def report(where: KeyPath, sentence: str) -> None:
        problems.append(f"{dotted(where)}: {sentence}")

    wanted, named = plain(options, (), report), plain(kind, ("kind",), report)
    if named is not None and not isinstance(named, str):
        report(("kind",), f"must be the name of a format, got {shown(named)}")
    if problems:
        raise ConfigError(problems)
    try:
        trace = _file_of(place, named, wanted).load(0)
    except (TypeError, ValueError) as error:
        if isinstance(error, TraceError):
            raise
        raise ConfigError([str(error)]) from None
    return trace


def _file_of(path: str, kind: str | None, options: Mapping[str, Any]) -> TraceFile:
    """A trace file of a format, recognized or named. Raises ValueError, TraceError."""
    recognized: Any = open_file(path) if kind is None else None
    cls = type(recognized) if kind is None else find_class(kind, *PLUGINS["workload"])
    if not issubclass(cls, TraceFile):
        raise ValueError(f"kind: {kind} is no format of trace files, but draws its requests")
    known = [name for name in parameter_names(cls) if name != "path"]
    unknown = [key for key in options if key not in known]
    if unknown:
        raise ValueError(f"{unknown[0]}: unknown key{guess(unknown[0], known)}")
    file: TraceFile = replace(recognized, **options) if kind is None else cls(path, **options)
    return file


def write_trace(trace: Trace, path: str | PathLike[str]) -> None:
    """Write a trace as canonical Parquet, with all that it knows.

    `read_trace` gives the same trace again, and an experiment reads it with {kind: file}. A file
    that is there is replaced once the new one is whole. Raises TraceError if it cannot be written,
    ConfigError for what is no trace or no path.

    >>> import sim, tempfile, pathlib
    >>> import numpy as np
    >>> columns = {"arrival_ns": [0, 10], "prompt_tokens": [25, 47], "output_tokens": [5, 9]}
    >>> trace = sim.Trace(**{name: np.array(values) for name, values in columns.items()})
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "mine.parquet"
    >>> sim.write_trace(trace, file)
    >>> sim.read_trace(file).digest() == trace.digest()
    True
    """
    if not isinstance(trace, Trace):
        raise ConfigError([f"trace: {shown(trace)} is a {type(trace).__name__}; accepted: a Trace"])
    place = path_of(path, "path", "the path of a file")
    if not place.parent.is_dir():
        raise TraceError(f"{place}: cannot be written: {place.parent} is no folder")
    try:
        with replacing(place) as temporary:
            write_canonical(trace, temporary)
    except ResultsError as error:
        raise TraceError(str(error)) from None
