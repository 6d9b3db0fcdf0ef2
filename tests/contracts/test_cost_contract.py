"""Every registered cost model keeps the cost contract: whole nanoseconds, monotone, plannable."""

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.batch import (
    COPIED_TOKENS,
    DECODE_KV_TOKENS,
    KV_TOKENS,
    NUM_DECODE_SEQS,
    NUM_SEQS,
    PREFILL_PAIRS,
    PREFILL_TOKENS,
    SWAPPED_BLOCKS,
    SWAPPED_TOKENS,
    empty_batch,
    next_decode,
)
from sim.costs import COST_MODELS, CostModel
from sim.costs.base import to_ns
from sim.costs.linear import Constant, Linear
from sim.costs.measured import Measured
from sim.costs.profile import shipped
from sim.costs.roofline import Roofline
from sim.engine.arrivals import FOREVER_NS
from sim.sequence import IntArray
from sim.testing import check_cost
from sim.testing.costs import batch_of


class OneByOne(CostModel):
    """Another model's times through the plan that a plug-in inherits."""

    kind = "one_by_one"

    def __init__(self, inner: CostModel) -> None:
        self.inner = inner

    def iteration_s(self, batch: IntArray) -> float:
        return self.inner.iteration_s(batch)


OPT_13B_ON_A100: dict[str, Any] = {
    "weights_bytes": 25_700_000_000,
    "num_params": 12_850_000_000,
    "kv_bytes_per_token": 819_200,
    "layers": 40,
    "heads": 40,
    "head_dim": 128,
    "memory_gb_s": 1555.0,
    "bf16_tflops": 312.0,
}
LLAMA_3_8B: dict[str, Any] = {
    "weights_bytes": 16_060_522_496,
    "num_params": 8_030_261_248,
    "num_embedding_params": 1_050_673_152,
    "vocab": 128_256,
    "kv_bytes_per_token": 131_072,
    "layers": 32,
    "hidden": 4096,
    "heads": 32,
    "kv_heads": 8,
    "head_dim": 128,
}
REQUIRED: dict[str, dict[str, Any]] = {
    "roofline": OPT_13B_ON_A100,
    "measured": {**LLAMA_3_8B, "profile": "rtx-4090", "block_size": 16},
}


def default(kind: str) -> Callable[[], CostModel]:
    return lambda: COST_MODELS[kind](**REQUIRED.get(kind, {}))


def profiled(name: str) -> Callable[[], CostModel]:
    return lambda: Measured(**{**REQUIRED["measured"], "profile": name})


MODELS = {
    **{f"{kind}-default": default(kind) for kind in COST_MODELS},
    "roofline-of-experts": lambda: Roofline(
        **{**OPT_13B_ON_A100, "num_active_params": 1_000_000_000}, overhead_s=0.0
    ),
    "constant-zero": lambda: Constant(0.0),
    "linear-small": lambda: Linear(3e-9, 1.5e-9, 0.25e-9, 0.75e-9),
    "plain": lambda: OneByOne(Linear()),
    **{f"measured-{name}": profiled(name) for name in shipped()},
}

every_model = pytest.mark.parametrize("name", sorted(MODELS))


def single_ns(model: CostModel, batch: IntArray) -> int:
    boundaries = np.zeros(2, np.int64)
    assert model.plan(batch.copy(), boundaries, 1, FOREVER_NS) == 1
    return boundaries.item(1)


@every_model
def test_an_iteration_takes_at_least_a_nanosecond(name: str) -> None:
    model = MODELS[name]()
    for batch in (empty_batch() * 0, batch_of(1, 1), batch_of(256, 10**6), batch_of(1, 9, 9)):
        assert single_ns(model, batch) >= 1


