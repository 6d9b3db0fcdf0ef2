"""Real clusters on loopback, started by their own command lines."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from command import ROOT

SCRIPTS = Path(sys.executable).parent
PATIENCE_S = 100
# how long Ray waits for the process that serves a client, s; 30 are few where all cores are busy
SLOW_MACHINE = {"RAY_CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S": "120"}


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and all that it has started."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(60)


class DaskOnLoopback:
    """A scheduler, and workers with one thread each. They start in a folder of their own.

    The path says where they import from, settings are Dask's, as environment variables.
    """

    def __init__(self, folder: Path, path: str, settings: Mapping[str, str]) -> None:
        self.folder, self.path, self.settings = folder, path, settings
        self.workers: list[subprocess.Popen[bytes]] = []
        listening = folder / "scheduler.json"
        options = ("--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--no-jupyter")
        self.scheduler = self._start("scheduler", *options, "--scheduler-file", str(listening))
        self.port = _port_in(listening)
        self.executor = f"dask://127.0.0.1:{self.port}"

    def add_worker(self, *options: str, path: str = "") -> subprocess.Popen[bytes]:
        address = f"tcp://127.0.0.1:{self.port}"
        more = ("--nthreads", "1", "--no-dashboard", *(options or ("--no-nanny",)))
        self.workers.append(self._start("worker", address, *more, path=path))
        return self.workers[-1]

    def _start(self, *command: str, path: str = "") -> subprocess.Popen[bytes]:
        with (self.folder / f"{command[0]}-{len(self.workers)}.log").open("wb") as log:
            return subprocess.Popen(
                [SCRIPTS / "dask", *command],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={**os.environ, **self.settings, "PYTHONPATH": path or self.path},
                start_new_session=True,
            )


class RayOnLoopback:
    """A head with as many CPUs as are asked for, and a small store. Its files are in the folder."""

    def __init__(self, folder: Path, path: str = str(ROOT), num_cpus: int = 2) -> None:
        port, client_port = free_port(), free_port()
        settings = {
            "--port": port,
            "--ray-client-server-port": client_port,
            "--num-cpus": num_cpus,
            "--object-store-memory": 100_000_000,
            "--include-dashboard": "false",
            "--min-worker-port": 0,  # any
            "--max-worker-port": 0,
            "--temp-dir": folder,
        }
        options = [str(item) for pair in settings.items() for item in pair]
        with (folder / "ray.log").open("wb") as log:
            self.process = subprocess.Popen(
                [SCRIPTS / "ray", "start", "--head", "--block", "--disable-usage-stats", *options],
                stdout=log,
                stderr=log,
                cwd=folder,
                env={**os.environ, **SLOW_MACHINE, "PYTHONPATH": path},
                start_new_session=True,
            )
        self.executor = f"ray://127.0.0.1:{client_port}"
        _wait_for(client_port)


@contextmanager
def ray_on_loopback(path: str = str(ROOT)) -> Iterator[RayOnLoopback]:
    # paths of sockets may have a hundred characters
    short = Path(tempfile.mkdtemp(prefix="ray-"))
    cluster = RayOnLoopback(short, path)
    try:
        yield cluster
    finally:
        started = _descendants(cluster.process.pid)  # some lead sessions of their own
        end(cluster.process)
        for process in started:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        shutil.rmtree(short, ignore_errors=True)


def _descendants(process: int) -> list[int]:
    found = psutil.Process(process).children(recursive=True)
    return [child.pid for child in found]


def _wait_for(port: int) -> None:
    """Wait until something listens."""
    for _ in range(10 * PATIENCE_S):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            time.sleep(0.1)
    raise TimeoutError(f"nothing listens at {port} after {PATIENCE_S} s")


def _port_in(file: Path) -> int:
    """The port that a scheduler has written, as soon as it has."""
    for _ in range(10 * PATIENCE_S):
        try:
            return int(json.loads(file.read_text())["address"].rpartition(":")[2])
        except (OSError, ValueError):
            time.sleep(0.1)
    raise TimeoutError(f"no scheduler after {PATIENCE_S} s")


@contextmanager
def dask_on_loopback(
    folder: Path, path: str = str(ROOT), **settings: str
) -> Iterator[DaskOnLoopback]:
    cluster = DaskOnLoopback(folder, path, settings)
    try:
        yield cluster
    finally:
        for process in [cluster.scheduler, *cluster.workers]:
            end(process)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
