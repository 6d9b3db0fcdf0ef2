"""The page of cost profiles: what each rests on, and its errors on rows kept out of the fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sim.costs.paging import PRESETS
from sim.costs.profile import FAMILIES, Profile, load_profile, shipped
from sim.costs.variants import Variant
from sim.reference.markdown import code, table, text

HEAD = ["kernel", "rows fitted", "kept out: rows", "error %", "closed form %", "range"]


def profiles_page() -> str:
    """Every profile that comes with the package, and what paging costs."""
    parts = [
        "# Cost profiles\n",
        "`cost: {kind: measured}` takes iteration times from the profile of the device. A profile "
        "is a file in `sim/costs/profiles`, made by `python -m sim.costs.fit`. Errors are mean "
        "absolute percentage errors on rows that were kept out of the fit; *random* rows are "
        "chosen by a hash of their sizes, others have something that no fitted row has. The closed "
        "form alone is what applies outside of the tables.\n",
    ]
    parts += [_profile(load_profile(name)) for name in shipped()]
    rows = [(code(name), text(preset.source)) for name, preset in PRESETS.items()]
    parts += ["## What paging costs a kernel\n", table(["cost.paging", "what it rests on"], rows)]
    return "\n".join(parts)


def _profile(profile: Profile) -> str:
    parts = [
        f"## {profile.name}\n",
        f"{text(profile.gpu)}, {profile.kind}. Source: {text(profile.source)}.\n",
        "\n".join(f"- {text(note)}" for note in profile.notes) + "\n" if profile.notes else "",
        table(
            ["set by default", "value"],
            [(code(key), code(value)) for key, value in profile.defaults.items()],
        ),
        table(
            ["constant", "value", "source"],
            [
                (code(name), f"{fact['value']:,g}", text(str(fact["source"])))
                for name, fact in profile.constants.items()
            ],
        ),
    ]
    for family in FAMILIES:
        variants = profile.kernels.get(family, {})
        if variants:
            parts += [f"### {profile.name}: {family}\n", _kernels(variants)]
    return "\n".join(part for part in parts if part)


def _kernels(variants: Mapping[str, Variant]) -> str:
    rows = []
    for name, variant in variants.items():
        kept = {key: cell for key, cell in variant.errors.items() if isinstance(cell, dict)}
        fitted = variant.errors.get("rows_fitted", "")
        fitted = f"{fitted:,}" if isinstance(fitted, int) else ""
        limits = "; ".join(
            f"{axis} {low:,g} to {high:,g}" for axis, (low, high) in variant.valid.items()
        )
        first = [code(name), fitted]
        for split, cell in kept.items() or [("", {})]:
            rows.append([*first, *_errors(split, cell), text(limits)])
            first, limits = ["", ""], ""
    return table(HEAD, rows)


def _errors(split: str, cell: Mapping[str, Any]) -> list[str]:
    if not cell:
        return ["none", "", ""]
    rows = f"{text(split)}: {cell['rows']:,}" if "rows" in cell else text(split)
    return [
        rows,
        *(f"{cell[key]:g}" if key in cell else "" for key in ("mape", "closed_form_mape")),
    ]
