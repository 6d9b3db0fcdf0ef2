"""Probes of sizes, small figures, histories and preemption find what is there, and can fail."""

from __future__ import annotations

from typing import Any

import pytest

from sim.allocators.contiguous import Contiguous
from sim.allocators.paged import Paged
from sim.allocators.paged_cow import PagedCow
from sim.claims.probes import allocation, geometry, histories, lengths, preemption
from sim.claims.probes.results import Seeds, Vacuous
from sim.schedulers.swapping import SwappingScheduler
from sim.sequence import IntArray


def test_sizes_follow_from_the_model() -> None:
    assert geometry.kv_bytes_per_token("opt-13b") == 2 * 40 * 5120 * 2
    assert geometry.kv_of_sequence("opt-13b", 2048) == {"GB": 1.6777216, "GiB": 1.5625}
    assert geometry.kv_of_sequence("llama-2-70b", 2048, ("GB",)) == {"GB": 0.67108864}
    assert geometry.kv_slots("opt-13b", 12) == 983 * 16
    assert geometry.kv_slots("opt-66b", 12) == 341 * 16
    assert geometry.budget_slots("opt-13b", "a100-40gb") == 15090
    assert geometry.budget_slots("opt-13b", "a100-80gb") > 3 * 15090
    found = geometry.requests_of_max_length("opt-13b", [40, 80], 2048)
    assert found == {"40 GiB": 25, "80 GiB": 51}
    assert geometry.requests_of_max_length("opt-13b", [40], 1024) == {"40 GiB": 51}


def test_a_layout_depends_on_the_gpu_and_the_unit() -> None:
    here = geometry.memory_layout("opt-13b", "a100-40gb")
    assert here["weights_frac"] == pytest.approx(0.608, abs=1e-3)
    assert geometry.memory_layout("opt-13b", "a100-80gb")["weights_frac"] < 0.31
    assert geometry.memory_layout("opt-13b", "a100-40gb", total_gb=40)["weights_frac"] > 0.64
    row = {"opt-13b": {"total_gib": 40.0, "kv_gib": 12.0}}
    assert geometry.weights_and_kv_frac(row)["opt-13b"] == pytest.approx(0.8985, abs=1e-4)
    assert geometry.weights_and_kv_frac(row, mixed_units=True)["opt-13b"] > 0.94


def test_unknown_names_are_named() -> None:
    with pytest.raises(ValueError, match="unknown model 'opt-14b'"):
        geometry.kv_bytes_per_token("opt-14b")
    with pytest.raises(ValueError, match="unknown device 'a101'"):
        geometry.memory_layout("opt-13b", "a101")
    with pytest.raises(ValueError, match="unknown allocator 'heap'"):
        histories.unusable_free_slots("heap")
    with pytest.raises(ValueError, match="unknown load 'none'"):
        preemption.most_swapped(["none"])


def test_a_reservation_counts_what_is_written_reserved_and_never_used() -> None:
    found = allocation.reservation(chunk=2048, prompt=7, generated=1, future=2)
    assert found == {"used": 8, "reserved": 2, "internal": 2038}
    found = allocation.reservation(chunk=64, prompt=7, generated=3, future=0)
    assert found == {"used": 10, "reserved": 0, "internal": 54}


def test_blocks_are_taken_when_a_token_needs_one() -> None:
    assert allocation.blocks_after(7, 4, 2) == {"blocks_after": [2, 2, 3]}
    assert allocation.blocks_after(8, 4, 2) == {"blocks_after": [2, 3, 3]}


@pytest.mark.parametrize("n", [2, 3, 6])
@pytest.mark.parametrize("prompt", [1, 7, 8, 9])
def test_of_n_samples_all_but_one_copy_a_partial_block(n: int, prompt: int) -> None:
    found = allocation.samples(n, prompt, 4)
    assert found["block_copies"] == (n - 1 if prompt % 4 else 0)
    assert found["final_blocks"] == prompt // 4 + n


def test_beams_free_what_only_the_dead_held() -> None:
    parents = [[0, 0, 0, 0], [0, 1, 0, 0], [0, 1, 0, 0], [2, 3, 2, 3]]
    expected = {"freed": 4, "allocated": 4, "shared_by_all": 3}
    assert allocation.beam_step(4, parents) == expected
    assert allocation.beam_step(4, parents, block_size=4) == expected
    nobody_dies = [*parents[:3], [0, 1, 2, 3]]
    assert allocation.beam_step(4, nobody_dies)["freed"] == 0


