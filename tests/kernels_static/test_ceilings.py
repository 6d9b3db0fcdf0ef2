"""The kernels that measure the hardware must not hold it back."""

import torch

from kernels.calibrate.ceilings import READ_WORDS, empty_kernel, read_launch
from kernels.launch import Launch
from kernels.static import compile_for, count, inspect

WORDS = torch.empty(2**20, dtype=torch.int32, device="meta")


def test_the_read_ceiling_reads_by_sixteen_bytes_and_spills_nothing():
    for words in READ_WORDS:
        report = inspect(compile_for(90, read_launch(WORDS, words)))
        assert report.spills == 0
        assert 16 * report.threads * count(report.ops, "LDG.E.128") == 4 * words


def test_the_empty_kernel_touches_no_memory():
    report = inspect(compile_for(90, Launch(empty_kernel, (1,), (WORDS,), {"num_warps": 1})))
    assert count(report.ops, "LDG", "STG") == 0
