"""The kernels that measure the hardware must not hold it back."""

import pytest
import torch

from kernels.calibrate.ceilings import (
    READ_WORDS,
    empty_kernel,
    read_again_launch,
    read_launch,
)
from kernels.launch import Launch
from kernels.static import compile_for, count, inspect

WORDS = torch.empty(2**20, dtype=torch.int32, device="meta")


def test_the_read_ceiling_reads_by_sixteen_bytes_and_spills_nothing():
    for words in READ_WORDS:
        report = inspect(compile_for(90, read_launch(WORDS, words)))
        assert report.spills == 0
        assert 16 * report.threads * count(report.ops, "LDG.E.128") == 4 * words


@pytest.mark.parametrize("words", READ_WORDS)
def test_the_second_level_cache_is_read_in_a_loop_that_spills_nothing(words):
    report = inspect(compile_for(90, read_again_launch(WORDS, words, 64)))
    assert report.spills == 0
    loads = count(report.hot, "LDG.E.128")
    assert loads * 16 * report.threads % (4 * words) == 0  # a whole number of parts
    assert loads > 0


@pytest.mark.parametrize("launch", [read_launch(WORDS, 4096), read_again_launch(WORDS, 4096, 4)])
def test_addresses_of_the_read_are_made_with_64_bits(launch):
    products = [line for line in compile_for(90, launch).asm["ttir"].splitlines() if "muli" in line]
    assert products
    assert all(": i64" in line for line in products)


def test_the_empty_kernel_touches_no_memory():
    report = inspect(compile_for(90, Launch(empty_kernel, (1,), (WORDS,), {"num_warps": 1})))
    assert count(report.ops, "LDG", "STG") == 0
