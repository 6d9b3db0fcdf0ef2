"""Executors that cannot be used are one sentence and exit code 2, before anything runs."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest
from clusters import free_port

from command import SMALL
from sim.cli import main
from sim.executors import EXECUTORS, cluster


@pytest.fixture(autouse=True)
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "small.yaml").write_text(SMALL)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refusal(capsys: pytest.CaptureFixture[str], executor: str, *more: str) -> str:
    """What is on stderr: one line."""
    assert main(["run", "small.yaml", "--executor", executor, *more]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


@pytest.mark.parametrize("text", ["dsk://127.0.0.1:1", "dask", "local://", "local:1", ""])
def test_an_unknown_executor_is_refused(capsys: pytest.CaptureFixture[str], text: str) -> None:
    accepted = "accepted: local, dask://HOST:PORT, ray://HOST:PORT"
    assert refusal(capsys, text) == f"--executor: unknown executor {text!r}; {accepted}"


@pytest.mark.parametrize("scheme", ["dask", "ray"])
@pytest.mark.parametrize(
    "address", ["", "host", "host:", ":8786", "host:0", "host:99999", "host:x", "h:1/x", "a@h:1"]
)
def test_a_malformed_address_is_refused(
    capsys: pytest.CaptureFixture[str], scheme: str, address: str
) -> None:
    assert refusal(capsys, f"{scheme}://{address}") == (
        f"--executor: '{scheme}://{address}' is no address of a cluster; "
        f"accepted: {scheme}://HOST:PORT"
    )


@pytest.mark.parametrize(("scheme", "package"), [("dask", "distributed"), ("ray", "ray")])
def test_a_missing_extra_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, scheme: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, EXECUTORS[scheme][0], raising=False)
    assert refusal(capsys, f"{scheme}://127.0.0.1:1") == (
        f"--executor {scheme}://127.0.0.1:1: needs {package}: pip install 'kvsim[{scheme}]'"
    )


def test_jobs_are_of_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    line = refusal(capsys, "dask://127.0.0.1:1", "-j", "2")
    assert line == "-j is of this machine; how many runs go at a time, a cluster's workers say"


@pytest.mark.parametrize("scheme", ["dask", "ray"])
def test_an_address_at_which_nobody_listens_is_one_sentence(
    capsys: pytest.CaptureFixture[str], scheme: str, small: Path
) -> None:
    where = f"{scheme}://127.0.0.1:{free_port()}"
    assert refusal(capsys, where) == f"{where}: cannot be reached: Connection refused"
    assert not list(small.glob("results/small/runs/*"))


def test_who_listens_but_is_no_scheduler_is_one_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "REACH_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        where = f"dask://127.0.0.1:{silent.getsockname()[1]}"
        assert refusal(capsys, where) == f"{where}: is no Dask scheduler: timed out"
