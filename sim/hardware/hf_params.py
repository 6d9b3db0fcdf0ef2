"""The number of parameters of a decoder, counted from its config.json.

A config.json gives the widths; which matrices have biases, how many norms a layer has and whether
the output shares the input's embedding is in the architecture's code. That part is the table
FORMS, by model_type. The counts are exact for the models in tests/test_hf_params.py.

Not counted: vision and audio towers, multi-token-prediction layers, and what quantization adds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sim.hardware.hf_keys import Keys, Shape


@dataclass(frozen=True)
class Form:
    """What an architecture's code adds to its config.json; the defaults are Llama's.

    is_gated: three matrices in the MLP, not two. norms: a layer. qk_norm: one norm of head_dim for
    queries and one for keys. positions: learned ones, so many more than the context is long.
    is_tied: the output shares the input's embedding, where tie_word_embeddings does not say.
    has_sinks: one learned value a head that the softmax may attend to.
    """

    is_gated: bool = True
    norms: int = 2
    norm_bias: bool = False
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    router_bias: bool = False
    head_bias: bool = False
    qk_norm: bool = False
    embedding_norm: bool = False
    has_sinks: bool = False
    positions: int | None = None
    is_tied: bool = False


_LLAMA = Form()
_GPT = Form(is_gated=False, norm_bias=True, qkv_bias=True, o_bias=True, mlp_bias=True, is_tied=True)

FORMS: dict[str, Form] = {
    **dict.fromkeys(("llama", "mistral", "mixtral", "phi3", "internlm2"), _LLAMA),
    **dict.fromkeys(("deepseek_v2", "deepseek_v3", "kimi_k2"), _LLAMA),
    **dict.fromkeys(("qwen2", "qwen2_moe"), replace(_LLAMA, qkv_bias=True)),
    **dict.fromkeys(("qwen3", "qwen3_moe"), replace(_LLAMA, qk_norm=True)),
    "gemma": replace(_LLAMA, is_tied=True),
    "gemma2": replace(_LLAMA, is_tied=True, norms=4),
    "gemma3_text": replace(_LLAMA, is_tied=True, norms=4, qk_norm=True),
    "gpt_oss": replace(
        _LLAMA, qkv_bias=True, o_bias=True, mlp_bias=True, router_bias=True, has_sinks=True
    ),
    "opt": replace(_GPT, positions=2),
    **dict.fromkeys(("gpt2", "gpt_bigcode"), replace(_GPT, positions=0)),
    "starcoder2": _GPT,
    "gpt_neox": replace(_GPT, is_tied=False),
    "gptj": replace(_GPT, norms=1, qkv_bias=False, o_bias=False, is_tied=False, head_bias=True),
    "phi": replace(_GPT, norms=1, is_tied=False, head_bias=True),
    "bloom": replace(_GPT, embedding_norm=True),
    "falcon": Form(is_gated=False, norm_bias=True, is_tied=True),
    "mpt": Form(is_gated=False, is_tied=True),
}


@dataclass(frozen=True)
class ParamCount:
    """Parameters: all of them, those that one token passes through, and where they are.

    embedding: input and output embeddings and positions, which stay unquantized. experts: experts
    among which tokens are routed, all of them.
    """

    total: int
    active: int
    embedding: int
    experts: int


def count_params(keys: Keys, shape: Shape) -> ParamCount:
    """Count the parameters of a decoder. Raises ValueError, with a sentence, for a missing key."""
    form = _form(keys)
    norm = shape.hidden * (2 if form.norm_bias else 1)
    outside = norm if keys.flag("do_layer_norm_before", True) else 0  # opt-350m has no last norm
    outside += norm if form.embedding_norm else 0
    layer = _attention(keys, shape, form) + form.norms * norm
    dense, sparse, routed, unused = _mlps(keys, shape, form)
    num_sparse = sum(_is_sparse(keys, i) for i in range(shape.layers)) if sparse else 0
    embedding = _embedding(keys, shape, form)
    total = embedding + outside + shape.layers * layer
    total += (shape.layers - num_sparse) * dense + num_sparse * sparse
    return ParamCount(total, total - num_sparse * unused, embedding, num_sparse * routed)


def _form(keys: Keys) -> Form:
    """The form of a model_type, with what its config.json says of it."""
    form = FORMS.get(keys.model_type, _LLAMA)
    bias = keys.get("attention_bias")
    if isinstance(bias, bool):
        form = replace(form, qkv_bias=bias, o_bias=bias)
    if isinstance(keys.get("mlp_bias"), bool):
        form = replace(form, mlp_bias=keys.flag("mlp_bias", False))
    if keys.flag("use_qk_norm", False):
        form = replace(form, qk_norm=True)
    if keys.model_type == "falcon":
        bias = keys.flag("bias", False)
        form = replace(form, qkv_bias=bias, o_bias=bias, mlp_bias=bias, norms=_falcon_norms(keys))
    return form


def _falcon_norms(keys: Keys) -> int:
    if keys.flag("new_decoder_architecture", False):
        return keys.count("num_ln_in_parallel_attn", default=2)
    return 1 if keys.flag("parallel_attn", True) else 2


def _embedding(keys: Keys, shape: Shape, form: Form) -> int:
    vocab = keys.count("vocab_size", "padded_vocab_size")
    width = keys.count("word_embed_proj_dim", default=shape.hidden)
    params = vocab * width
    if width != shape.hidden:
        params += 2 * width * shape.hidden  # projections in and out
    if not keys.flag("tie_word_embeddings", form.is_tied):
        params += vocab * width
    params += vocab if form.head_bias else 0
    if form.positions is not None:
        length = keys.count("max_position_embeddings", "n_positions", "n_ctx")
        params += (length + form.positions) * shape.hidden
    return params


def _attention(keys: Keys, shape: Shape, form: Form) -> int:
    """Parameters of one layer's attention."""
    if shape.latent_dim is not None:
        return _latent_attention(keys, shape)
    q, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    params = shape.hidden * (q + 2 * kv) + q * shape.hidden
    params += (q + 2 * kv) if form.qkv_bias else 0
    params += shape.hidden if form.o_bias else 0
    params += 2 * shape.head_dim if form.qk_norm else 0
    params += shape.heads if form.has_sinks else 0
    return params


