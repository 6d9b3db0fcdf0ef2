"""A run of a plug-in that answers what is no answer says which one, without a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

import sim

SOURCES = """
from sim.parts import Workload
class Raises(Workload):
    kind = "raises"
    def load(self, seed):
        raise KeyError("a column")
class GivesNone(Workload):
    kind = "gives_none"
    def load(self, seed):
        return None
"""


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("Raises", "workload: raises: load fails: KeyError: 'a column'"),
        ("GivesNone", "workload: gives_none: load gives a NoneType; accepted: a Trace"),
    ],
)
def test_a_workload_that_gives_no_trace_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, sentence: str
) -> None:
    (tmp_path / f"odd_{name}.py").write_text(SOURCES)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(sim.ConfigError, match=sentence):
        sim.load(
            {
                "kv_cache": {"num_slots": 256},
                "workload": {"kind": f"odd_{name}:{name}"},
                "allocator": {"kind": "paged"},
            }
        )


@pytest.mark.parametrize("number", [-1, 2])
def test_a_router_that_names_no_replica_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    source = "from sim.parts import Router\nclass Astray(Router):\n    kind = 'astray'\n"
    source += f"    def route(self, request, replicas):\n        return {number}\n"
    (tmp_path / f"astray{number + 1}.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    requests = [{"prompt_tokens": 9, "output_tokens": 2}]
    results = sim.run(
        {
            "kv_cache": {"num_slots": 256},
            "workload": {"kind": "inline", "requests": requests},
            "allocator": {"kind": "paged"},
            "replicas": {"count": 2, "router": {"kind": f"astray{number + 1}:Astray"}},
        }
    )
    assert f"astray: route gives {number}; accepted: 0 to 1" in results.problems[0]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("errors = 5", r"errors: is 5; accepted: a tuple of lines"),
        ("notes = 'abc'", r"notes: is 'abc'; accepted: a tuple of lines"),
        ("from_hardware = {'x': 'nonsense'}", "which is no parameter of it"),
        ("from_hardware = {'seconds': 'nonsense'}", "seconds: unknown fact 'nonsense'; accepted"),
        ("from_hardware = {'seconds': 'model.nonsense'}", "unknown fact 'model.nonsense'"),
        ("from_hardware = 3", "from_hardware is 3; accepted"),
    ],
)
def test_what_a_cost_model_says_of_itself_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, sentence: str
) -> None:
    name = f"says_{abs(hash(line))}"
    source = (
        f"from sim.parts import CostModel\nclass Says(CostModel):\n    kind = 'says'\n    {line}\n"
    )
    source += "    def __init__(self, seconds: float | None = 0.1) -> None:\n        pass\n"
    source += "    def iteration_s(self, batch):\n        return 0.1\n"
    (tmp_path / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    requests = [{"prompt_tokens": 9, "output_tokens": 2}]
    with pytest.raises(sim.ConfigError, match=sentence):
        sim.load(
            {
                "kv_cache": {"num_slots": 256},
                "workload": {"kind": "inline", "requests": requests},
                "allocator": {"kind": "paged"},
                "cost": {"kind": f"{name}:Says"},
            }
        )
