"""What must hold of the compiled kernels on sm_80 and sm_90, read from their machine code."""

from functools import cache

import pytest
import torch

from kernels import mla, standins
from kernels.decode import DecodeConfig, default_config
from kernels.launch import FP8
from kernels.prefill import PrefillConfig
from kernels.prefill import default_config as default_prefill
from kernels.standins import Model
from kernels.static import compile_for, count, inspect

ARCHS = [80, 90]
LLAMA = Model()


@cache
def decode(arch, block_size, model=LLAMA, config=None):
    return inspect(compile_for(arch, standins.decode(model, block_size, config)[0]))


@cache
def prefill(arch, block_size, model=LLAMA, config=None):
    return inspect(compile_for(arch, standins.prefill(model, block_size, config, arch)))


def stages(report, tile_bytes):
    return report.shared // tile_bytes


def without_spills(report):
    return report.stack == 0 and report.spills == 0


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("block_size", [None, 1, 16, 64])
def test_decode_copies_its_whole_tile_asynchronously_and_spills_nothing(arch, block_size):
    report, tile = decode(arch, block_size), LLAMA.tile_bytes(64)
    assert without_spills(report)
    assert report.registers <= 128  # four programs an SM by registers
    assert count(report.hot, "HMMA") > 0
    assert report.async_bytes(16) == tile
    table = report.loaded_bytes - report.async_bytes()
    assert table == {None: 0, 1: 4096, 16: 4096, 64: 512}[block_size]
    assert report.issue_share(tile) < 0.4  # memory decides, by a wide margin


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("num_stages", [3, 4])
def test_paged_and_contiguous_decode_keep_equally_many_tiles_in_flight(arch, num_stages):
    config, tile = DecodeConfig(num_stages=num_stages), LLAMA.tile_bytes(64)
    counts = [stages(decode(arch, size, LLAMA, config), tile) for size in (None, 16, 64)]
    assert counts == [num_stages - 1] * 3


def test_a_table_read_in_the_same_iteration_costs_tiles_in_flight():
    tile = LLAMA.tile_bytes(64)
    inline = decode(90, 16, LLAMA, DecodeConfig(lookup="inline"))
    assert stages(inline, tile) < stages(decode(90, 16), tile)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("head_dim", [64, 256])
def test_other_head_sizes_are_as_clean(arch, head_dim):
    model, config = Model(head_dim=head_dim), default_config(head_dim)
    report, tile = decode(arch, 16, model), model.tile_bytes(config.block_n)
    assert without_spills(report)
    assert count(report.hot, "HMMA") > 0
    assert report.async_bytes(16) == tile
    assert stages(report, tile) == config.num_stages - 1


@pytest.mark.parametrize("heads", [(8, 8), (64, 8), (128, 1)], ids=str)
def test_other_groupings_are_as_clean(heads):
    report = decode(90, 16, Model(*heads))
    assert without_spills(report)
    assert count(report.hot, "HMMA", "HGMMA") > 0
    assert report.async_bytes(16) == LLAMA.tile_bytes(64 if heads[1] > 1 else 32)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("head_dim", [64, 128, 256])
@pytest.mark.parametrize("heads", [(32, 1), (128, 1)], ids=str)
@pytest.mark.parametrize("block_size", [None, 16])
def test_many_heads_a_kv_head_spill_nothing_at_any_head_size(arch, head_dim, heads, block_size):
    dtypes = (None, FP8) if arch == 90 else (None,)
    for model in (Model(*heads, head_dim=head_dim, kv_dtype=dtype) for dtype in dtypes):
        config = default_config(head_dim, model.group)
        report, tile = decode(arch, block_size, model), model.tile_bytes(config.block_n)
        assert without_spills(report)
        assert count(report.hot, "HMMA", "HGMMA") > 0
        assert report.async_bytes() == tile
        assert stages(report, tile) >= config.num_stages - 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_fp8_decode_loads_half_the_bytes_and_multiplies_in_fp16(dtype):
    model = Model(dtype=dtype, kv_dtype=FP8)
    launch = standins.decode(model, 16)[0]
    compiled = compile_for(90, launch)
    report = inspect(compiled)
    assert without_spills(report)
    assert report.async_bytes() == LLAMA.tile_bytes(64) // 2
    assert "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32" in compiled.asm["ptx"]


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("block_size", [None, 16, 64])
def test_prefill_uses_the_largest_tensor_core_instruction_without_spills(arch, block_size):
    report = prefill(arch, block_size)
    assert without_spills(report)
    assert count(report.hot, "HGMMA" if arch == 90 else "HMMA") > 0
    assert report.async_bytes(16) == LLAMA.tile_bytes(default_prefill(128, arch).block_n)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("head_dim", [64, 256])
def test_prefill_of_other_head_sizes_is_as_clean(arch, head_dim):
    assert without_spills(prefill(arch, 16, Model(head_dim=head_dim)))


def test_a_bad_configuration_is_caught():
    report = prefill(90, 16, LLAMA, PrefillConfig(block_n=128, num_warps=4))
    assert not without_spills(report)


def test_alignment_unknown_to_the_compiler_is_caught():
    # queries and cache seen through pointers that are not 16-byte aligned: no wide copies
    launch = standins.decode(LLAMA, 16)[0]
    odd = torch.empty(10, dtype=torch.bfloat16)[1:]
    args = (launch.args[0], odd, odd, *launch.args[3:])
    report = inspect(
        compile_for(90, type(launch)(launch.kernel, launch.grid, args, launch.options))
    )
    assert report.async_bytes(16) == 0


@pytest.mark.parametrize("arch", ARCHS)
def test_the_moves_use_sixteen_byte_accesses(arch):
    for launch in (standins.append(LLAMA, 16), standins.copy_blocks(LLAMA, 16)):
        report = inspect(compile_for(arch, launch))
        assert without_spills(report)
        for access in ("LDG", "STG"):
            wide = {op for op in report.ops if op.startswith(access) and ".128" in op}
            assert wide, (launch.name, access, report.ops)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("block_size", [1, 16, 64])
def test_latent_decode_loads_its_tile_once_and_keeps_two_in_flight(arch, block_size):
    report = inspect(compile_for(arch, standins.mla_decode(block_size)[0]))
    tile = mla.DEFAULT.block_n * mla.WIDTH * 2
    assert without_spills(report)
    assert count(report.hot, "HMMA") > 0
    assert report.async_bytes(16) == tile  # keys and values are the same bytes
    assert stages(report, tile) == mla.DEFAULT.num_stages - 1


def test_the_combine_passes_are_clean():
    for launch in (standins.decode(LLAMA, 16)[1], standins.mla_decode(16)[1]):
        assert without_spills(inspect(compile_for(90, launch)))


def test_two_targets_in_one_process_are_not_mixed_up():
    assert count(prefill(90, 16).ops, "HGMMA") > 0
    assert count(prefill(80, 16).ops, "HGMMA") == 0
