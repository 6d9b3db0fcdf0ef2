"""Which kernel variants are checked before anything is timed, and what a broken one takes with
it."""

from dataclasses import replace

import pytest
import torch

from kernels import reference
from kernels.calibrate import correctness
from kernels.calibrate.grid import decode_point, sections
from kernels.calibrate.points import DEEPSEEK, LINEARS, Point
from kernels.calibrate.variants import Variant, all_variants, needed_variants
from kernels.launch import FP8, H200_SMS
from kernels.standins import Model

EVERY_POINT = [p for s in sections(seed=0) for p in s.points]
FP8_MODEL = Model(kv_dtype=FP8)


def needs(point):
    return needed_variants(point, H200_SMS)


def prefill(block_size):
    return decode_point("prefill", block_size, 1, 64, kernel="prefill", queries=64)


def test_every_point_but_plain_copies_needs_a_variant_and_all_of_them_are_checked():
    checked = set(all_variants(EVERY_POINT, H200_SMS))
    for point in EVERY_POINT:
        plain = point.kernel in ("h2d", "d2h") and point.variant != "kernel"
        assert bool(needs(point)) != plain, point
        assert needs(point) <= checked
    assert {v.kernel for v in checked} == set(correctness.CHECKS)


def test_fp8_caches_small_operations_and_every_linear_are_among_the_checks():
    checked = set(all_variants(EVERY_POINT, H200_SMS))
    assert Variant("append", FP8_MODEL) in checked
    assert {Variant(name) for name in ("add_rms_norm", "rope", "silu_and_mul")} <= checked
    assert {v.size for v in checked if v.kernel == "linear"} == set(LINEARS.values())
    rows = {(p.size, p.queries) for p in EVERY_POINT if p.kernel == "linear"}
    assert {(v.size, v.rows) for v in checked if v.kernel == "linear"} == rows


def test_names_of_variants_differ():
    names = [v.name for v in all_variants(EVERY_POINT, H200_SMS)]
    assert len(names) == len(set(names))


def test_block_sizes_do_not_share_a_variant():
    for points in (
        [prefill(n) for n in (1, 16, 64)],
        [decode_point("x", n, 1, 128) for n in (1, 16)],
    ):
        found = [needs(point) for point in points]
        assert not set.intersection(*found)


def test_pipeline_depths_lookups_and_heads_do_not_share_a_variant():
    point = decode_point("x", 64, 1, 128)
    others = [p for p in EVERY_POINT if p.section in ("pipeline", "slices")]
    assert len({frozenset(needs(replace(p, lengths=point.lengths))) for p in others}) > 24


def test_the_default_lookup_and_the_same_lookup_by_name_are_one_variant():
    by_name = next(p for p in EVERY_POINT if p.variant == "ahead" and p.config.num_stages == 3)
    default = replace(by_name, variant="auto", config=None)
    assert needs(by_name) == needs(default)


def test_only_points_that_are_split_need_the_combine_pass():
    whole, split = decode_point("x", 16, 256, 1024), decode_point("x", 16, 1, 32768)
    assert Variant("combine") not in needs(whole)
    assert Variant("combine") in needs(split)
    assert needs(decode_point("x", 16, 1, 8192, kernel="combine", splits=8)) == {Variant("combine")}


def test_a_split_latent_decode_needs_a_combine_pass_of_its_own_width():
    split = decode_point("x", 64, 1, 8192, kernel="mla", model=DEEPSEEK)
    assert {v.kernel for v in needs(split)} == {"mla", "combine"}
    assert Variant("combine") not in needs(split)


def test_a_layer_needs_every_one_of_its_parts():
    layer = next(p for p in EVERY_POINT if p.kernel == "layer" and len(p.lengths) == 32)
    kernels = [v.kernel for v in needs(layer)]
    assert kernels.count("linear") == 4
    assert {"append", "decode", "add_rms_norm", "rope", "silu_and_mul"} <= set(kernels)
    assert needs(decode_point("x", 16, 32, 2048)) <= needs(layer)


