"""What the measured cost model knows of a run: the model's shape on one GPU, and its kernels."""

from __future__ import annotations

from dataclasses import dataclass

from sim.costs.forms import Heads
from sim.costs.profile import Profile
from sim.costs.variants import Variant


@dataclass(frozen=True)
class ModelShape:
    """What one GPU computes: its share of a model. Parameters are counts, all_reduce as below.

    kv_width: bytes of a cached value. weight_width: bytes of a parameter. num_expert_params lie in
    experts, of which a token passes through num_active_params less all others.
    all_reduce: seconds of one, and seconds a byte; zeros on one GPU.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    kv_width: float
    weight_width: float
    num_params: int
    num_active_params: int
    num_expert_params: int
    num_embedding_params: int
    vocab: int
    all_reduce: tuple[float, float] = (0.0, 0.0)

    @property
    def attention(self) -> Heads:
        """Its heads, as the forms take them."""
        return Heads(self.heads, self.kv_heads, self.head_dim, self.kv_width)

    @property
    def projected(self) -> tuple[float, float]:
        """Values of a token that a layer projects to queries, keys and values, and to queries.

        Latent attention has fewer parameters than its heads, as the kernels see them, imply: there
        both are less, so that projections are all parameters outside of experts and embeddings.
        """
        query, key = self.heads * self.head_dim, 2 * self.kv_heads * self.head_dim
        outside = self.num_params - self.num_expert_params - self.num_embedding_params
        share = max(0.0, outside / self.layers) / (self.hidden * (2 * query + key))
        return min(1.0, share) * (query + key), min(1.0, share) * query

    @property
    def projection_params(self) -> float:
        """Parameters of a layer's projections, into attention and out of it."""
        return self.hidden * sum(self.projected)

    @property
    def inner(self) -> float:
        """Columns of a gated MLP that a layer's other parameters make: a third of them each."""
        own = self.num_active_params - self.num_embedding_params
        return max(0.0, own / self.layers - self.projection_params) / (3 * self.hidden)

    @property
    def linears(self) -> dict[str, tuple[float, float]]:
        """n and k of out[m, n] = x[m, k] w[n, k]^T, by what it is; without those of experts."""
        into, out = self.projected
        found = {}
        if out > 0:  # else nothing is known of them: they are counted among the experts
            found["qkv"] = (into, float(self.hidden))
            found["attention output"] = (float(self.hidden), out)
        if not self.num_expert_params and self.inner > 0:
            found["gate and up"] = (2 * self.inner, float(self.hidden))
            found["down"] = (float(self.hidden), self.inner)
        if self.vocab:
            found["output layer"] = (float(self.vocab), float(self.hidden))
        return found


@dataclass(frozen=True)
class Chosen:
    """The kernels of a profile that a run uses, and what else of the run they depend on.

    paging names the factors of paging, block_size None is contiguous memory, pcie_gb_s the link
    to the host, one way; the profile's if it is None.
    """

    profile: Profile
    decode: Variant
    prefill: Variant
    linear: Variant
    mixed: Variant | None
    paging: str
    block_size: int | None
    host_us: float
    pcie_gb_s: float | None = None