def _latent_attention(keys: Keys, shape: Shape) -> int:
    """Multi-head latent attention: low-rank queries (if q_lora_rank), latent keys and values."""
    rank, rope = keys.count("kv_lora_rank"), keys.count("qk_rope_head_dim")
    nope, v_dim = keys.count("qk_nope_head_dim"), keys.count("v_head_dim")
    q_rank = keys.count("q_lora_rank", default=0)
    q = shape.heads * (nope + rope)
    params = shape.hidden * q_rank + q_rank + q_rank * q if q_rank else shape.hidden * q
    params += shape.hidden * (rank + rope) + rank + rank * shape.heads * (nope + v_dim)
    return params + shape.heads * v_dim * shape.hidden


def _mlp(width: int, shape: Shape, form: Form) -> int:
    matrices = 3 if form.is_gated else 2
    params = matrices * shape.hidden * width
    if form.mlp_bias:
        params += (matrices - 1) * width + shape.hidden
    return params


def _width(keys: Keys, shape: Shape, form: Form) -> int:
    ratio = keys.count("expansion_ratio", default=4)
    wide = None if form.is_gated else ratio * shape.hidden
    names = ("intermediate_size", "ffn_dim", "ffn_hidden_size", "n_inner")
    return keys.count(*names, default=wide)


def _mlps(keys: Keys, shape: Shape, form: Form) -> tuple[int, int, int, int]:
    """Parameters of a dense layer's MLP and of a sparse layer's.

    And of the latter those in routed experts, and in the experts that a token passes by.
    """
    experts = keys.count("num_local_experts", "num_experts", "n_routed_experts", default=0)
    if not experts:
        return _mlp(_width(keys, shape, form), shape, form), 0, 0, 0
    used = keys.count("num_experts_per_tok", "num_experts_per_token")
    width = keys.count("moe_intermediate_size", "intermediate_size")
    expert = _mlp(width, shape, form)
    router = shape.hidden * experts
    if form.router_bias or keys.get("topk_method") == "noaux_tc":
        router += experts
    shared = keys.count("n_shared_experts", default=0) * width
    shared_params = _mlp(shared, shape, form) if shared else 0
    own = keys.count("shared_expert_intermediate_size", default=0)
    if own:
        shared_params = _mlp(own, shape, form) + shape.hidden  # and a gate
    dense = _mlp(_width(keys, shape, form), shape, form)
    routed = experts * expert
    return dense, router + shared_params + routed, routed, (experts - used) * expert


def _is_sparse(keys: Keys, i: int) -> bool:
    """Whether layer i has experts, in a model that has some."""
    only_dense = keys.get("mlp_only_layers") or []
    if not isinstance(only_dense, list):
        raise ValueError(f"mlp_only_layers must be a list, got {str(only_dense)[:40]!r}")
    return (
        i >= keys.count("first_k_dense_replace", default=0)
        and i % max(1, keys.count("moe_layer_freq", default=1)) == 0
        and (i + 1) % max(1, keys.count("decoder_sparse_step", default=1)) == 0
        and i not in only_dense
    )
