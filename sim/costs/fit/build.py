"""A whole profile: from a recipe and its tables, or from the two numbers of the paper."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from sim.costs.fit.families import FAMILIES
from sim.costs.fit.fitting import MIN_ROWS, fit_variants
from sim.costs.fit.recipes import (
    PAPER_SOURCE,
    RECIPES,
    STEP_BASE_US,
    STEP_KV_MB,
    STEP_SEQ_US,
    STEP_WEIGHTS_MB,
    Recipe,
    constants_of,
)
from sim.costs.fit.tables import Table, TableError, read_table
from sim.costs.paging import PRESETS
from sim.costs.profile import Profile
from sim.costs.variants import Variant

UNFITTED = ("ragged",)  # only scored


def build_profile(name: str, folder: Path, say: Callable[[str], None]) -> Profile:
    """Fit a shipped profile to the tables in folder. Raises TableError if one is missing."""
    recipe = RECIPES[name]
    kernels: dict[str, dict[str, Variant]] = {}
    digests: dict[str, str] = {}
    for table_name in recipe.tables:
        table = gpu_table(folder, table_name, recipe)
        digests[table_name] = table.sha256
        for family in FAMILIES:
            if family.table == table_name and family.family not in UNFITTED:
                found = fit_variants(family, table, recipe.sms)
                for variant in found.values():
                    say(f"{name}: {family.family} {variant.name}: {variant.errors}")
                kernels.setdefault(family.family, {}).update(found)
    for needed in ("decode", "prefill", "linear"):
        if not any(kernel.split()[0] == recipe.kernel for kernel in kernels.get(needed, ())):
            raise TableError(
                f"{folder}: too few rows of {recipe.gpu} to fit {needed} of {recipe.kernel} to: "
                f"at least {MIN_ROWS} that are not kept out are needed"
            )
    return Profile(
        name=name,
        gpu=recipe.gpu,
        sms=recipe.sms,
        kind="fitted",
        source=recipe.source,
        data=digests,
        defaults={"kernel": recipe.kernel, "paging": recipe.paging},
        kernels={family: variants for family, variants in kernels.items() if variants},
        constants=recipe.constants,
        notes=recipe.notes,
    )


def gpu_table(folder: Path, name: str, recipe: Recipe) -> Table:
    """The rows of a table that are of the recipe's GPU. Raises TableError without any."""
    table = read_table(folder, name)
    gpu = recipe.gpus.get(name, recipe.gpu)
    if table is None:
        raise TableError(f"{folder}: has no {name}.csv or {name}.csv.gz")
    found = table.where((table.rows["gpu"] == gpu).to_numpy())
    if not len(found.rows):
        raise TableError(f"{folder}: {name} has no row of {gpu}")
    return found


def paper_profile(a100: Profile) -> Profile:
    """The profile of the PagedAttention paper's stack: bandwidths from two step times.

    What only prompts need (FLOPs, tiles) is the A100-80's, whose kernels are newer.
    """
    constants: dict[str, dict[str, Any]] = constants_of(0.0, "in the weights' 27 ms", 0.0, 1555.0)
    return Profile(
        name="a100-40-2023",
        gpu="A100-SXM4-40GB",
        sms=108,
        kind="fitted",
        source=PAPER_SOURCE,
        data=dict(a100.data),
        defaults={"kernel": "vllm2023", "paging": "2023-kernel"},
        kernels=_paper_kernels(a100),
        constants=constants,
        notes=(
            f"Paging: {PRESETS['2023-kernel'].source}.",
            "The step times were measured with blocks of 16: contiguous memory is faster by that "
            "factor.",
            "FLOPs of linears and prompts are a100-80's, kernels of 2024 to 2026.",
        ),
    )


def _paper_kernels(a100: Profile) -> dict[str, dict[str, Variant]]:
    """Decode and linears at the paper's bandwidths, prompts by the A100-80's kernels."""
    zero = dict.fromkeys(("a_us", "us_per_wave", "split_us", "us_per_mq"), 0.0)
    form = {**zero, "us_per_mb": STEP_SEQ_US / STEP_KV_MB, "p": 1.0, "tile_rows": 1.0, "sms": 1e9}
    prefill = next(v for n, v in a100.kernels["prefill"].items() if n.startswith("vllm"))
    linear = next(v for n, v in a100.kernels["linear"].items() if n.startswith("vllm"))
    step = {**linear.form, "a_us": 0.0, "us_per_mb": STEP_BASE_US / STEP_WEIGHTS_MB, "p": 12.0}
    facts = {"kv_dtype": "bf16", "head_dim": 128, "page": 16}
    seen = {"batch": (8.0, 38.0), "head_dim": (128.0, 128.0), "group": (1.0, 1.0)}
    return {
        "decode": {"vllm2023 step": Variant("vllm2023 step", form, valid=seen, facts=facts)},
        "prefill": {
            "vllm2023 borrowed": Variant(
                "vllm2023 borrowed",
                prefill.form,
                valid={name: prefill.valid[name] for name in ("queries", "chunks", "context")},
                facts={"kv_dtype": "bf16", "head_dim": 128, "page": 0},
            )
        },
        "linear": {
            "vllm2023 bf16": Variant(
                "vllm2023 bf16", step, valid={}, facts={"dtype": "bf16", "width": 2}
            )
        },
    }