@every_model
@given(num_seqs=st.integers(1, 512), length=st.integers(1, 10**5), more=st.integers(1, 10**4))
def test_more_kv_tokens_never_take_less_time_at_a_fixed_batch(
    name: str, num_seqs: int, length: int, more: int
) -> None:
    model = MODELS[name]()
    shorter = model.iteration_s(batch_of(num_seqs, num_seqs * length))
    assert 0 <= shorter <= model.iteration_s(batch_of(num_seqs, num_seqs * length + more))


@every_model
@given(num_seqs=st.integers(1, 512), length=st.integers(1, 10**5), more=st.integers(1, 100))
def test_a_larger_batch_never_takes_less_time_at_a_fixed_length(
    name: str, num_seqs: int, length: int, more: int
) -> None:
    model = MODELS[name]()
    smaller = model.iteration_s(batch_of(num_seqs, num_seqs * length))
    larger = num_seqs + more
    assert smaller <= model.iteration_s(batch_of(larger, larger * length))


@every_model
@given(
    decodes=st.integers(1, 300),
    length=st.integers(1, 10**4),
    chunk=st.integers(1, 2000),
    context=st.integers(0, 10**4),
    more=st.integers(0, 500),
)
def test_a_batch_with_a_prompt_in_it_never_gets_faster_by_more_of_anything(
    name: str, decodes: int, length: int, chunk: int, context: int, more: int
) -> None:
    model = MODELS[name]()

    def seconds(decodes: int, length: int, context: int) -> float:
        batch = empty_batch()
        batch[[NUM_SEQS, NUM_DECODE_SEQS]] = (decodes + 1, decodes)
        batch[[PREFILL_TOKENS, DECODE_KV_TOKENS]] = (chunk, decodes * length)
        batch[KV_TOKENS] = decodes * length + chunk + context
        batch[PREFILL_PAIRS] = chunk * context + chunk * (chunk + 1) // 2
        return model.iteration_s(batch)

    base = seconds(decodes, length, context)
    assert base <= seconds(decodes + more, length, context)
    assert base <= seconds(decodes, length + more, context)
    assert base <= seconds(decodes, length, context + more)


@every_model
@given(count=st.integers(1, 40), num_seqs=st.integers(1, 64), prefill=st.integers(0, 200))
def test_a_plan_is_single_plans_one_after_another(
    name: str, count: int, num_seqs: int, prefill: int
) -> None:
    model = MODELS[name]()
    start = 10**15
    batch = batch_of(num_seqs, 7 * num_seqs + prefill, prefill)
    given_batch = batch.copy()
    boundaries = np.full(count + 1, start, np.int64)
    assert model.plan(batch, boundaries, count, FOREVER_NS) == count
    assert batch.tolist() == given_batch.tolist(), "planning changes nothing"
    expected = [start]
    for i in range(count):
        if i > 0:
            next_decode(batch)
        expected.append(expected[-1] + single_ns(model, batch))
    assert boundaries.tolist() == expected


@every_model
def test_a_plan_stops_after_the_iteration_that_ends_at_the_limit_or_later(name: str) -> None:
    model = MODELS[name]()
    boundaries = np.zeros(6, np.int64)
    model.plan(batch_of(3, 300), boundaries, 5, FOREVER_NS)
    ends = boundaries.tolist()
    for i in range(1, 5):
        assert model.plan(batch_of(3, 300), boundaries, 5, ends[i]) == i
        assert model.plan(batch_of(3, 300), boundaries, 5, ends[i] + 1) == i + 1
    assert model.plan(batch_of(3, 300), boundaries, 5, 0) == 1, "the first one always runs"


@every_model
def test_every_model_passes_the_suite_for_plug_ins(name: str) -> None:
    if name != "plain":  # which does not say where its times come from
        check_cost(MODELS[name])


@given(st.floats(0, 1e5))
def test_seconds_are_rounded_once_to_whole_nanoseconds(seconds: float) -> None:
    assert to_ns(seconds) == max(1, round(seconds * 1e9))


