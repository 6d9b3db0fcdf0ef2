"""Experiments with replicas: what their files may say, and what their runs leave."""

from __future__ import annotations

import filecmp
import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from experiment_files import errors_of, load, write
from sim.config.experiment import load_experiment
from sim.config.yaml_nodes import ConfigError
from sim.executors import run_experiment
from sim.runs.runner import RunOptions

HEAD = "name: example\nkv_cache: {num_slots: 4000}\nmax_model_len: 2048\n"
CHAT = """\
workload:
  kind: synthetic
  num_requests: 400
  arrivals: {kind: poisson, rate: 20}
  prompt_tokens: {kind: lognormal, mean: 120, cv: 0.6, max: 600}
  output_tokens: {kind: lognormal, mean: 60, cv: 0.6, max: 200}
  prefix: [48]
  turns: {kind: chat, count: 4, think_s: {kind: exponential, mean_s: 2}}
"""
PREFIX = "allocator: {kind: prefix, block_size: 16}\nscheduler: {kind: vllm_v1, max_num_seqs: 24}\n"
ROUTERS = ("least_loaded", "prefix_aware", "round_robin", "session_affinity")
WHOLE = HEAD + CHAT + PREFIX


SUMMED = (
    "num_requests",
    "num_finished",
    "num_preemptions",
    "num_iterations",
    "num_queried_tokens",
    "num_hit_tokens",
    "num_hit_requests",
    "num_evicted_blocks",
    "num_queued_iterations",
    "num_running_mean",
    "num_waiting_mean",
    "throughput_req_s",
    "output_tokens_s",
    "num_blocks",
    "num_slots",
)


def replicas(count: int, router: str) -> str:
    return f"replicas: {{count: {count}, router: {{kind: {router}}}}}\n"


def run(folder: Path, text: str, **options: bool) -> tuple[dict[str, Any], Path]:
    """The summary row of the only run of an experiment, and its folder."""
    folder.mkdir(exist_ok=True)
    experiment = load(folder, text)
    (row,) = run_experiment(experiment, folder, RunOptions(**options))
    return row, folder / "runs" / row["run"]


ERRORS = {
    "replicas: {count: 0}": "replicas.count: must be at least 1, got 0",
    "replicas: {count: two}": "replicas.count: must be a whole number, got 'two'",
    "replicas: {router: {kind: round_robin}}": "replicas.count: is required",
    "replicas: 3": "replicas: must be a mapping, got 3",
    "replicas: {count: 2, ruoter: null}": (
        "replicas.ruoter: unknown key, did you mean router; accepted: count, router"
    ),
    "replicas: {count: 2, router: {kind: prefix_awere}}": (
        "replicas.router.kind: unknown kind 'prefix_awere', did you mean prefix_aware; accepted: "
        "least_loaded, prefix_aware, round_robin, session_affinity, or module:Class"
    ),
    "replicas: {count: 2, router: round_robin}": (
        "replicas.router: must be a mapping like {kind: least_loaded}, got 'round_robin'"
    ),
    "replicas: {count: 2, router: {kind: prefix_aware, cache_threshold: 2}}": (
        "replicas.router.cache_threshold: must be from 0 to 1, got 2.0"
    ),
    "replicas: {count: 2, router: {kind: prefix_aware, balance_rel_threshold: 0.5}}": (
        "replicas.router.balance_rel_threshold: must be at least 1, got 0.5"
    ),
}


@pytest.mark.parametrize("text", ERRORS)
def test_a_mistake_in_replicas_is_one_sentence_at_its_key(tmp_path: Path, text: str) -> None:
    line = (WHOLE + text).count("\n") + 1
    assert errors_of(tmp_path, WHOLE + text + "\n") == [f"x.yaml:{line}: {ERRORS[text]}"]


def test_a_router_asks_for_what_trace_and_memory_have(tmp_path: Path) -> None:
    plain = CHAT.partition("  turns")[0]
    paged = "allocator: {kind: paged}\n"
    assert errors_of(tmp_path, HEAD + plain + PREFIX + replicas(2, "session_affinity")) == [
        "x.yaml:13: replicas.router: session_affinity needs sessions of the trace; "
        "synthetic provides arrivals, output identity, prefix identity"
    ]
    assert errors_of(tmp_path, HEAD + plain + paged + replicas(2, "prefix_aware")) == [
        "x.yaml:12: replicas.router: prefix_aware asks replicas for prefixes, "
        "which paged does not cache"
    ]


def test_a_figure_of_one_pool_is_refused(tmp_path: Path) -> None:
    text = WHOLE + replicas(2, "round_robin") + "figures: [waste, pool_map]\n"
    assert errors_of(tmp_path, text) == [
        "x.yaml:15: figures.1: pool_map shows one pool, and replicas have one each"
    ]


