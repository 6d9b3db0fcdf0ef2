"""What a cost profile's file may say: keys, types and ranges, checked before any of it is used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from sim.config.plugins import Strict, guess, validate
from sim.costs.paging import OWN_PAGING, PRESETS

SCHEMA = "kvsim-cost-profile/1"
LIMIT = 1e12  # no size, rate or time of these units reaches it
MAX_CELL = 20_000  # thousandths of a logarithm: a correction of e^20

Amount = Annotated[float, Field(ge=0, le=LIMIT)]
Share = Annotated[float, Field(ge=0, le=1)]
Above0 = Annotated[float, Field(gt=0, le=LIMIT)]
Power = Annotated[float, Field(ge=0.1, le=100)]
Count = Annotated[int, Field(ge=1, le=10**9)]
AxisCell = tuple[
    str,
    Annotated[float, Field(ge=-100, le=100)],
    Annotated[float, Field(gt=0, le=100)],
    Annotated[int, Field(ge=1, le=1000)],
]


class _Launched(Strict):
    a_us: Amount


class DecodeForm(_Launched):
    """sim.costs.forms.decode_us."""

    us_per_wave: Amount
    wave_power: Share = 1.0
    us_per_mb: Amount
    small_factor: Amount = 1.0
    small_lo_mb: Amount = 0.0
    small_hi_mb: Amount = 1.0
    split_us: Amount
    us_per_mq: Amount
    us_per_tile_mb: Amount = 0.0
    l2_saved: Share = 0.0
    l2_lo_mb: Amount = 0.0
    l2_hi_mb: Amount = 1.0
    p: Power
    tile_rows: Annotated[float, Field(ge=1, le=LIMIT)]
    sms: Above0

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        for low, high in (("small_lo_mb", "small_hi_mb"), ("l2_lo_mb", "l2_hi_mb")):
            if not getattr(self, low) < getattr(self, high):
                raise ValueError(f"{low} must be below {high}")
        return self


class PrefillForm(_Launched):
    """sim.costs.forms.prefill_us."""

    us_per_mflop: Amount
    lost_keys: Amount
    us_per_block: Amount
    us_per_wave: Amount
    us_per_mb: Amount
    p: Power
    sms: Above0


class MixedForm(_Launched):
    """sim.costs.forms.mixed_us."""

    us_per_mflop: Amount
    lost_keys: Amount
    us_per_mkey: Amount
    us_per_block: Amount
    us_per_wave: Amount
    p: Power
    sms: Above0


class LinearForm(_Launched):
    """sim.costs.forms.linear_us."""

    us_per_mflop: Amount
    us_per_mb: Amount
    p: Power


class SmallForm(_Launched):
    """sim.costs.variants.small_us."""

    us_per_mb: Amount


class Facts(Strict):
    """What a kernel was measured with."""

    kv_dtype: Literal["bf16", "fp8"] = "bf16"
    dtype: Literal["bf16", "fp8"] = "bf16"
    width: Annotated[float, Field(gt=0, le=8)] = 2.0
    head_dim: Count = 128
    page: Annotated[int, Field(ge=0, le=10**9)] = 16
    version: str = ""
    groups: tuple[Count, Count] = (1, 1)
    packs_heads: bool = True
    l2: Literal["cold", "warm"] = "warm"


class GridCells(Strict):
    """sim.costs.grid.Grid, a line of text a row of cells."""

    axes: Annotated[list[AxisCell], Field(min_length=1)]
    thousandths: list[str]

    @model_validator(mode="after")
    def _are_complete(self) -> Self:
        count = int(np.prod([axis[-1] for axis in self.axes]))
        cells = np.array(" ".join(self.thousandths).split(), np.float64)
        if len(cells) != count:
            raise ValueError(f"its axes have {count} nodes, its rows {len(cells)} cells")
        if not (np.abs(cells) <= MAX_CELL).all():  # a NaN is not, either
            raise ValueError(f"a cell is no number of -{MAX_CELL} to {MAX_CELL}")
        return self


class _Kernel(Strict):
    facts: Facts = Facts()
    errors: dict[str, Any] = Field(default_factory=dict)
    valid: dict[str, tuple[Amount, Amount]] = Field(default_factory=dict)
    grids: list[GridCells] = Field(default_factory=list)

    @model_validator(mode="after")
    def _ranges_in_order(self) -> Self:
        for name, (low, high) in self.valid.items():
            if low > high:
                raise ValueError(f"valid.{name} starts at {low:g}, above its end, {high:g}")
        return self


class DecodeKernel(_Kernel):
    form: DecodeForm


class PrefillKernel(_Kernel):
    form: PrefillForm


class MixedKernel(_Kernel):
    form: MixedForm


class LinearKernel(_Kernel):
    form: LinearForm


class SmallKernel(_Kernel):
    form: SmallForm


class Kernels(Strict):
    """Families of kernels; a step cannot do without the first three."""

    decode: Annotated[dict[str, DecodeKernel], Field(min_length=1)]
    prefill: Annotated[dict[str, PrefillKernel], Field(min_length=1)]
    linear: Annotated[dict[str, LinearKernel], Field(min_length=1)]
    mixed: dict[str, MixedKernel] = Field(default_factory=dict)
    small: dict[str, SmallKernel] = Field(default_factory=dict)


class Fact(Strict):
    """A number beside the kernels, and where it is from."""

    value: Amount
    source: str
    by_kib: list[tuple[Above0, Above0]] | None = None


class Constants(Strict):
    host_us: Fact
    graph_launch_us: Fact
    peak_gb_s: Fact
    all_reduce_us: Fact
    all_reduce_efficiency: Fact
    link_gb_s: Fact
    copy_us_per_mb: Fact | None = None
    link_rates: Fact | None = None


class Paging(Strict):
    """A profile's own factors; none, or both."""

    decode: GridCells | None = None
    prefill: GridCells | None = None


