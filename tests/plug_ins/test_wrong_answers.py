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
