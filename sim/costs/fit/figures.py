"""A picture of each profile: bandwidth reached, what paging costs, the fit against its points."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes

from sim.costs import variants
from sim.costs.fit.calibrations import decode_rows
from sim.costs.fit.families import FAMILIES, Family, sizes_of
from sim.costs.fit.recipes import RECIPES
from sim.costs.fit.score import calibration_of
from sim.costs.fit.tables import FITTED, Table, TableError, read_table
from sim.costs.forms import Heads
from sim.costs.paging import PRESETS, paging_factor
from sim.costs.profile import Profile, load_profile, shipped
from sim.costs.variants import Variant
from sim.figures import style

SHOWN = Heads(32, 8, 128)  # Llama-3-8B's, which most tables have
BATCHES = (1, 8, 64, 256)
LOOP = (
    "Curves are calls in a loop, as measured: above the memory's peak KV comes from L2. "
    "A simulated step never reads faster than the peak."
)
Points = tuple[Variant, Table, Family]


def draw_profiles(folder: Path, names: Sequence[str], tables: Path) -> list[Path]:
    """Draw the profiles (all shipped ones if names is empty) as NAME.png; return the paths.

    Raises TableError for a folder that cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TableError(f"{folder}: cannot be written: {error.strerror}") from None
    paths = []
    with mpl.style.context(str(style.STYLE)):
        for name in names or shipped():
            profile = load_profile(name)
            paths.append(folder / f"{profile.name}.png")
            _draw(profile, tables, paths[-1])
    return paths


def _draw(profile: Profile, tables: Path, path: Path) -> None:
    figure, body = style.new_figure(3.6)
    left, middle, right = body.subplots(1, 3)
    points = decode_points(profile, tables)
    variant = points[0] if points else default_decode(profile)
    _bandwidth(left, variant, points)
    peak = profile.constant("peak_gb_s") / 1e3
    if peak:
        left.axhline(peak, color=style.NOTE_COLOR, lw=0.8, ls=":", label="memory's peak")
        left.set_ylim(0, max(left.get_ylim()[1], 1.08 * peak))
    _paging(middle, profile)
    _against(right, points)
    handles, labels = left.get_legend_handles_labels()
    style.legend(body, handles, labels, len(labels))
    style.head(figure, f"cost profile {profile.name}", f"decode attention of {variant.name}")
    kept = {kind: cell for kind, cell in variant.errors.items() if isinstance(cell, dict)}
    said = ", ".join(f"{cell['mape']:.1f} % {kind}" for kind, cell in kept.items())
    error = f"error on rows kept out {said}. " if said else ""
    is_warm = points is not None and variant.facts.get("l2") != "cold"
    notes = [*profile.notes, *([LOOP] if is_warm else [])]
    style.foot(figure, None, [f"{profile.kind}: {error}{profile.source}", *notes])
    figure.savefig(path, dpi=110)


def default_decode(profile: Profile) -> Variant:
    """The decode kernel of the default engine at 128 values a head in 16 bits, or its first."""
    own = [
        variant
        for name, variant in profile.kernels["decode"].items()
        if name.split()[0] == profile.defaults["kernel"]
    ]
    shown = [v for v in own if v.facts.get("head_dim") == 128 and v.facts.get("kv_dtype") == "bf16"]
    return min(shown or own, key=lambda v: v.misses_group(SHOWN.heads / SHOWN.kv_heads))


def decode_points(profile: Profile, tables: Path) -> Points | None:
    """The default decode kernel and the rows of its table; None without a table."""
    recipe = RECIPES.get(profile.name)
    variant = default_decode(profile)
    folder = calibration_of(profile, tables)
    if folder is not None:
        own, decode = decode_rows(profile, folder), FAMILIES[0]
        return variant, own.where((decode.names(own.rows) == variant.name).to_numpy()), decode
    for family in FAMILIES:
        if recipe is None or family.family != "decode" or family.table not in recipe.tables:
            continue
        table = read_table(tables, family.table)
        if table is not None:
            own = table.where((table.rows["gpu"] == recipe.gpu).to_numpy())
            own = own.where(family.chosen(own.rows))
            names = family.names(own.rows).to_numpy()
            return variant, own.where(names == variant.name), family
    return None