def test_replicas_can_be_swept_whole_and_by_key(tmp_path: Path) -> None:
    sweep = "sweep:\n  replicas: [null, {count: 3}]\n"
    whole = load(tmp_path, WHOLE + sweep).runs()
    assert [spec.config.get("replicas") for spec in whole] == [
        None,
        {"count": 3, "router": {"kind": "round_robin"}},
    ]
    keys = "sweep: {replicas.count: [1, 2], replicas.router.kind: [least_loaded, round_robin]}\n"
    assert len(load(tmp_path, WHOLE + keys).runs()) == 4


def test_a_file_without_replicas_is_resolved_as_it_was(tmp_path: Path) -> None:
    experiment = load(tmp_path, WHOLE)
    assert "replicas" not in experiment.config
    assert "replicas" not in experiment.runs()[0].config


def test_a_router_of_somebody_else_is_used_by_module_and_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = """\
from sim.routers import Router
class Last(Router):
    kind = "last"
    def route(self, request, replicas):
        return len(replicas) - 1
"""
    (tmp_path / "kvsim_test_router.py").write_text(module)
    monkeypatch.syspath_prepend(str(tmp_path))
    text = WHOLE + replicas(3, '"kvsim_test_router:Last"')
    keys = [spec.key("code", "trace") for spec in load_experiment(write(tmp_path, text)).runs()]
    row, folder = run(tmp_path, text)
    assert row["router"] == "kvsim_test_router:Last"
    assert pd.read_csv(folder / "replicas.csv")["num_requests"].tolist() == [0, 0, 400]
    (tmp_path / "kvsim_test_router.py").write_text(module + "# changed\n")
    with pytest.raises(ConfigError, match="has changed in its file since it was imported"):
        load_experiment(write(tmp_path, text))
    importlib.reload(sys.modules["kvsim_test_router"])
    again = [spec.key("code", "trace") for spec in load_experiment(write(tmp_path, text)).runs()]
    assert keys != again


@pytest.mark.parametrize("router", ROUTERS)
def test_one_replica_leaves_the_files_of_none(tmp_path: Path, router: str) -> None:
    alone, its_folder = run(tmp_path / "alone", WHOLE)
    one, folder = run(tmp_path / "one", WHOLE + replicas(1, router))
    more = {"num_replicas": 1, "router": router}
    assert json.dumps(one) == json.dumps(alone | more)
    for name in ("requests.parquet", "timeline.parquet"):
        assert filecmp.cmp(folder / name, its_folder / name, shallow=False), name
    assert not (its_folder / "replicas.csv").exists()


@pytest.mark.parametrize("router", ROUTERS)
def test_checks_and_single_steps_change_no_byte(tmp_path: Path, router: str) -> None:
    text = WHOLE + replicas(3, router)
    _, folder = run(tmp_path / "plain", text)
    for name in ("check", "single_step"):
        _, other = run(tmp_path / name, text, **{name: True})
        for file in ("summary.json", "requests.parquet", "timeline.parquet", "replicas.csv"):
            assert filecmp.cmp(folder / file, other / file, shallow=False), (name, file)


def test_the_summary_adds_what_the_replicas_say(tmp_path: Path) -> None:
    row, folder = run(tmp_path, WHOLE + replicas(3, "least_loaded"))
    table = pd.read_csv(folder / "replicas.csv")
    assert row["num_slots"] == 3 * 4000
    assert row["status"] == "finished"
    assert row["num_preemptions"] > 0
    for name in SUMMED:
        assert table[name].sum() == pytest.approx(row[name]), name
    assert row["hit_rate"] == row["num_hit_tokens"] / row["num_queried_tokens"]
    for name in ("token_states_frac", "cached_frac", "free_frac", "external_frac"):
        assert table[name].mean() == pytest.approx(row[name]), name  # pools are of one size
    assert (
        table["num_running_max"].max() <= row["num_running_max"] <= table["num_running_max"].sum()
    )
    requests = pd.read_parquet(folder / "requests.parquet")
    assert (
        requests["replica"].value_counts().sort_index().tolist() == table["num_requests"].tolist()
    )


def test_turns_that_stay_on_a_replica_find_what_others_lose(tmp_path: Path) -> None:
    found = {}
    for router in ROUTERS:
        row, folder = run(tmp_path / router, WHOLE + replicas(4, router))
        found[router] = row["hit_rate"]
        assert (pd.read_csv(folder / "replicas.csv")["num_requests"] > 60).all()
    assert found["session_affinity"] > 1.2 * found["round_robin"]
    assert found["prefix_aware"] > 1.2 * found["round_robin"]