def check(variant):
    (result,) = correctness.run_checks([variant], "cpu", correctness.REHEARSAL)
    return result


def of_kind(kernel, count=1):
    return [v for v in all_variants(EVERY_POINT, H200_SMS) if v.kernel == kernel][:count]


@pytest.mark.parametrize("kernel", sorted(correctness.CHECKS))
def test_a_right_kernel_passes_its_check(kernel):
    for variant in of_kind(kernel, 2):
        result = check(variant)
        assert result["ok"], result


WRONG = {
    "decode": ("paged_decode", lambda *args, **kw: args[0] * 0.0),
    "mla": ("mla.mla_decode", lambda *args, **kw: args[0][..., :512] * 0.0),
    "prefill": ("paged_prefill", lambda *args, **kw: args[0] * 0.0),
}


@pytest.mark.parametrize("kernel", sorted(WRONG))
def test_a_wrong_attention_fails_its_check(monkeypatch, kernel):
    name, wrong = WRONG[kernel]
    monkeypatch.setattr(f"kernels.calibrate.correctness.{name}", wrong)
    for variant in (of_kind(kernel, 100)[0], of_kind(kernel, 100)[-1]):
        assert check(variant)["ok"] != bool(variant.block_size)


@pytest.mark.parametrize("kernel", ["append", "copy_blocks"])
def test_a_move_that_does_nothing_fails_its_check(monkeypatch, kernel):
    monkeypatch.setattr(f"kernels.calibrate.correctness_ops.{kernel}", lambda *args: None)
    for variant in of_kind(kernel, 2):
        assert not check(variant)["ok"]


@pytest.mark.parametrize(
    ("kernel", "launch"),
    [
        ("combine", "combine_launch"),
        ("add_rms_norm", "add_rms_norm_launch"),
        ("rope", "rope_launch"),
        ("silu_and_mul", "silu_and_mul_launch"),
        ("h2d", "host_copy_launch"),
        ("d2h", "host_copy_launch"),
    ],
)
def test_an_operation_that_does_nothing_fails_its_check(monkeypatch, kernel, launch):
    where = f"kernels.calibrate.correctness_ops.{launch}"
    monkeypatch.setattr(where, lambda *args, **kw: lambda: None)
    assert not check(*of_kind(kernel))["ok"]


def test_a_product_that_is_slightly_wrong_fails_its_check(monkeypatch):
    right = torch.mm
    monkeypatch.setattr(torch, "mm", lambda a, b, out: out.copy_(right(a, b) * 1.05))
    assert not check(*of_kind("linear"))["ok"]


def test_a_check_that_raises_is_a_failed_one_with_its_reason():
    result = check(Variant("decode", Model(head_dim=80)))
    assert not result["ok"]
    assert "head_dim 80 is not supported" in result["failure"]
    assert correctness.broken([result]) == {"decode bf16 heads 32/8 contiguous"}


def test_the_references_of_a_layers_operations_agree_with_torch():
    x, residual, weight = torch.randn(3, 8).double(), torch.randn(3, 8).double(), torch.ones(8)
    total, normed = reference.add_rms_norm(x, residual, weight)
    expected = torch.nn.functional.rms_norm(total, (8,), eps=1e-5)
    assert torch.allclose(total, x.float().double() + residual.float().double())
    assert torch.allclose(normed, expected)
    still = reference.rope(torch.ones(1, 2, 4), torch.zeros(3, 2), torch.tensor([2]))
    assert torch.equal(still, torch.ones(1, 2, 4).double())
    gated = reference.silu_and_mul(torch.tensor([[0.0, 30.0, 2.0, 3.0]]))
    assert torch.allclose(gated, torch.tensor([[0.0, 90.0]]).double())


def test_a_point_of_a_copy_without_a_kernel_needs_nothing():
    assert needs(Point("x", "h2d", "memcpy", size=(16, 4096))) == set()
