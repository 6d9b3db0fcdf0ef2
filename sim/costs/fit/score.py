"""How far the shipped profiles are from rows that they were not fitted to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.costs.fit.calibrations import is_calibration, score_off_grid
from sim.costs.fit.families import FAMILIES, Family, sizes_of
from sim.costs.fit.fitting import percent
from sim.costs.fit.launches import kernel_of
from sim.costs.fit.recipes import RECIPES
from sim.costs.fit.tables import FITTED, SIZES, Table, TableError, find_table, read_table
from sim.costs.forms import Floats
from sim.costs.profile import Profile, load_profile, shipped

CALIBRATIONS = Path(__file__).parents[3] / "kernels" / "calibrations"  # in a checkout

Scores = dict[str, dict[str, dict[str, Any]]]
Cells = list[tuple[str, Floats]]


def score(folder: Path, say: Callable[[str], None] = lambda line: None) -> Scores:
    """{profile: {table: {mape, rows, by_kind}}} over a folder of tables.

    Of a table that a profile was fitted to (the same SHA-256), and of one with a column `holdout`,
    the rows kept out are scored; of any other table all rows are. by_kind has mape and rows by how
    a row was kept out, by kernel, size and heads, and of the closed forms alone. A profile of our
    own measurements is scored on their section off_grid, of the folder or of kernels/calibrations.
    say hears of rows that no profile has a kernel for. Raises TableError if nothing is to score.
    """
    found: Scores = {}
    tables = {name: table for name in SIZES if (table := read_table(folder, name)) is not None}
    for name in shipped():
        own: dict[str, dict[str, Any]] = {}
        profile = load_profile(name)
        if name in RECIPES:
            own = score_profile(profile, tables)
        points = calibration_of(profile, folder)
        if points is not None:
            own = {"points": score_off_grid(profile, points)}
        if own:
            found[name] = own
    for table in tables.values():
        for line in unscored(table):
            say(f"{find_table(folder, table.name)}: {line}")
    if not found:
        missing = f"has no .csv or .csv.gz of {', '.join(SIZES)}"
        empty = f"no row of {', '.join(tables)} is kept out, and of a kernel that a profile has"
        raise TableError(f"{folder}: {empty if tables else missing}")
    return found


def unscored(table: Table) -> list[str]:
    """Rows of a table that no profile has a kernel for, in sentences by GPU and by kernel."""
    rows, lines = table.rows, []
    recipes = {name: own for name, own in RECIPES.items() if table.name in own.tables}
    gpus = {name: own.gpus.get(table.name, own.gpu) for name, own in recipes.items()}
    is_other = ~rows["gpu"].isin(list(gpus.values())).to_numpy()
    if is_other.any():
        own_gpus = ", ".join(sorted(set(rows["gpu"][is_other].astype(str))))
        lines.append(f"{is_other.sum():,} rows are not scored: no profile is of {own_gpus}")
    for name, gpu in gpus.items():
        own = table.where((rows["gpu"] == gpu).to_numpy())
        for kernel, count in _unknown_kernels(load_profile(name), own).items():
            lines.append(f"{count:,} rows are not scored: {name} has no kernel {kernel}")
    return lines


def _unknown_kernels(profile: Profile, table: Table) -> dict[str, int]:
    """How many rows are of kernels that the profile has not, by name."""
    found: dict[str, int] = {}
    for family in FAMILIES:
        if family.table == table.name:
            own = table.where(family.chosen(table.rows)).rows
            kernels = profile.kernels.get(family.family, profile.kernels["decode"])
            if len(own):
                counts = family.names(own).value_counts()
                found |= {str(k): int(count) for k, count in counts.items() if k not in kernels}
    return found


def calibration_of(profile: Profile, folder: Path) -> Path | None:
    """Where the points of a profile of our own measurements are: in folder, or in a checkout."""
    if profile.kind != "measured":
        return None
    for found in (folder, CALIBRATIONS / profile.name.removesuffix("-kvsim")):
        if is_calibration(found):
            return found
    return None


def score_profile(profile: Profile, tables: Mapping[str, Table]) -> dict[str, dict[str, Any]]:
    """The scores of one profile, by table."""
    recipe = RECIPES[profile.name]
    scores: dict[str, dict[str, Any]] = {}
    for name in recipe.tables:
        if name not in tables:
            continue
        table = tables[name]
        gpu = recipe.gpus.get(name, recipe.gpu)
        own = table.where((table.rows["gpu"] == gpu).to_numpy())
        cells = _table_cells(profile, scored(own, profile))
        if cells:
            scores[name] = _summary(cells)
    return scores


def scored(table: Table, profile: Profile) -> Table:
    """The rows to score; those of an unknown table without `holdout` are all kept out."""
    if "holdout" not in table.rows.columns and profile.data.get(table.name) != table.sha256:
        kinds = np.array(["not fitted to"] * len(table.rows), object)
        return Table(table.name, table.rows, kinds, table.sha256)
    return table.where(table.kept != FITTED)


def _table_cells(profile: Profile, table: Table) -> Cells:
    """Labels, "" among them for all rows, and the relative errors under each."""
    cells: Cells = []
    for family in FAMILIES:
        if family.table != table.name:
            continue
        own = table.where(family.chosen(table.rows))
        kernels = profile.kernels.get(family.family, profile.kernels["decode"])
        names = family.names(own.rows).to_numpy() if len(own.rows) else np.array([])
        for name in dict.fromkeys(names.tolist()):
            if name in kernels:
                cells += _kernel_cells(family, (name, profile), own.where(names == name))
    return cells


def _kernel_cells(family: Family, kernel: tuple[str, Profile], table: Table) -> Cells:
    name, profile = kernel
    variant = profile.kernels.get(family.family, profile.kernels["decode"])[name]
    us = table.rows[family.time].to_numpy(np.float64)
    errors = family.predict(variant, table.rows) / us - 1
    labels = dict.fromkeys((f"{family.family} {kernel_of(name)}", f"{family.family} {name}"))
    cells: Cells = [("", errors), *((label, errors) for label in labels)]
    if variant.grids and family.family in profile.kernels:
        plain = family.predict(replace(variant, grids=()), table.rows) / us - 1
        cells.append(("closed form alone", plain))
        cells += [(f"closed form alone, {label}", plain) for label in labels]
    for kind in sorted({str(kind) for kind in table.kept}):
        cells.append((kind, errors[table.kept == kind]))
    if family.table == "ragged_decode":
        has_prompt = table.rows["prefill_chunk"].to_numpy() > 0
        cells += [("with a prompt", errors[has_prompt]), ("decodes alone", errors[~has_prompt])]
    if family.table in {"decode_attention", "prefill_attention", "gemm"}:
        cells += [(what, errors[at]) for what, at in _kinds(family, table) if at.any()]
    return cells


def _kinds(family: Family, table: Table) -> Iterable[tuple[str, NDArray[np.bool_]]]:
    """Rows by size and by heads."""
    sizes = sizes_of(family, table.rows)
    if family.family == "linear":
        yield "n, k >= 1024", (sizes["n"] >= 1024) & (sizes["k"] >= 1024)
        yield "m <= 256", sizes["m"] <= 256
        yield "m > 256", sizes["m"] > 256
        return
    yield "one query head a KV head", sizes["group"] == 1
    yield "2 or 3 query heads a KV head", (sizes["group"] > 1) & (sizes["group"] < 4)
    yield "4 to 16 query heads a KV head", (sizes["group"] >= 4) & (sizes["group"] <= 16)
    yield "more than 16 query heads a KV head", sizes["group"] > 16
    if family.family == "decode":
        mega = sizes["kv_mb"]
        yield "KV below 64 MB", mega < 64
        yield "KV 64 to 512 MB", (mega >= 64) & (mega < 512)
        yield "KV from 512 MB", mega >= 512
    else:
        yield "prompts below 512", sizes["queries"] < 512
        yield "prompts from 512", sizes["queries"] >= 512


def _summary(cells: Cells) -> dict[str, Any]:
    by_label: dict[str, list[Floats]] = {}
    for label, errors in cells:
        by_label.setdefault(label, []).append(errors)
    found = {
        label: {"mape": percent(np.concatenate(parts)), "rows": sum(len(part) for part in parts)}
        for label, parts in by_label.items()
    }
    return {**found.pop(""), "by_kind": found}
