"""Presets, page sizes and reservations as probes read them."""

from __future__ import annotations

import pytest
import yaml

from sim.claims.probes import engines
from sim.claims.probes.results import Vacuous


def test_values_are_the_presets_own_or_facts_with_a_source() -> None:
    found = engines.engine_values(
        {
            "preset": ["vllm-0.19", "gpu_memory_utilization"],
            "nested": ["tensorrt-llm-no-evict", "allocator.block_size"],
        }
    )
    assert found == {"preset": 0.9, "nested": 32}
    read = engines.engine_values({"fact": "tgi-block-size-flashdecoding"})
    assert read == Vacuous({"fact": 256}, "read in the engine's source, not simulated: fact")
    with pytest.raises(KeyError):
        engines.engine_values({"x": ["vllm-0.19", "allocator.blocksize"]})
    with pytest.raises(KeyError):
        engines.engine_values({"x": "no-such-fact"})


def test_every_fact_says_where_it_was_read() -> None:
    facts = yaml.safe_load(engines.FACTS.read_text(encoding="utf-8"))
    for name, fact in facts.items():
        assert set(fact) - {"note"} == {"value", "repository", "commit", "path"}, name
        assert len(fact["commit"]) == 40, name


def test_block_sizes_follow_from_shapes_and_tensor_parallelism() -> None:
    found = engines.tensor_block_sizes(
        {
            "whole": {"preset": "llama-3-70b"},
            "quarter": {"preset": "llama-3-70b", "tensor_parallel_size": 4},
            "latent": {"preset": "deepseek-v3", "block_size": 64},
        }
    )
    assert found["whole"] == {"KiB": 32, "MiB": 5}
    assert found["quarter"] == {"KiB": 8, "MiB": 1.25}
    assert found["latent"] == {"KiB": 72, "MiB": 61 * 72 / 1024}


def test_sizes_and_ratios_of_given_shapes() -> None:
    shape = {"model_type": "llama", "hidden_size": 8192, "num_hidden_layers": 80}
    many = {"config": {**shape, "num_attention_heads": 64}}
    assert engines.kv_ratio(many, "llama-2-70b") == 8
    assert engines.kv_sizes(many, 2048) == {"mib": 2.5, "gib_2k": 5.0}
    assert engines.reservation_gb({"x": "llama-2-70b"}, 1000) == {"x": 0.32768}
    with pytest.raises(KeyError):
        engines.kv_ratio("llama-70b", "llama-2-70b")


@pytest.mark.parametrize(("max_len", "batch"), [(2048, 7), (1024, 15), (16384, 0)])
def test_a_batch_is_as_large_as_reservations_fit(max_len: int, batch: int) -> None:
    assert engines.largest_batch("fastertransformer", "opt-13b", 12, max_len) == batch


def test_only_reservations_of_max_tokens_without_holes_are_orcas() -> None:
    assert engines.reserves_max_tokens(seeds=2) == {"size": True, "admission": True}
    assert engines.reserves_max_tokens(compaction=False) == {"size": True, "admission": False}
    assert not engines.reserves_max_tokens("oracle", seeds=1)["size"]


def test_pages_hold_what_they_have_room_for() -> None:
    assert engines.accepted_page_sizes() == [64, 128, 256, 2048]
    assert engines.accepted_page_sizes(128) == [64, 128]
    found = engines.tokens_per_page({"one": "llama-3-8b", "more": "opt-13b"}, [64, 2048])
    assert found == {"one": {"64": 32, "2048": 1024}, "more": {"64": 6, "2048": 204}}


def test_pages_of_more_than_a_vector_are_not_of_one_size_with_tensors() -> None:
    whole = {"pages_are_vectors": True, "all_pages_are_of_use": True}
    assert engines.one_pool_for_tokens_and_ranks(seeds=2) == whole
    assert not engines.one_pool_for_tokens_and_ranks(16, seeds=1)["pages_are_vectors"]
