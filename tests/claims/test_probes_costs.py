"""Probes of cost models: each fails where the costs are other ones."""

from __future__ import annotations

from typing import Any

import pytest

from sim.claims.probes import costs

PROFILE: dict[str, Any] = {"kind": "measured", "profile": "a100-40-2023"}
HARDWARE = {"model": "opt-13b", "device": "a100-40gb"}
SIZES = [1, 4, 16, 64, 256]


def linear(**terms: float) -> dict[str, Any]:
    names = ("base_s", "per_seq_s", "per_kv_token_s", "per_prefill_token_s")
    names += ("per_swapped_block_s", "per_swapped_token_s")
    return {"kind": "linear", **dict.fromkeys(names, 0.0), **terms}


def test_paging_costs_a_step_less_than_its_attention_and_nothing_without_a_factor() -> None:
    found = costs.paging_overhead_percent(PROFILE, HARDWARE, 16, 500, 30)
    assert found["kernel"] == pytest.approx(23, abs=0.1)
    assert 5 < found["step"] < 10
    roofline = costs.paging_overhead_percent({"kind": "roofline"}, HARDWARE, 16, 500, 30)
    assert roofline == {"kernel": 0.0, "step": 0.0}
    other = {**PROFILE, "paging": "equal-prefetch"}
    assert costs.paging_overhead_percent(other, HARDWARE, 16, 500, 30)["step"] < 1


def test_a_swap_pays_for_blocks_and_slots_twice_and_a_recomputation_for_tokens() -> None:
    cost = linear(
        per_swapped_block_s=0.001, per_swapped_token_s=0.00001, per_prefill_token_s=0.0002
    )
    found = costs.preemption_s(cost, HARDWARE, 100, 16)
    assert found["swap"] == pytest.approx(2 * 7 * 0.001 + 2 * 112 * 0.00001)
    assert found["recompute"] == pytest.approx(100 * 0.0002)


@pytest.mark.parametrize(
    ("cost", "flat", "falls"),
    [
        ({"kind": "roofline"}, True, True),
        ({**PROFILE, "paging": "page-smaller-than-tile"}, False, True),
        (linear(per_swapped_token_s=0.001, per_prefill_token_s=0.001), True, False),
    ],
)
def test_the_order_of_preemptions_can_fail_on_either_side(cost, flat, falls) -> None:
    found = costs.preemption_costs(cost, HARDWARE, 512, SIZES, 0.01)
    assert found == {"recompute_is_flat": flat, "swap_falls": falls}


def test_only_block_sizes_at_which_swapping_is_cheaper_count() -> None:
    cost = linear(per_swapped_block_s=0.01, per_prefill_token_s=0.001)
    found = costs.recompute_over_swap(cost, HARDWARE, [512], [1, 16, 64, 256])
    assert found == {"512 tokens": pytest.approx(0.512 / 0.04)}
    dear = linear(per_swapped_block_s=10.0, per_prefill_token_s=0.001)
    assert costs.recompute_over_swap(dear, HARDWARE, [512], [16]) == {"512 tokens": 0.0}


def test_a_cost_model_that_cannot_be_built_says_which_key_is_wrong() -> None:
    with pytest.raises(ValueError, match="profile"):
        costs.cost_model({"kind": "measured", "profile": "a100-41"}, HARDWARE, 16)
    with pytest.raises(ValueError, match="model"):
        costs.cost_model(PROFILE, {**HARDWARE, "model": "opt-13c"}, 16)