def test_half_a_nanosecond_goes_to_the_even_neighbour() -> None:
    halves = [n + 0.5 for n in range(2, 200)]
    exact = [half for half in halves if half * 1e-9 * 1e9 == half]
    assert len(exact) > 50
    assert [to_ns(half * 1e-9) for half in exact] == [
        2 * math.floor(half / 2 + 0.5) if half % 2 == 1.5 else math.floor(half) for half in exact
    ]


def test_a_decode_follows_a_prefill_with_one_more_token_a_sequence() -> None:
    batch = batch_of(3, 30, prefill_tokens=20)
    next_decode(batch)
    assert batch[[NUM_SEQS, NUM_DECODE_SEQS, KV_TOKENS]].tolist() == [3, 3, 33]
    assert batch[[DECODE_KV_TOKENS, PREFILL_TOKENS]].tolist() == [33, 0]


@every_model
def test_every_model_says_where_its_times_come_from(name: str) -> None:
    assert MODELS[name]().source != ""


def test_linear_time_is_the_sum_of_its_five_parts() -> None:
    batch = batch_of(3, 50, prefill_tokens=7)
    assert batch[COPIED_TOKENS] == 2
    assert Linear(1.0, 0.5, 0.25, 2.0, 8.0).iteration_s(batch) == 1 + 1.5 + 12.5 + 14 + 16


@pytest.mark.parametrize(
    "name", ["base_s", "per_seq_s", "per_kv_token_s", "per_prefill_token_s", "per_copied_token_s"]
)
@pytest.mark.parametrize("value", [-1e-9, math.nan, math.inf])
def test_a_negative_or_endless_time_is_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"^{name}: must be at least 0 and below 1e6 seconds"):
        Linear(**{name: value})


@pytest.mark.parametrize("value", [-1.0, math.nan])
def test_a_constant_that_is_no_time_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match=r"^seconds: must be at least 0"):
        Constant(value)


def roofline(**parameters: Any) -> Roofline:
    """A machine of 1,000 bytes/s and 1,000 FLOPS; weights of 2,000 bytes, 1,000 parameters."""
    machine = {"memory_gb_s": 1e-6, "bf16_tflops": 1e-9, "weights_bytes": 2000, "num_params": 1000}
    shape = {"kv_bytes_per_token": 10, "layers": 1, "heads": 2, "head_dim": 1}
    ideal = dict.fromkeys(
        ("linear_bandwidth_efficiency", "linear_flops_efficiency", "copy_efficiency"), 1.0
    ) | dict.fromkeys(("attention_bandwidth_efficiency", "attention_flops_efficiency"), 1.0)
    return Roofline(**{**machine, **shape, **ideal, "overhead_s": 0.0, **parameters})  # type: ignore[arg-type]


def test_a_roofline_of_one_token_reads_the_weights_or_computes_whichever_takes_longer() -> None:
    one = batch_of(1, 0)
    assert roofline().iteration_s(one) == 2000 / 1000
    assert roofline(bf16_tflops=4e-10).iteration_s(one) == 2 * 1000 / 400
    assert roofline(linear_bandwidth_efficiency=0.5).iteration_s(one) == 4
    assert roofline(overhead_s=0.25).iteration_s(one) == 2.25


def test_a_roofline_reads_the_kv_of_every_decoding_sequence() -> None:
    """10 bytes and 4 x 2 FLOPs a token: moving takes longer."""
    without, with_kv = batch_of(1, 0), batch_of(1, 300)
    assert roofline().iteration_s(with_kv) - roofline().iteration_s(without) == 3
    slow = roofline(attention_flops_efficiency=0.5)
    assert slow.iteration_s(with_kv) - slow.iteration_s(without) == pytest.approx(300 * 16 / 1000)


