"""What engines set, and what follows from it for real models: presets, page sizes, reservations."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from sim.claims.probes.pools import Pool, histories, made, made_of
from sim.claims.probes.results import Vacuous
from sim.config.engine_presets import read_engine
from sim.hardware.by_name import GIB, MODELS, Model
from sim.hardware.hf_config import model_from_config
from sim.hardware.types import on_one_gpu
from sim.sequence import MAX_FINAL_TOKENS

FACTS = Path(__file__).with_name("engine_facts.yaml")
KIB, MIB = 1 << 10, 1 << 20
Given = str | Mapping[str, Any]


def engine_values(values: Mapping[str, Any]) -> dict[str, Any] | Vacuous:
    """What engines set: of each name the [preset, dotted key], or a fact of engine_facts.yaml.

    Vacuous with facts among them, which were read and which nothing here simulates.
    """
    found = {name: _engine_value(where) for name, where in values.items()}
    facts = [name for name, where in values.items() if isinstance(where, str)]
    if not facts:
        return found
    return Vacuous(found, f"read in the engine's source, not simulated: {', '.join(facts)}")


def _engine_value(where: str | list[str]) -> Any:
    if isinstance(where, str):
        return yaml.safe_load(FACTS.read_text(encoding="utf-8"))[where]["value"]
    name, path = where
    found: Any = read_engine(name, Path()).keys.model_dump()
    for key in path.split("."):
        found = found[key]
    return found


def model_of(given: Given) -> Model:
    """One GPU's share of a model: a preset's name, or {preset or config, tensor_parallel_size}.

    config has the keys of a config.json, bfloat16 unless it says otherwise. Raises KeyError or
    ValueError.
    """
    if isinstance(given, str):
        return MODELS[given]
    if "preset" in given:
        model = MODELS[given["preset"]]
    else:
        config = {"torch_dtype": "bfloat16", **given["config"]}
        model = model_from_config("given", config, "the claim")
    return on_one_gpu(model, given.get("tensor_parallel_size", 1))


def tensor_block_sizes(models: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """KiB of a block in one layer's tensor of keys or values, and MiB over all of them.

    A latent has one tensor a layer. block_size is 16 where a model does not say.
    """
    found = {}
    for name, given in models.items():
        model = model_of(given)
        assert model.layers is not None
        size = given.get("block_size", 16) * model.kv_bytes_per_token
        num_tensors = model.layers * (1 if model.has_latent_kv else 2)
        found[name] = {"KiB": size / num_tensors / KIB, "MiB": size / MIB}
    return found


def kv_ratio(more: Given, less: Given) -> float:
    """How many times the KV bytes of a token one model has of another."""
    return model_of(more).kv_bytes_per_token / model_of(less).kv_bytes_per_token


def kv_sizes(model: Given, tokens: int) -> dict[str, float]:
    """MiB of KV of one token, and GiB of tokens of them."""
    size = model_of(model).kv_bytes_per_token
    return {"mib": size / MIB, f"gib_{tokens // 1024}k": size * tokens / GIB}


def reservation_gb(models: Mapping[str, Given], tokens: int) -> dict[str, float]:
    """GB that one contiguous reservation of so many tokens takes, whatever is in it."""
    found = {}
    for name, given in models.items():
        pool = Pool(made("contiguous", reservation="max"), tokens, tokens)
        row = pool.enter(1)
        assert row is not None
        found[name] = pool.num_slots(row) * model_of(given).kv_bytes_per_token / 1e9
    return found


def largest_batch(engine: str, model: Given, kv_gib: float, max_len: int) -> int:
    """Requests that an engine's allocator holds at once in so much KV memory."""
    num_slots = int(kv_gib * GIB) // model_of(model).kv_bytes_per_token
    pool = Pool(made_of(read_engine(engine, Path()).keys.allocator), num_slots, max_len)
    while pool.enter(1) is not None:
        pass
    return len(pool.held)


def reserves_max_tokens(
    reservation: str = "max_tokens", compaction: bool = True, seeds: int = 5
) -> dict[str, bool]:
    """Whether reservations are prompt + max_tokens, and whether just what fits is admitted.

    What fits is said by slots alone: reserved + prompt + max_tokens ≤ slots (Orca's Algorithm 1,
    which knows no holes). Random requests come and go.
    """
    found = {"size": True, "admission": True}
    num_slots = max_len = 2048
    for rng, steps in histories(seeds, 300):
        allocator = made("contiguous", reservation=reservation, compaction=compaction)
        pool = Pool(allocator, num_slots, max_len)
        for _ in range(steps):
            if pool.held and rng.random() < 0.4:
                pool.leave(rng.choice(pool.held))
                continue
            prompt, output, extra = (rng.randint(1, 200) for _ in range(3))
            reserved = sum(pool.num_slots(row) for row in pool.held)
            row = pool.enter(prompt, output, output + extra)
            need = prompt + output + extra
            found["admission"] &= (row is not None) == (reserved + need <= num_slots)
            if row is not None:
                asked = pool.sequences.rows.item(row, MAX_FINAL_TOKENS)
                found["size"] &= asked == need == pool.num_slots(row)
    return found


def accepted_page_sizes(largest_kib: int = 4096) -> list[int]:
    """The powers of two of KiB, up to the largest, that vAttention's pages may have."""
    found, size = [], 1
    while size <= largest_kib:
        try:
            made("vattention", page_size_kib=size)
            found.append(size)
        except ValueError:
            pass
        size *= 2
    return found


def tokens_per_page(
    models: Mapping[str, Given], page_sizes_kib: list[int]
) -> dict[str, dict[str, int]]:
    """Tokens of one layer's keys that a page holds, by model and page size."""
    return {
        name: {str(size): _tokens_per_page(model_of(given), size) for size in page_sizes_kib}
        for name, given in models.items()
    }


def _tokens_per_page(model: Model, page_size_kib: int) -> int:
    """The block size that vAttention's allocator has when it is bound, and its smallest table."""
    allocator = made(
        "vattention",
        page_size_kib=page_size_kib,
        kv_bytes_per_token=model.kv_bytes_per_token,
        layers=model.layers,
    )
    pool = Pool(allocator, 1 << 16, 1 << 14)
    row = pool.enter(1)
    assert row is not None
    return pool.num_slots(row)


def one_pool_for_tokens_and_ranks(block_size: int = 1, seeds: int = 5) -> dict[str, bool]:
    """Whether tensors of any length, KV or adapter, take as many pages as they have vectors.

    S-LoRA's pages hold one hidden vector each: S of a sequence, R of an adapter of rank R, from
    one pool, of which every last page can be used.
    """
    found = {"pages_are_vectors": True, "all_pages_are_of_use": True}
    for rng, steps in histories(seeds, 300):
        pool = Pool(made("paged", block_size=block_size), 2000, 2000)
        for _ in range(steps):
            if pool.held and rng.random() < 0.45:
                pool.leave(rng.choice(pool.held))
                continue
            num_vectors = rng.choice([rng.randint(1, 600), rng.choice([8, 16, 32, 64])])
            free = pool.allocator.usage().free
            row = pool.enter(num_vectors)
            found["all_pages_are_of_use"] &= (row is not None) == (num_vectors <= free)
            if row is not None:
                found["pages_are_vectors"] &= pool.num_slots(row) == num_vectors
        pool.check()
    return found