class Defaults(Strict):
    kernel: str
    paging: str


class ProfileFile(Strict):
    """A whole file."""

    schema_: Annotated[str, Field(alias="schema")]
    name: Annotated[str, Field(min_length=1)]
    gpu: str
    sms: Count
    kind: Literal["measured", "fitted", "analytic"]
    source: str
    data: dict[str, str]
    notes: list[str]
    defaults: Defaults
    constants: Constants
    paging: Paging
    kernels: Kernels


# the axes that a family's tables of corrections may have: sim.costs.variants
AXES = {
    "decode": ("batch", "kv_len", "kv_heads", "group", "tiles", "query_heads"),
    "prefill": ("chunks", "queries", "context", "kv_heads", "group", "tiles"),
    "mixed": (),
    "linear": ("m", "n", "k"),
    "small": ("mb",),
}
PAGING_AXES = ("block_size", "kv_mb")


def check_profile(data: object) -> None:
    """Raise ValueError with a sentence if data is no profile: the first mistake, by its path."""
    if not isinstance(data, Mapping):
        raise ValueError(f"it is no mapping; accepted: one with schema: {SCHEMA}")
    if data.get("schema") != SCHEMA:
        raise ValueError(f"schema is {data.get('schema')!r}; accepted: {SCHEMA}")
    mistakes: list[str] = []
    validate(
        ProfileFile,
        dict(data),
        (),
        lambda path, said: mistakes.append(f"{'.'.join(map(str, path))}: {said}"),
    )
    mistakes = mistakes or [*_bad_axes(data), *_bad_constants(data), *_bad_defaults(data)]
    if mistakes:
        more = f" (and {len(mistakes) - 1} more)" if len(mistakes) > 1 else ""
        raise ValueError(f"{mistakes[0]}{more}")


def _bad_axes(data: Mapping[str, Any]) -> list[str]:
    grids = [
        (f"kernels.{family}.{name}.grids.{number}", grid, AXES[family])
        for family, kernels in data["kernels"].items()
        for name, kernel in kernels.items()
        for number, grid in enumerate(kernel.get("grids", ()))
    ]
    grids += [(f"paging.{name}", grid, PAGING_AXES) for name, grid in data["paging"].items()]
    return [
        f"{where}: unknown axis {axis[0]!r}{guess(axis[0], list(accepted))}"
        for where, grid, accepted in grids
        for axis in grid["axes"]
        if axis[0] not in accepted
    ]


def _bad_constants(data: Mapping[str, Any]) -> list[str]:
    """Rates that times are divided by cannot be 0."""
    constants = data["constants"]
    mistakes = [
        f"constants.{name}.value: must be above 0"
        for name in ("all_reduce_efficiency", "link_gb_s")
        if constants[name]["value"] <= 0
    ]
    rates = constants.get("link_rates")
    if rates is not None and not rates.get("by_kib"):
        mistakes.append("constants.link_rates.by_kib: is required, pairs of KiB and GB/s")
    elif rates is not None and np.any(np.diff([kib for kib, _ in rates["by_kib"]]) <= 0):
        mistakes.append("constants.link_rates.by_kib: its sizes must rise")
    return mistakes


def _bad_defaults(data: Mapping[str, Any]) -> list[str]:
    mistakes, defaults, paging = [], data["defaults"], data["paging"]
    engines = list(dict.fromkeys(name.split(" ")[0] for name in data["kernels"]["decode"]))
    if defaults["kernel"] not in engines:
        said = f"no decode kernel is of {defaults['kernel']!r}"
        mistakes.append(f"defaults.kernel: {said}{guess(defaults['kernel'], engines)}")
    if paging and set(paging) != {"decode", "prefill"}:
        mistakes.append("paging: needs decode and prefill, or neither")
    accepted = [*PRESETS, *([OWN_PAGING] if paging else [])]
    if defaults["paging"] not in accepted:
        said = f"unknown value {defaults['paging']!r}"
        mistakes.append(f"defaults.paging: {said}{guess(defaults['paging'], accepted)}")
    return mistakes
