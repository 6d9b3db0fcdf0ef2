"""How far an experiment is: a bar for people, lines of JSON for machines, on stderr; or nothing."""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

OnDone = Callable[[int, Mapping[str, Any]], None]  # how many have ended, and the last one's row

FORMS = ("bar", "json", "none")
WINDOW = 200  # the rate is that of so many runs that ended last: those found done end at once


@contextmanager
def showing(form: str, name: str, total: int) -> Iterator[OnDone]:
    """What is to be told of each run that has ended. form is one of FORMS."""
    if form == "json":
        yield _json_lines(total)
        return
    if form == "none":
        yield lambda done, row: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    console = Console(file=sys.stderr)
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task(name, total=total)
        yield lambda done, row: progress.update(task, completed=done)


def _json_lines(total: int) -> OnDone:
    """One line a run: run, status, done, total, rate (runs/s), left_s."""
    ends = deque([time.monotonic()], WINDOW)

    def on_done(done: int, row: Mapping[str, Any]) -> None:
        ends.append(time.monotonic())
        rate = (len(ends) - 1) / max(ends[-1] - ends[0], 1e-9)
        line = {"run": row["run"], "status": row["status"], "done": done, "total": total}
        line |= {"rate": float(f"{rate:.4g}"), "left_s": round((total - done) / rate, 1)}
        print(json.dumps(line, ensure_ascii=False), file=sys.stderr, flush=True)

    return on_done
