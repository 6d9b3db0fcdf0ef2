"""What an experiment refuses beyond single keys: sweeps, twins, traces that lack something."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiment_files import HEAD, INLINE, PAGED, SHAREGPT, errors_of, load

SWEEP_ERRORS = {
    "x.yaml:10: sweep.allocator.block_size.0: 512: a block of 512 slots is larger than the pool "
    "of 256": "sweep:\n  allocator.block_size: [512]\n",
    "x.yaml:11: sweep.allocator.block_size.0: 0: must be at least 1 slot, got 0": (
        "sweep:\n  allocator.block_size:\n    - 0\n    - 8\n"
    ),
    "x.yaml:9: sweep.allocator.block_sizes: no allocator here has it, did you mean block_size; "
    "accepted: block_size, reserve_max_tokens, watermark": "sweep: {allocator.block_sizes: [8]}\n",
    "x.yaml:8: allocator.block_size: a block of 16 slots is larger than the pool of 8": (
        "sweep: {kv_cache.num_slots: [8]}\n"
    ),
    "x.yaml:9: sweep.scheduler.max_seqs.0: 3: unknown key, did you mean max_num_seqs; accepted: "
    "max_num_seqs, max_num_batched_tokens, enable_chunked_prefill": (
        "sweep: {scheduler.max_seqs: [3]}\n"
    ),
    "x.yaml:9: sweep.kv_cache.num_slots: must be a list of at least one value": (
        "sweep: {kv_cache.num_slots: []}\n"
    ),
    "x.yaml:9: sweep.max_model_len: has a value twice": "sweep: {max_model_len: [8, 8]}\n",
    "x.yaml:9: sweep.seeds: cannot be swept; accepted: engine, allocator, workload, scheduler, "
    "cost, replicas, kv_cache, max_model_len, model, device, gpu_memory_utilization, "
    "activation_bytes, non_torch_bytes, tensor_parallel_size, dtype, kv_cache_dtype, slo, zip, "
    "list, random, latin_hypercube": ("sweep: {seeds: [1, 2]}\n"),
    "x.yaml:9: sweep.allocator.kind: cannot be swept; accepted: a list of allocators": (
        "sweep: {allocator.kind: [paged]}\n"
    ),
    "x.yaml:9: sweep: must be a mapping like {allocator.block_size: [8, 16]}": "sweep: [1]\n",
    "x.yaml:9: sweep: makes more than 100,000 runs": (
        f"sweep: {{max_model_len: {list(range(1, 400))}, kv_cache.num_slots: "
        f"{list(range(1, 400))}}}\n"
    ),
}


@pytest.mark.parametrize("expected", SWEEP_ERRORS)
def test_an_error_of_a_sweep_names_key_line_and_value(tmp_path: Path, expected: str) -> None:
    lines = errors_of(
        tmp_path, HEAD + INLINE[: INLINE.rindex("    -")] + PAGED + SWEEP_ERRORS[expected]
    )
    assert lines == [expected]


def test_an_allocator_named_twice_is_refused(tmp_path: Path) -> None:
    text = HEAD + INLINE + "allocator:\n  - {kind: paged}\n  - {kind: paged, block_size: 16}\n"
    assert errors_of(tmp_path, text) == [
        "x.yaml:11: allocator.1: gives the same run as allocator.0"
    ]


def test_what_an_allocator_needs_the_trace_must_provide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kvsim_test_needy.py").write_text(
        "from sim.allocators.paged import Paged\n"
        "class Needy(Paged):\n"
        '    needs = frozenset({"prefix identity"})\n'
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    lines = errors_of(tmp_path, HEAD + INLINE + 'allocator: {kind: "kvsim_test_needy:Needy"}\n')
    assert len(lines) == 1
    assert lines[0].startswith(
        "x.yaml:9: allocator: kvsim_test_needy:Needy needs prefix identity of the trace; "
        "inline provides arrivals"
    )


def test_without_caching_the_prefix_allocator_needs_no_content(tmp_path: Path) -> None:
    caching = "allocator: {kind: prefix, enable_prefix_caching: "
    assert errors_of(tmp_path, HEAD + INLINE + caching + "true}\n") == [
        "x.yaml:9: allocator: prefix needs prefix identity of the trace; inline provides arrivals; "
        "or set enable_prefix_caching: false"
    ]
    assert len(load(tmp_path, HEAD + INLINE + caching + "false}\n").runs()) == 1


def test_a_reservation_of_max_tokens_is_fine_when_somebody_gives_them(tmp_path: Path) -> None:
    allocator = "allocator: {kind: contiguous, reservation: max_tokens}\n"
    for rule in ("output", "max_model_len", "9"):
        text = INLINE.replace("kind: inline", f"kind: inline\n  max_tokens: {rule}")
        assert len(load(tmp_path, HEAD + text + allocator).runs()) == 1


@pytest.mark.parametrize("sweep", ["", "sweep: {workload.arrivals.rate: [2]}\n"])
def test_a_figure_by_rate_needs_a_swept_rate_before_anything_runs(
    tmp_path: Path, sweep: str
) -> None:
    text = HEAD + PAGED + SHAREGPT + sweep + "figures: [waste, waste_vs_load]\n"
    (line,) = errors_of(tmp_path, text)
    assert line.endswith("figures.1: waste_vs_load needs a sweep of workload.arrivals.rate")
