"""What memory and time need to know of a model and of a GPU."""

from __future__ import annotations

from dataclasses import dataclass, replace

GIB = 1 << 30
MAX_MODEL_LEN = 1 << 26
DTYPE_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4}
KV_DTYPE_BYTES = {**DTYPE_BYTES, "fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1}


@dataclass(frozen=True)
class Model:
    """A model as one GPU holds it: on_one_gpu divides it over several.

    Divided are weights_bytes, all counts of parameters, vocab, heads, kv_heads and, with kv_heads,
    kv_bytes_per_token. max_len is in tokens; None stands for a number that nobody gave.
    num_active_params are those that one token passes through, num_expert_params those of all
    experts among which tokens are routed: 0 without any; num_embedding_params lie in input and
    output embeddings, of vocab entries. With latent attention kv_heads is 1 and head_dim the
    latent: what the kernels read. dtype is that of the weights as served,
    quantization how they are stored beyond that. warnings are sentences without their subject.
    """

    name: str
    kv_bytes_per_token: int
    max_len: int | None = None
    weights_bytes: int | None = None
    source: str = "given by the user"
    num_params: int | None = None
    num_active_params: int | None = None
    num_expert_params: int | None = None
    num_embedding_params: int | None = None
    vocab: int | None = None
    layers: int | None = None
    hidden: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    has_latent_kv: bool = False
    dtype: str = "float16"
    kv_dtype: str = "float16"
    quantization: str = ""
    tensor_parallel_size: int = 1
    warnings: tuple[str, ...] = ()
    why_no_weights: str = ""

    def __str__(self) -> str:
        parts = [f"{self.kv_bytes_per_token:,} KV bytes a token"]
        if self.weights_bytes is not None:
            parts.append(f"weights {self.weights_bytes / 1e9:.4g} GB")
        if self.max_len is not None:
            parts.append(f"max_len {self.max_len}")
        return ", ".join(parts)


@dataclass(frozen=True)
class Device:
    """A GPU: memory in bytes, bandwidth in 1e9 bytes/s, dense BF16 in 1e12 operations/s.

    nvlink_gb_s counts both directions together, pcie_gb_s one; None stands for not given.
    """

    name: str
    memory_bytes: int
    memory_source: str = "given by the user"
    memory_gb_s: float | None = None
    bf16_tflops: float | None = None
    nvlink_gb_s: float | None = None
    pcie_gb_s: float | None = None
    source: str = "given by the user"

    def __str__(self) -> str:
        parts = [f"{self.memory_bytes / GIB:.2f} GiB"]
        if self.memory_gb_s is not None:
            parts.append(f"{self.memory_gb_s:,} GB/s")
        if self.bf16_tflops is not None:
            parts.append(f"{self.bf16_tflops:g} TFLOPS")
        return ", ".join(parts)


def with_dtypes(model: Model, dtype: str, kv_cache_dtype: str) -> Model:
    """The model with its weights and its KV in other types; "auto" leaves them as they are.

    KV follows the weights unless it is said. Quantized weights keep their size. A model given by
    hand has its numbers at 16 bits.
    """
    weights = model.weights_bytes
    new = model.dtype if dtype == "auto" else dtype
    if weights is not None and not model.quantization:
        weights = weights * DTYPE_BYTES[new] // DTYPE_BYTES[model.dtype]
    kv = new if kv_cache_dtype == "auto" else kv_cache_dtype
    per_token = -(-model.kv_bytes_per_token * KV_DTYPE_BYTES[kv] // KV_DTYPE_BYTES[model.kv_dtype])
    return replace(
        model, dtype=new, kv_dtype=kv, kv_bytes_per_token=per_token, weights_bytes=weights
    )


def on_one_gpu(model: Model, tensor_parallel_size: int) -> Model:
    """The share of a model that each of several GPUs holds.

    Heads and weights are divided; KV heads too, or copied where there are more GPUs than them. A
    latent is copied to every GPU. (Engines also copy norms and, where there are more GPUs than KV
    heads, their projections: less than 1 % of the weights, not counted.)

    Raises ValueError, starting with the key at fault, if the heads cannot be divided.
    """
    size = tensor_parallel_size
    if size == 1:
        return model
    if model.heads is None:
        raise ValueError("model.heads: is needed to divide the model by tensor_parallel_size")
    kv_heads = model.heads if model.kv_heads is None else model.kv_heads
    whole = f"the {model.heads} attention heads of {model.name}"
    if model.heads % size:
        raise ValueError(f"tensor_parallel_size: {size} does not divide {whole}")
    if not model.has_latent_kv and kv_heads % size and size % kv_heads:
        raise ValueError(
            f"tensor_parallel_size: {size} neither divides the {kv_heads} KV heads of "
            f"{model.name} nor is a multiple of them"
        )
    own = 1 if model.has_latent_kv else max(1, kv_heads // size)
    return replace(
        model,
        kv_bytes_per_token=-(-model.kv_bytes_per_token * own // kv_heads),
        weights_bytes=_share(model.weights_bytes, size),
        num_params=_share(model.num_params, size),
        num_active_params=_share(model.num_active_params, size),
        num_expert_params=_share(model.num_expert_params, size),
        num_embedding_params=_share(model.num_embedding_params, size),
        vocab=_share(model.vocab, size),
        heads=model.heads // size,
        kv_heads=own,
        tensor_parallel_size=size,
    )


def _share(whole: int | None, size: int) -> int | None:
    return None if whole is None else -(-whole // size)
