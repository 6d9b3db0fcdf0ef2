"""What the measured cost model is told: the model's shape, and the kernels nearest to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sim.config.plugins import guess
from sim.costs.measured_shape import Chosen, ModelShape
from sim.costs.paging import OWN_PAGING, PRESETS
from sim.costs.profile import Profile
from sim.costs.variants import Variant
from sim.hardware.types import KV_DTYPE_BYTES

KERNEL_DTYPES = {1: "fp8", 2: "bf16"}  # what kernels are called that read so many bytes a value


@dataclass(frozen=True)
class Given:
    """What the configuration says of the run: kernel and paging by name, the host, the link.

    kv_dtype is vLLM's name of the type of cached values, block_size None is contiguous memory.
    """

    kernel: str | None
    paging: str | None
    kv_dtype: str | None
    block_size: int | None
    host_us: float | None
    pcie_gb_s: float | None

    def __post_init__(self) -> None:
        if self.host_us is not None and not 0 <= self.host_us < 1e9:
            raise ValueError(f"host_us: must be at least 0 and below 1e9, got {self.host_us}")
        if self.block_size is not None and self.block_size < 1:
            raise ValueError(f"block_size: must be at least 1, got {self.block_size}")
        if self.pcie_gb_s is not None and not 0 < self.pcie_gb_s < 1e9:
            raise ValueError(f"pcie_gb_s: must be above 0 and below 1e9, got {self.pcie_gb_s}")
        if self.kv_dtype is not None and self.kv_dtype not in KV_DTYPE_BYTES:
            accepted = guess(self.kv_dtype, list(KV_DTYPE_BYTES))
            raise ValueError(f"kv_dtype: unknown value {self.kv_dtype!r}{accepted}")

    @property
    def kv_width(self) -> int:
        """Bytes of a cached value, as its type says."""
        return KV_DTYPE_BYTES[self.kv_dtype or "float16"]


def all_reduce(
    profile: Profile, size: int, links: tuple[float | None, float | None]
) -> tuple[float, float]:
    """Seconds of an all-reduce among so many GPUs, and seconds a byte: a ring over their link.

    Without NVLink (None, or 0) it is PCIe. Raises ValueError.
    """
    nvlink, pcie = links
    if nvlink is not None and not 0 <= nvlink < 1e9:
        raise ValueError(f"nvlink_gb_s: must be at least 0 and below 1e9, got {nvlink}")
    if size == 1:
        return 0.0, 0.0
    one_way = nvlink / 2 if nvlink else pcie
    if not one_way:
        raise ValueError(
            "nvlink_gb_s: is not known, nor is pcie_gb_s; tensor parallelism needs one"
        )
    rate = one_way * 1e9 * profile.constant("all_reduce_efficiency")
    return profile.constant("all_reduce_us") * 1e-6, 2 * (size - 1) / size / rate


def shape_of(
    known: Mapping[str, int],
    optional: tuple[int | None, int | None, int | None, int | None],
    all_reduce: tuple[float, float],
) -> ModelShape:
    """The shape; optional are active, experts', embeddings' parameters, and the vocabulary.

    Raises ValueError for counts that no model has.
    """
    active, experts, embedding, vocab = optional
    params = known["num_params"]
    active = params if active is None else active
    if experts is None:
        experts = params if active < params else 0
    embedding, vocab = embedding or 0, vocab or 0
    _check_counts(known, (active, experts, embedding, vocab))
    values = 2 * known["layers"] * known["kv_heads"] * known["head_dim"]
    return ModelShape(
        layers=known["layers"],
        hidden=known["hidden"],
        heads=known["heads"],
        kv_heads=known["kv_heads"],
        head_dim=known["head_dim"],
        kv_width=known["kv_bytes_per_token"] / values,
        weight_width=known["weights_bytes"] / params,
        num_params=params,
        num_active_params=active,
        num_expert_params=experts,
        num_embedding_params=embedding,
        vocab=vocab,
        all_reduce=all_reduce,
    )


def _check_counts(known: Mapping[str, int], counts: tuple[int, int, int, int]) -> None:
    """Raise ValueError, starting with the parameter at fault, if counts contradict each other."""
    (active, experts, embedding, vocab), params = counts, known["num_params"]
    heads, kv_heads = known["heads"], known["kv_heads"]
    if heads % kv_heads:
        raise ValueError(f"kv_heads: must divide the {heads} heads, got {kv_heads}")
    if not 0 < active <= params:
        raise ValueError(
            f"num_active_params: must be above 0 and at most num_params, {params}, got {active}"
        )
    if not params - active <= experts <= params:
        raise ValueError(
            f"num_expert_params: must be at least what a token passes by, {params - active}, "
            f"and at most num_params, {params}, got {experts}"
        )
    if not 0 <= embedding <= params:
        raise ValueError(
            f"num_embedding_params: must be at least 0 and at most num_params, {params}, "
            f"got {embedding}"
        )
    if not 0 <= vocab < 1e9:
        raise ValueError(f"vocab: must be at least 0 and below 1e9, got {vocab}")


def choose(profile: Profile, shape: ModelShape, given: Given, warnings: list[str]) -> Chosen:
    """The kernels of the profile that are nearest to the model; misfits are warned of.

    Raises ValueError for a kernel or a paging that there is not.
    """
    engine = profile.defaults["kernel"] if given.kernel is None else given.kernel
    if engine not in profile.engines():
        accepted = guess(engine, profile.engines())
        raise ValueError(f"kernel: {profile.name} has none of {engine!r}{accepted}")
    paging = profile.defaults["paging"] if given.paging is None else given.paging
    accepted_paging = [*PRESETS, *([OWN_PAGING] if profile.paging else [])]
    if paging not in accepted_paging:
        raise ValueError(f"paging: unknown value {paging!r}{guess(paging, accepted_paging)}")
    _warn_of_width(shape, given.kv_width, warnings)
    host_us = profile.constant("host_us") if given.host_us is None else given.host_us
    return Chosen(
        profile,
        decode=_attention((profile, "decode", engine), shape, given, warnings),
        prefill=_attention((profile, "prefill", engine), shape, given, warnings),
        linear=_linear(profile, engine, shape, warnings),
        mixed=next(iter(profile.kernels.get("mixed", {}).values()), None),
        paging=paging,
        block_size=given.block_size,
        host_us=host_us,
        pcie_gb_s=given.pcie_gb_s,
    )


def _warn_of_width(shape: ModelShape, width: int, warnings: list[str]) -> None:
    """Cached bytes that are not those of the heads; a latent is keys and values at once."""
    is_latent = shape.kv_heads == 1 and abs(2 * shape.kv_width / width - 1) < 0.02
    if abs(shape.kv_width / width - 1) >= 0.02 and not is_latent:
        warnings.append(
            f"kv_bytes_per_token is {shape.kv_width:.3g} bytes for each value of {shape.kv_heads} "
            f"KV heads of {shape.head_dim}, not {width}: are kv_heads and head_dim right?"
        )


def _linear(profile: Profile, engine: str, shape: ModelShape, warnings: list[str]) -> Variant:
    """The linears that are nearest in the width of weights, and of the engine if it has any."""
    width = "fp8" if shape.weight_width < 1.5 else "bf16"
    linears = profile.kernels["linear"]
    named = [name for name in linears if name.endswith(width)] or list(linears)
    own = [name for name in named if name.split()[0] == engine]
    linear = linears[(own or named)[0]]
    if abs(shape.weight_width - float(linear.facts.get("width", 2))) > 0.5:
        how = "fewer" if shape.weight_width < float(linear.facts.get("width", 2)) else "more"
        warnings.append(f"linears as {linear.name}, with {how} bytes of weights read")
    _warn_of_linears(linear, shape, warnings)
    if shape.num_expert_params:
        warnings.append("experts are computed like one dense linear")
    return linear


def _warn_of_linears(linear: Variant, shape: ModelShape, warnings: list[str]) -> None:
    """Linears of the model that are wider or narrower than those that were fitted to.

    By more than 1 %: the columns of an MLP are computed from parameters, norms among them.
    """
    for at, side in enumerate("nk"):
        low, high = linear.valid.get(side, (0.0, float("inf")))
        outside = {
            name: sizes[at]
            for name, sizes in shape.linears.items()
            if not 0.99 * low <= sizes[at] <= 1.01 * high
        }
        if outside:
            said = ", ".join(f"{size:,.0f} ({name})" for name, size in outside.items())
            warnings.append(f"linears were fitted at {side} {low:,.0f} to {high:,.0f}, not {said}")


def _attention(
    source: tuple[Profile, str, str], shape: ModelShape, given: Given, warnings: list[str]
) -> Variant:
    """The kernel nearest in KV type, then in head_dim, then in its groups.

    source: a profile, the family, and the engine whose kernels come first.
    """
    profile, family, engine = source
    kernels = profile.kernels[family]
    own = [v for name, v in kernels.items() if name.split()[0] == engine] or list(kernels.values())
    found = min(
        own,
        key=lambda v: (
            abs(_kernel_width(v) - given.kv_width),
            abs(int(v.facts.get("head_dim", 128)) - shape.head_dim),
            v.misses_group(shape.heads / shape.kv_heads),
        ),
    )
    for name, value in (
        ("head_dim", shape.head_dim),
        ("kv_heads", shape.kv_heads),
        ("group", shape.heads / shape.kv_heads),
    ):
        low, high = found.valid.get(name, (value, value))
        if not low <= value <= high:
            what = "query heads a KV head" if name == "group" else name
            warnings.append(
                f"{family} attention was fitted at {what} {low:g} to {high:g}, not {value:g}"
            )
    if _kernel_width(found) != given.kv_width:
        dtype = KERNEL_DTYPES.get(given.kv_width, given.kv_dtype)
        warnings.append(f"{family} attention as {found.name}: it has none with {dtype} KV")
    return found


def _kernel_width(variant: Variant) -> int:
    """Bytes of a value that the kernel reads."""
    return 1 if variant.facts.get("kv_dtype") == "fp8" else 2