def test_memory_that_copies_prompts_is_told_from_memory_that_shares_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def copying(block_size: int, **_: Any) -> Paged:
        return Paged(block_size)

    monkeypatch.setattr(allocation, "PagedCow", copying)
    with pytest.raises(KeyError):  # it counts no copies of blocks
        allocation.samples(2, 7, 4)
    parents = [[0, 0, 0, 0], [0, 1, 0, 0], [0, 1, 0, 0], [2, 3, 2, 3]]
    assert allocation.beam_step(4, parents)["shared_by_all"] == 0


def test_what_a_full_buddy_system_leaves() -> None:
    assert allocation.external_of_full_pool(15728, 2048) == pytest.approx(100 * 1392 / 15728)
    assert allocation.external_of_full_pool(16384, 2048) == 0


def test_waste_is_a_block_less_one_slot_where_paged_and_more_where_reserved() -> None:
    assert histories.largest_waste([4, 16], [256]) == {"4": 3, "16": 15}
    assert histories.waste_is_below_a_block([4, 16], [256]) == {"4": True, "16": True}
    assert histories.waste_is_below_a_block([16], [256], "contiguous") == {"16": False}


def test_free_slots_are_of_no_use_in_contiguous_memory_alone() -> None:
    assert histories.unusable_free_slots() == 0
    assert histories.unusable_free_slots("contiguous") > 100


def test_a_pool_that_keeps_blocks_back_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(histories, "Paged", lambda size: Paged(size, watermark=0.1))
    assert histories.unusable_free_slots() > 0


def test_compacted_memory_has_no_holes(monkeypatch: pytest.MonkeyPatch) -> None:
    def compacted(reservation: str, placement: str) -> Contiguous:
        return Contiguous("oracle", "first_fit", compaction=True)

    monkeypatch.setattr(histories, "Contiguous", compacted)
    assert histories.unusable_free_slots("contiguous") == 0


def test_requests_that_grow_overfill_the_host() -> None:
    found = preemption.most_swapped(["growing"])["growing"]
    assert found["most_on_host"] > found["num_gpu_blocks"] == 16
    assert preemption.swapped_within_gpu_blocks(["growing"]) == {"growing": False}


def test_requests_leave_last_come_first_and_whole() -> None:
    assert preemption.preemption_order() == {
        "first_come_first_served": True,
        "last_come_first": True,
        "all_or_none": True,
    }


def test_a_scheduler_that_preempts_the_first_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    preempt_last = SwappingScheduler._preempt_last

    def preempt_first(self: SwappingScheduler) -> None:
        rows: IntArray = self.running[: self.num_running]
        rows[:] = rows[::-1].copy()
        preempt_last(self)
        self.running[: self.num_running] = self.running[: self.num_running][::-1].copy()

    monkeypatch.setattr(SwappingScheduler, "_preempt_last", preempt_first)
    found = preemption.preemption_order(num_samples=1, mode="recompute")
    assert not isinstance(found, Vacuous)
    assert not found["last_come_first"]


def test_without_preemption_its_order_holds_vacuously(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preemption, "ORDER_BLOCKS", 40_000)
    assert isinstance(preemption.preemption_order(num_samples=1), Vacuous)


def test_mean_lengths_are_those_of_the_table_or_of_the_paper() -> None:
    data = lengths.mean_lengths("alpaca")
    assert isinstance(data["input"], Seeds)
    assert len(data["input"].values) == 5
    assert min(data["output"].values) > 58
    scaled = lengths.mean_lengths("sharegpt", scale_to_paper=True)["output"].values
    assert sum(scaled) / 5 == pytest.approx(337.99, rel=0.01)
    ratio = lengths.ratio_of_lengths("sharegpt", "alpaca")["output"].values
    assert max(ratio) < 5.6


def test_the_default_block_size_is_the_preset_s() -> None:
    assert geometry.default_block_size("vllm-0.2") == PagedCow().block_size == 16
    assert geometry.default_block_size("nano-vllm") != 16
