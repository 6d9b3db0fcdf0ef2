"""The editor schema: what it takes, what it refuses, and that check agrees."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from sim.cli import main
from sim.config.experiment import ConfigError, load_experiment
from sim.config.schema import experiment_schema

EXPERIMENTS = sorted((Path(__file__).parents[1] / "experiments").glob("*.yaml"))
SCHEMA = experiment_schema()
VALIDATOR = Draft202012Validator(SCHEMA)
BASE = {
    "name": "t",
    "model": "opt-13b",
    "device": "A100-40GB",
    "workload": {
        "kind": "synthetic",
        "num_requests": 4,
        "arrivals": {"kind": "gamma", "rate": 1, "cv": 2.0},
        "prompt_tokens": {"kind": "lognormal", "mean": 90, "cv": 1, "max": 500},
        "output_tokens": 8,
        "max_tokens": "output",
    },
    "allocator": [{"kind": "paged", "block_size": 16}, {"kind": "contiguous"}],
    "scheduler": {"max_num_seqs": 8},
    "cost": {"kind": "linear", "base_s": 0.01},
    "kv_cache": {"num_slots": 4096},
    "seeds": [1, 2],
    "slo": {"ttft_s": 1},
    "figures": ["waste"],
}
INLINE = {
    "name": "t",
    "kv_cache": {"num_gpu_blocks": 64, "block_size": 16},
    "workload": {"kind": "inline", "requests": [{"prompt_tokens": 5, "output_tokens": 4}]},
    "allocator": {"kind": "paged"},
}
SHARING = {
    **INLINE,
    "workload": {
        "kind": "sharegpt",
        "num_requests": 9,
        "arrivals": {"kind": "all_at_once"},
        "prefix": [
            80,
            {"kind": "pool", "texts": 9, "tokens": {"kind": "uniform", "low": 1, "high": 9}},
        ],
        "turns": {"kind": "chat", "count": 3, "think_s": {"kind": "exponential", "mean_s": 2}},
        "num_samples": 2,
    },
}
ENGINE = {
    "name": "t",
    "engine": "vllm-0.32",
    "workload": SHARING["workload"],
    "allocator": [{}, {"block_size": 32}, {"kind": "paged"}],
    "scheduler": {"max_num_seqs": 8},
}
MIX = {
    **INLINE,
    "workload": {
        "kind": "mix",
        "workloads": [
            SHARING["workload"],
            {"kind": "filter", "workload": INLINE["workload"], "min_prompt_tokens": 2},
            {"kind": "repeat", "workload": BASE["workload"].copy(), "copies": 2, "shift_s": 1},
        ],
    },
}
MIX["workload"]["workloads"][2]["workload"].pop("max_tokens")
REPLAY = {
    "name": "t",
    "policies": ["lru", "arc"],
    "traces": {
        "chat": {"workload": SHARING["workload"] | {"num_samples": 1}, "block_size": 8},
        "again": {"workload": SHARING["workload"]},
    },
    "capacity_tokens": [64, 512],
    "figures": ["prefix_policies"],
}
SAMPLE = {"num_points": 2, "seed": 3, "keys": {"slo.ttft_s": {"min": 1, "max": 2, "scale": "log"}}}
MIXTURE = {"kind": "mixture", "components": [5, {"kind": "gamma", "mean": 5, "cv": 1}]}


def is_valid(data):
    return VALIDATOR.is_valid(data)


def changed(*path, to=..., base=BASE):
    """A copy of an experiment with the value at a path replaced, or without it."""
    data = copy.deepcopy(base)
    at = data
    for step in path[:-1]:
        at = at[step]
    if to is ...:
        del at[path[-1]]
    else:
        at[path[-1]] = to
    return data


def check_accepts(data, folder):
    path = Path(folder, "t.yaml")
    path.write_text(json.dumps(data))
    try:
        load_experiment(path)
    except ConfigError:
        return False
    return True


def test_the_schema_is_a_schema_and_the_command_prints_it(capsys):
    Draft202012Validator.check_schema(SCHEMA)
    assert main(["check", "--schema"]) == 0
    assert json.loads(capsys.readouterr().out) == SCHEMA


def test_check_needs_a_file_or_schema(capsys):
    assert main(["check"]) == 2
    assert capsys.readouterr().err == (
        "check: FILE is missing; accepted: an experiment (YAML), or --schema\n"
    )


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_every_experiment_of_ours_is_valid(path):
    errors = [error.message for error in VALIDATOR.iter_errors(yaml.safe_load(path.read_text()))]
    assert errors == []


def test_the_examples_here_are_valid_and_check_agrees(tmp_path):
    for data in (BASE, INLINE, SHARING, MIX, ENGINE, REPLAY):
        assert is_valid(data)
        assert check_accepts(data, tmp_path)


@pytest.mark.parametrize(
    "data",
    [
        changed("allocator", to={"kind": "my_module:Mine", "anything": 1}),
        changed("model", to="configs/model/config.json"),
        changed("model", to="OPT-13B"),
        changed("model", to={"kv_bytes_per_token": 1000}),
        changed("device", to={"memory_bytes": 10**9}),
        changed("scheduler", to=None),
        changed("seeds", to=3),
        changed("workload", "prompt_tokens", to=5),
        changed("workload", "prompt_tokens", to=MIXTURE | {"weights": [1, 2]}),
        changed("workload", "prefix", to=[], base=SHARING),
        changed("workload", "turns", to=None, base=SHARING),
        changed("workload", "prompt_tokens", to={"kind": "quantiles", "path": "q.csv"}),
        changed("engine", to="./mine.yml", base=ENGINE),
        changed("allocator", base=ENGINE),
        changed("allocator", to=None, base=ENGINE),
        changed("scheduler", "kind", to="fcfs", base=ENGINE),
        {**changed("allocator", base=SHARING), "sweep": {"engine": ["orca-max", "x.yaml"]}},
        {**changed("workload", "arrivals", "rate"), "sweep": {"workload.arrivals.rate": [1]}},
        {**changed("allocator", base=SHARING), "sweep": {"engine": "all"}},
        changed("capacity_tokens", to=None, base=REPLAY),
        {**changed("workload"), "sweep": {"workload": [BASE["workload"]]}},
        changed("sweep", to={"zip": {"max_model_len": [8, 9], "cost.base_s": [1, 2]}}),
        changed("sweep", to={"list": [{"max_model_len": 8}, {"max_model_len": 9}]}),
        changed("sweep", to={"random": {"num_points": 2, "keys": {"dtype": ["auto"]}}}),
        changed("sweep", to={"latin_hypercube": SAMPLE}),
        {**changed("allocator", base=SHARING), "sweep": {"zip": {"engine": ["orca-max"]}}},
    ],
    ids=str,
)
def test_other_ways_to_write_it_are_valid_too(data):
    assert is_valid(data)


MISTAKES = [
    changed("name"),
    changed("workload"),
    changed("allocator"),
    changed("alocator", to={"kind": "paged"}),
    changed("name", to="a/b"),
    changed("name", to=5),
    changed("model", to="opt-13"),
    changed("model", to={"kv_bytes": 5}),
    changed("device", to="a100-4gb"),
    changed("gpu_memory_utilization", to=1.5),
    changed("dtype", to="fp64"),
    changed("max_model_len", to=0),
    changed("kv_cache", to={"num_slot": 5}),
    changed("kv_cache", to={"num_slots": "many"}),
    changed("workload", "kind"),
    changed("workload", "kind", to="synthetc"),
    changed("workload", "num_requests"),
    changed("workload", "num_requests", to=0),
    changed("workload", "max_tokens", to="max"),
    changed("workload", "arrivals", to="poisson"),
    changed("workload", "arrivals", "kind", to="poison"),
    changed("workload", "arrivals", "rate"),
    changed("workload", "arrivals", "rate", to=0),
    changed("workload", "arrivals", "rat", to=1),
    changed("workload", "output_tokens", to="8"),
    changed("workload", "output_tokens", to=0),
    changed("workload", "output_tokens", to={"kind": "gamma", "mean": 5}),
    changed("workload", "prompt_tokens", "min", to=0),
    changed("workload", "prompt_tokens", "low", to=1),
    changed("allocator", 0, "block_size", to=0),
    changed("allocator", 0, "block_size", to=2.5),
    changed("allocator", 1, "reservation", to="most"),
    changed("allocator", 1, "kind", to="paging"),
    changed("allocator", 0, "kind"),
    changed("allocator", to=[]),
    changed("scheduler", "max_num_seqs", to=0),
    changed("scheduler", "max_seqs", to=8),
    changed("cost", "base_s", to=-1),
    changed("seeds", to=0),
    changed("seeds", to=[1, 1]),
    changed("seeds", to=[-1]),
    changed("slo", "ttft_s", to=0),
    changed("slo", "ttft", to=1),
    changed("figures", to=["wast"]),
    changed("figures", to=["waste", "waste"]),
    changed("sweep", to={"allocator.kind": ["paged"]}),
    changed("sweep", to={"alocator.block_size": [8]}),
    changed("sweep", to={"allocator.block_size": 8}),
    changed("sweep", to={"allocator.block_size": []}),
    changed("workload", "requests", 0, "prompt", to=5, base=INLINE),
    changed("workload", "requests", 0, "prompt_tokens", to="5", base=INLINE),
    changed("engine", to="vllm-0.3", base=ENGINE),
    changed("engine", to=["vllm-0.32"], base=ENGINE),
    changed("engine", to=0.32, base=ENGINE),
    changed("allocator", 1, "block_size", to=0, base=ENGINE),
    changed("workload", "arrivals", base=ENGINE),
    changed("workload", base=ENGINE),
    {**changed("allocator", base=SHARING), "sweep": {"workload.num_samples": [1]}},
    changed("workload", "prefix", to=80, base=SHARING),
    changed("workload", "prefix", 0, to=0, base=SHARING),
    changed("workload", "prefix", 1, "kind", to="pond", base=SHARING),
    changed("workload", "prefix", 1, "texts", base=SHARING),
    changed("workload", "prefix", 1, "tokens", "high", base=SHARING),
    changed("workload", "prefix", 1, "tokens", "mean", to=5, base=SHARING),
    changed("workload", "turns", "count", to=0, base=SHARING),
    changed("workload", "turns", "think_s", "mean_s", to=0, base=SHARING),
    changed("workload", "num_samples", to=0, base=SHARING),
    changed("workload", "prompt_tokens", to=MIXTURE),
    changed("workload", "prompt_tokens", to=MIXTURE | {"weights": [1, 2], "components": [5, 0]}),
    changed("workload", "workloads", 0, "num_requests", to=0, base=MIX),
    changed("workload", "workloads", 0, "turns", "count", base=MIX),
    changed("workload", "workloads", 1, "workload", "kind", to="outline", base=MIX),
    changed("workload", "workloads", 1, "workload", base=MIX),
    changed("workload", "workloads", 2, "workload", "arrivals", "rat", to=1, base=MIX),
    changed("sweep", to={"allocator.block_size": "all"}),
    changed("sweep", to={"zip": {"seeds": [1]}}),
    changed("sweep", to={"zip": {"max_model_len": 8}}),
    changed("sweep", to={"list": {"max_model_len": 8}}),
    changed("sweep", to={"random": {"keys": {"dtype": ["auto"]}}}),
    changed("sweep", to={"random": SAMPLE | {"sed": 1}}),
    changed("sweep", to={"latin_hypercube": SAMPLE | {"num_points": 0}}),
    changed("sweep", to={"latin_hypercube": SAMPLE | {"keys": {"slo.ttft_s": {"min": 1}}}}),
    changed("sweep", to={"latin_hyper_cube": SAMPLE}),
    changed("traces", base=REPLAY),
    changed("policies", base=REPLAY),
    changed("policies", to=[], base=REPLAY),
    changed("policies", to=["lru", "mru"], base=REPLAY),
    changed("policies", to=None, base=REPLAY),
    changed("allocator", to={"kind": "prefix"}, base=REPLAY),
    changed("figures", to=["waste"], base=REPLAY),
    changed("figures", to=["prefix_policies"]),
    changed("traces", to={}, base=REPLAY),
    changed("traces", "chat", to=5, base=REPLAY),
    changed("traces", "chat", "block_size", to=0, base=REPLAY),
    changed("traces", "chat", "workload", base=REPLAY),
    changed("traces", "chat", "workload", "arrivals", base=REPLAY),
    changed("traces", "chat", "workload", "kind", to="sharegbt", base=REPLAY),
    changed("traces", "a/b", to=REPLAY["traces"]["chat"], base=REPLAY),
    changed("capacity_tokens", to=[0], base=REPLAY),
]


@pytest.mark.parametrize("data", MISTAKES, ids=str)
def test_a_typical_mistake_is_refused_and_check_refuses_it_too(data, tmp_path):
    assert not is_valid(data)
    assert not check_accepts(data, tmp_path)


def paths(data, path=()):
    """The path of every value in nested data."""
    items = data.items() if isinstance(data, dict) else enumerate(data)
    for key, value in items:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from paths(value, (*path, key))


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 3),
    st.sampled_from([0.5, -0.5, 1.5, "", "x", "paged", "fixed", [], {}, [1], {"kind": "gamma"}]),
)


@settings(max_examples=150, deadline=None)
@given(
    base=st.sampled_from([BASE, INLINE, SHARING, MIX, ENGINE, REPLAY]),
    data=st.data(),
    how=st.sampled_from(["replace", "remove", "add"]),
    junk=JUNK,
)
def test_what_the_schema_refuses_check_refuses_too(tmp_path_factory, base, data, how, junk):
    path = data.draw(st.sampled_from(sorted(paths(base), key=str)))
    if how == "add":
        path = (*path[:-1], data.draw(st.sampled_from(["kind", "extra", "max", "sweep", "path"])))
    try:
        broken = changed(*path, to=... if how == "remove" else junk, base=base)
    except (KeyError, IndexError, TypeError):
        return  # a key in a list
    if not is_valid(broken):
        assert not check_accepts(broken, tmp_path_factory.getbasetemp())


def every_property(schema):
    """Each key of each mapping that the schema describes, with its own schema."""
    for name, one in [("experiment", schema), *schema["$defs"].items()]:
        if " " not in name:  # what must be there is said apart
            for key, value in one.get("properties", {}).items():
                yield f"{name}.{key}", value


def test_every_key_has_a_description_and_says_what_it_takes():
    for key, value in every_property(SCHEMA):
        assert value["description"], key
        assert value.keys() & {"type", "anyOf", "enum", "const", "$ref"}, key