def test_a_roofline_computes_every_pair_of_a_prompt() -> None:
    """A prompt of 100 tokens has 5,050 pairs of 8 FLOPs; its KV takes 1 s, its linears 200 s."""
    batch = batch_of(1, 100, prefill_tokens=100)
    batch[COPIED_TOKENS] = 0
    assert roofline().iteration_s(batch) == pytest.approx(200 + 5050 * 8 / 1000)
    batch[COPIED_TOKENS] = 7
    assert roofline().iteration_s(batch) == pytest.approx(200 + 40.4 + 7 * 2 * 10 / 1000)


def test_a_swap_takes_its_copies_and_its_bytes_over_the_host_link() -> None:
    """Two blocks of 4 slots, K and V of one layer each, and 80 bytes at 100 bytes/s."""
    batch, swapping = batch_of(1, 0), batch_of(1, 0)
    swapping[[SWAPPED_BLOCKS, SWAPPED_TOKENS]] = 2, 8
    slow = roofline(host_copy_s=0.5, pcie_gb_s=2e-7, host_link_efficiency=0.5)
    assert slow.iteration_s(swapping) - slow.iteration_s(batch) == pytest.approx(2 * 2 * 0.5 + 0.8)
    linear = Linear(per_swapped_block_s=0.25, per_swapped_token_s=0.125)
    assert linear.iteration_s(swapping) - linear.iteration_s(batch) == pytest.approx(1.5)


def test_a_roofline_of_experts_reads_no_more_weights_than_its_tokens_touch() -> None:
    """A tenth of the parameters is active: one token reads a tenth, twenty read all."""
    experts = roofline(num_active_params=100, bf16_tflops=1.0)
    assert experts.iteration_s(batch_of(1, 0)) == pytest.approx(0.2)
    assert experts.iteration_s(batch_of(20, 0)) == 2


def test_what_lies_outside_of_experts_is_read_once_however_many_tokens_there_are() -> None:
    """Of 1,000 parameters 950 are in experts, and a token passes through 100: 50 and 50 of them."""
    experts = roofline(num_active_params=100, num_expert_params=950, bf16_tflops=1.0)
    read = [experts.iteration_s(batch_of(tokens, 0)) for tokens in (1, 2, 19, 40)]
    assert read == pytest.approx([2 * share for share in (0.1, 0.15, 1.0, 1.0)])


def test_the_defaults_of_a_rooflines_efficiencies_are_those_documented() -> None:
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(Roofline).parameters.items()
        if parameter.default is not None
    }
    assert defaults == {
        "overhead_s": 0.002,
        "linear_bandwidth_efficiency": 0.83,
        "linear_flops_efficiency": 0.80,
        "attention_bandwidth_efficiency": 0.85,
        "attention_flops_efficiency": 0.65,
        "copy_efficiency": 0.80,
        "host_link_efficiency": 0.80,
        "host_copy_s": 5e-6,
    }


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"copy_efficiency": 0.0}, "copy_efficiency: must be above 0 and at most 1, got 0.0"),
        ({"overhead_s": -1.0}, "overhead_s: must be at least 0 and below 1e6 seconds"),
        ({"memory_gb_s": None}, "memory_gb_s: is not known; accepted: a number here, or a device"),
        ({"layers": None}, "layers: is not known; accepted: a number here, or a model that has it"),
        ({"layers": 0}, "layers: must be above 0 and below 1e18, got 0"),
        (
            {"num_params": 10**18},
            "num_params: must be above 0 and below 1e18, got 1000000000000000000",
        ),
        (
            {"num_expert_params": 1001},
            "num_expert_params: must be at least what a token passes by, 0",
        ),
        (
            {"num_active_params": 100, "num_expert_params": 899},
            "num_expert_params: must be at least what a token passes by, 900, and at most",
        ),
        ({"num_active_params": 1001}, "num_active_params: 1001 are more than num_params, 1000"),
    ],
)
def test_a_wrong_parameter_of_a_roofline_is_named_with_its_rule(
    parameters: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match="^" + sentence):
        roofline(**parameters)
