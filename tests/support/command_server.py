"""Commands in processes of their own that need not import everything once more.

Reads one command a line (JSON: arguments, cwd, env, stdout, stderr) and forks for each: the child
is what `python -m sim.cli` would be, but for imports that are done. Writes the exit code of each.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any, NoReturn

# what most commands import sooner or later; importing starts no thread, which a fork would lose
WARM = (
    "sim.cli",
    "sim.executors.local",
    "sim.figures",
    "sim.runs.outcome",
    "sim.report",
    "sim.config.schema",
    "matplotlib.backends.backend_agg",
    "matplotlib.backends.backend_svg",
)


def become(command: dict[str, Any]) -> NoReturn:
    """Be that command: its folder, environment and streams, and its exit code."""
    os.chdir(command["cwd"])
    os.environ.clear()
    os.environ.update(command["env"])
    for name, number in (("stdout", 1), ("stderr", 2)):
        to = os.open(command[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(to, number)
        os.close(to)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.argv = ["kvsim", *command["arguments"]]
    sys.path[0] = command["cwd"]  # as `python -m` has it
    sys.exit(importlib.import_module("sim.cli").main(command["arguments"]))


def serve() -> None:
    """Until standard input ends."""
    for name in WARM:
        importlib.import_module(name)
    for line in sys.stdin:
        command = json.loads(line)
        child = os.fork()
        if child == 0:
            become(command)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    serve()
