"""Ways in which a file of results can be damaged: functions of a path that change it there."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd

Damage = Callable[[Path], object]
HUGE = "9" * 400


def _half(path: Path, between: bytes = b"") -> None:
    data = path.read_bytes()
    rest = data[len(data) // 2 :] if between else b""
    path.write_bytes(data[: len(data) // 2] + between + rest)


def _folder(path: Path) -> None:
    path.unlink()
    (path / "x").mkdir(parents=True)


def _loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


# what becomes of any file
ANY: dict[str, Damage] = {
    "missing": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "truncated": _half,
    "not UTF-8": lambda path: _half(path, b"\xff\xfe\x80"),
    "null bytes": lambda path: _half(path, b"\0\0"),
    "a folder": _folder,
    "a loop of links": _loop,
    "of another kind": lambda path: path.write_text('"x"'),
    "nested without end": lambda path: path.write_text("[" * 100_000),
}
# what leaves a text what it is
HARMLESS: dict[str, Damage] = {
    "CRLF": lambda path: path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n")),
    "BOM": lambda path: path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes()),
}
VALUES: list[Any] = [None, 3, "../x", [1, None], {"a": 1}, float("nan"), [["x"]], "\ud800"]
CELLS = ["x", "inf", HUGE, "-5", "True"]


def of_json(path: Path) -> Iterator[tuple[str, Damage]]:
    """Each key left out, and each with a value of another kind, in turn."""
    data = json.loads(path.read_text(encoding="utf-8"))

    def written(changed: dict[str, Any]) -> Damage:
        return lambda path: path.write_text(json.dumps(changed))

    for number, key in enumerate(data):
        yield f"without {key}", written({k: v for k, v in data.items() if k != key})
        value = VALUES[number % len(VALUES)]
        yield f"{key} is {value!r}", written({**data, key: value})
    yield "an integer without end", lambda path: path.write_text('{"name": ' + "9" * 5000 + "}")


def of_csv(path: Path) -> Iterator[tuple[str, Damage]]:
    """Columns and rows more, fewer or twice, and cells that are none of their column."""
    head, *body = csv.reader(io.StringIO(path.read_text(encoding="utf-8"), newline=""))

    def written(*rows: list[str]) -> Damage:
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\n").writerows(rows)
        return lambda path: path.write_text(text.getvalue(), encoding="utf-8")

    def with_cell(column: int, value: str) -> Damage:
        return written(head, *([*row[:column], value, *row[column + 1 :]] for row in body))

    for number in range(0, len(head), 1 + len(head) // 12):
        value = CELLS[number % len(CELLS)]
        yield f"{head[number]} is {value[:9]}", with_cell(number, value)
    for place in (0, len(head) // 2):
        yield (
            f"without {head[place]}",
            written(*(row[:place] + row[place + 1 :] for row in (head, *body))),
        )
    yield "a column twice", written(*(row[:3] + row[2:] for row in (head, *body)))
    yield "an extra cell", written(head, *([*row, "1"] for row in body))
    yield "a short row", written(head, *body[:-1], body[-1][:-1])
    yield "no rows", written(head)
    yield "rows twice", written(head, *body, *body)
    yield "no header", written(*body)
    yield "an open quote", lambda path: path.write_text(path.read_text() + '"x\n')


def of_parquet(path: Path) -> Iterator[tuple[str, Damage]]:
    """Rows and columns that the run has not written."""
    table = pd.read_parquet(path)
    numbers = list(table.select_dtypes("number"))
    yield "foreign", lambda path: pd.DataFrame({"a": [1, 2]}).to_parquet(path)
    yield "NaN", lambda path: table.assign(**{numbers[0]: float("nan")}).to_parquet(path)
    yield "no rows", table.iloc[:0].to_parquet
    yield "as texts", lambda path: table.astype(str).to_parquet(path)
    yield "without a column", lambda path: table.drop(columns=numbers[:1]).to_parquet(path)


OF_KIND = {".json": of_json, ".csv": of_csv, ".parquet": of_parquet}


def damages_of(path: Path) -> dict[str, Damage]:
    """All damages of a file, by what they are called; harmless ones are not among them."""
    return {**ANY, **dict(OF_KIND[path.suffix](path))}