def _bandwidth(axes: Axes, variant: Variant, points: Points | None) -> None:
    """TB/s of KV against MB of KV a call: the fit by batch, and the rows of the same heads."""
    for i, batch in enumerate(BATCHES):
        length = 2.0 ** np.arange(1, 18, 0.125)
        mega = batch * length * SHOWN.token_bytes / 1e6
        at = (mega > 1) & (mega < 2e4)
        us = variants.decode_us(variant, SHOWN, np.full(at.sum(), float(batch)), length[at], True)
        axes.plot(mega[at], mega[at] / us, color=style.color_of(i), label=f"batch {batch}")
    if points is not None:
        _, table, family = points
        sizes = sizes_of(family, table.rows)
        own = (sizes["group"] == 4) & (sizes["kv_heads"] == 8) & (sizes["kv_mb"] > 1)
        rate = sizes["kv_mb"] / table.rows["us"].to_numpy(np.float64)
        for i, batch in enumerate(BATCHES):
            for is_kept, fill in ((False, "white"), (True, style.color_of(i))):
                at = own & (sizes["batch"] == batch) & ((table.kept != FITTED) == is_kept)
                (marks,) = axes.plot(sizes["kv_mb"][at], rate[at], "o", color=style.color_of(i))
                marks.set(markersize=3.5, markerfacecolor=fill, markeredgewidth=0.8)
    axes.set_xscale("log")
    style.count_axis(axes.xaxis)
    style.from_zero(axes)
    axes.set_xlabel("KV of a call (MB)")
    axes.set_ylabel("KV read (TB/s)")
    dots = "no measured calls" if points is None else "filled: kept out"
    axes.set_title(f"{SHOWN.heads}/{SHOWN.kv_heads} heads; {dots}", fontsize=8)


def _paging(axes: Axes, profile: Profile) -> None:
    """Factors on decode attention against block size: the profile's own, and the presets."""
    blocks = 2.0 ** np.arange(0, 9)
    mega = np.asarray(256.0)
    chosen = profile.defaults["paging"]
    grids = {name: preset.grids()["decode"] for name, preset in PRESETS.items()}
    if "decode" in profile.paging:
        grids = {"profile": profile.paging["decode"], **grids}
    for i, (name, grid) in enumerate(grids.items()):
        factor = [float(paging_factor(grid, int(block), mega)) for block in blocks]
        width = 2.4 if name == chosen else 0.9
        line = style.LINE_STYLES[i % len(style.LINE_STYLES)]
        label = f"{name} (used)" if name == chosen else name
        axes.plot(blocks, factor, line, color=style.color_of(i + 4), lw=width, label=label)
    axes.set_xscale("log", base=2)
    axes.set_xticks(blocks[::2], [f"{int(block)}" for block in blocks[::2]])
    axes.set_ylim(0.95, None)
    axes.set_xlabel("block size (tokens)")
    axes.set_ylabel("paged / contiguous")
    axes.legend(fontsize=6)
    axes.set_title("decode attention, 256 MB of KV", fontsize=8)


def _against(axes: Axes, points: Points | None) -> None:
    """Predicted against measured, of the rows kept out."""
    axes.set_xlabel("measured (us)")
    axes.set_ylabel("predicted / measured")
    if points is None:
        style.empty_note(axes, "no measured calls\nto compare with")
        axes.set_xticks([])
        axes.set_yticks([])
        return
    variant, table, family = points
    table = table.where(table.kept != FITTED)
    if not len(table.rows):
        style.empty_note(axes, "no rows kept out")
        return
    us = table.rows["us"].to_numpy(np.float64)
    ratio = family.predict(variant, table.rows) / us
    axes.plot(us, ratio, ".", ms=2, color=style.color_of(0), alpha=0.5)
    axes.axhline(1, color="black", lw=0.8)
    axes.set_xscale("log")
    style.count_axis(axes.xaxis)
    axes.set_ylim(0.5, 1.5)
    outside = int(((ratio < 0.5) | (ratio > 1.5)).sum())
    note = f", {outside} outside" if outside else ""
    axes.set_title(f"{len(us)} rows kept out{note}", fontsize=8)
