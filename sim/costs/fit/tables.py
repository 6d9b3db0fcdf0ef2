"""Points to fit to: tables of measured times, and the rule that keeps rows of them out.

The rule was written down before anything was fitted, and looks at sizes only:

- random: a row is kept out if a hash of its sizes is 0 modulo 6;
- unseen heads (attention) or unseen shape (linears): all rows of a (heads, kv_heads, head_dim), or
  of an (n, k), are kept out if a hash of those is 0 modulo 10.

Rows of kernels/calibrations are kept out by their section instead: `off_grid` is for validation.
"""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sim.costs.fit.checking import first_mistake

RANDOM_ONE_IN = 6
UNSEEN_ONE_IN = 10
FITTED = ""  # the kind of a row that is not kept out

SIZES = {
    "decode_attention": ("heads", "kv_heads", "head_dim", "batch", "kv_len"),
    "prefill_attention": ("heads", "kv_heads", "head_dim", "batch", "prompt_len"),
    "gemm": ("m", "n", "k"),
    "layer_times": ("model", "tp", "layer", "tokens"),
    "mixed_batch_attention": ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode"),
    "ragged_decode": ("n_decode", "n_long", "kv_short", "kv_long", "prefill_chunk", "kv_prefill"),
}
SHAPES = {
    "decode_attention": ("heads", "kv_heads", "head_dim"),
    "prefill_attention": ("heads", "kv_heads", "head_dim"),
    "gemm": ("n", "k"),
}
_KERNEL = ("engine", "kernel", "version", "kv_dtype")
BESIDE = {  # other columns that are read; `us` is the time where none is named
    "decode_attention": (*_KERNEL, "us"),
    "prefill_attention": (*_KERNEL, "us"),
    "gemm": ("engine", "dtype", "us"),
    "ragged_decode": ("us_skewed", "us_uniform_mean"),
}
UNSEEN = {
    "decode_attention": "unseen heads",
    "prefill_attention": "unseen heads",
    "gemm": "unseen shape",
}
NOT_KEPT_OUT = frozenset({"", "0", "0.0", "false", "no", "none", "nan", "train", "fit"})


class TableError(Exception):
    """A table that cannot be read or is not what it should be: one sentence."""


@dataclass(frozen=True)
class Table:
    """Rows of one kind of point; kept[i] says how row i is kept out, empty if it is fitted to."""

    name: str
    rows: pd.DataFrame
    kept: NDArray[np.object_]
    sha256: str

    def where(self, chosen: NDArray[np.bool_]) -> Table:
        """The chosen rows."""
        rows = self.rows[chosen].reset_index(drop=True)
        return Table(self.name, rows, self.kept[chosen], self.sha256)


def find_table(folder: Path, name: str) -> Path | None:
    """The file of a table: NAME.csv or NAME.csv.gz; None if there is none.

    Raises TableError if there are both.
    """
    found = [path for end in (".csv.gz", ".csv") if (path := folder / f"{name}{end}").exists()]
    if len(found) > 1:
        raise TableError(f"{folder}: has both {found[0].name} and {found[1].name}; accepted: one")
    return found[0] if found else None


def read_table(folder: Path, name: str) -> Table | None:
    """Read a table; None if the folder has no such file. Raises TableError.

    Cells that are read are checked (sim.costs.fit.checking); empty lines are none. A column
    `holdout` replaces the rule: rows where it says anything but 0, no, false, train or nothing are
    kept out, and it names how.
    """
    path = find_table(folder, name)
    if path is None:
        return None
    needed = (*SIZES[name], "gpu", *BESIDE.get(name, ("us",)))
    try:
        rows = pd.read_csv(path, skip_blank_lines=False)  # so that rows know their lines
        header = pd.read_csv(path, header=None, nrows=1, dtype=str).iloc[0].tolist()
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    except (OSError, ValueError, EOFError, zlib.error) as error:
        said = " ".join(str(error).split())
        raise TableError(f"{path}: cannot be read: {said}") from None
    for column in needed:
        if header.count(column) != 1:
            how = "has no column" if column not in header else "has more than one column"
            raise TableError(f"{path}: {how} {column}; needed are {', '.join(needed)}")
    rows = rows.dropna(how="all")
    mistake = first_mistake(rows, needed)
    if mistake is not None:
        raise TableError(f"{path}, {mistake}")
    whole = [column for column in SIZES[name] if column not in {"model", "layer"}]
    rows = rows.astype(dict.fromkeys(whole, np.int64)).reset_index(drop=True)
    if "holdout" in rows.columns:
        kept = np.array([_kind(value) for value in rows["holdout"]], object)
    else:
        kept = kept_out(rows, name)
    return Table(name, rows, kept, digest)


def _kind(value: object) -> str:
    text = str(value).strip()
    if text.lower() in NOT_KEPT_OUT:
        return FITTED
    return "kept out" if text.lower() in {"1", "1.0", "true", "yes"} else text


def kept_out(rows: pd.DataFrame, name: str) -> NDArray[np.object_]:
    """How each row is kept out by the rule above; empty for those that are fitted to."""
    kinds = np.full(len(rows), FITTED, object)
    kinds[_hashes(rows, SIZES[name]) % RANDOM_ONE_IN == 0] = "random"
    if name in SHAPES:
        kinds[_hashes(rows, SHAPES[name]) % UNSEEN_ONE_IN == 0] = UNSEEN[name]
    return kinds


def _hashes(rows: pd.DataFrame, columns: tuple[str, ...]) -> NDArray[np.int64]:
    """A hash of the columns' values, the same everywhere: rows of equal sizes have equal ones."""
    texts = rows[columns[0]].astype(str)
    for column in columns[1:]:
        texts = texts + "," + rows[column].astype(str)
    codes, distinct = pd.factorize(texts)
    hashes = [
        int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "big")
        for text in distinct
    ]
    return np.array(hashes, np.int64)[codes] if len(codes) else np.zeros(0, np.int64)
