"""Every error of an experiment file: its sentence, file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiment_files import GOOD, HEAD, errors_of, write
from sim.allocators import ALLOCATORS
from sim.config.experiment import load_experiment


def test_a_good_file_loads(tmp_path: Path) -> None:
    assert load_experiment(write(tmp_path, GOOD)).name == "example"


# each case: lines added to or replacing those of GOOD, and the only error they give
CASES = {
    "an unknown key": (
        GOOD + "sheduler: {kind: fcfs}\n",
        "x.yaml:9: sheduler: unknown key, did you mean scheduler; accepted: name, description, ",
    ),
    "an unknown kind": (
        GOOD.replace("kind: paged", "kind: pagd"),
        "x.yaml:8: allocator.kind: unknown kind 'pagd', did you mean paged; "
        f"accepted: {', '.join(ALLOCATORS)}",
    ),
    "an unknown parameter": (
        GOOD.replace("paged}", "paged, blocksize: 8}"),
        "x.yaml:8: allocator.blocksize: unknown key, did you mean block_size; "
        "accepted: block_size, watermark",
    ),
    "text for a number": (
        GOOD.replace("paged}", 'paged, block_size: "8"}'),
        "x.yaml:8: allocator.block_size: must be a whole number, got '8'",
    ),
    "a boolean for a number": (
        GOOD.replace("paged}", "paged, block_size: true}"),
        "x.yaml:8: allocator.block_size: must be a whole number, got true",
    ),
    "a fraction for a whole number": (
        GOOD.replace("paged}", "paged, block_size: 8.5}"),
        "x.yaml:8: allocator.block_size: must be a whole number, got 8.5",
    ),
    "a number for a boolean": (
        GOOD + "scheduler: {kind: fcfs, enable_chunked_prefill: 1}\n",
        "x.yaml:9: scheduler.enable_chunked_prefill: must be true or false, got 1",
    ),
    "yes is text, not true": (
        GOOD + "scheduler: {kind: fcfs, enable_chunked_prefill: yes}\n",
        "x.yaml:9: scheduler.enable_chunked_prefill: must be true or false, got 'yes'",
    ),
    "a word that is not among the accepted ones": (
        GOOD.replace("paged}", "contiguous, reservation: orcle}"),
        "x.yaml:8: allocator.reservation: unknown value 'orcle', did you mean oracle; "
        "accepted: max, pow2, oracle, max_tokens",
    ),
    "a value that the constructor refuses": (
        GOOD.replace("paged}", "paged, block_size: 0}"),
        "x.yaml:8: allocator.block_size: must be at least 1 slot, got 0",
    ),
    "a combination that the constructor refuses": (
        GOOD + "scheduler:\n  kind: fcfs\n  enable_chunked_prefill: true\n",
        "x.yaml:11: scheduler.enable_chunked_prefill: chunks need a limit, "
        "set max_num_batched_tokens",
    ),
    "a block larger than the pool": (
        GOOD.replace("paged}", "paged, block_size: 512}"),
        "x.yaml:8: allocator.block_size: a block of 512 slots is larger than the pool of 256",
    ),
    "a kind without a mapping": (
        GOOD + "scheduler: fcfs\n",
        "x.yaml:9: scheduler: must be a mapping like {kind: fcfs}, got 'fcfs'",
    ),
    "a mapping without a kind": (
        GOOD.replace("kind: paged", "block_size: 8"),
        f"x.yaml:8: allocator.kind: is required; accepted: {', '.join(ALLOCATORS)}",
    ),
    "a required parameter": (
        HEAD
        + "workload:\n  kind: sharegpt\n"
        + "  arrivals: {kind: poisson, rate: 1}\nallocator: {kind: paged}\n",
        "x.yaml:4: workload.num_requests: is required",
    ),
    "an unknown kind of arrivals": (
        HEAD
        + "workload: {kind: sharegpt, num_requests: 9, arrivals: {kind: poison, rate: 2}}\n"
        + "allocator: {kind: paged}\n",
        "x.yaml:4: workload.arrivals.kind: unknown kind 'poison', did you mean poisson; ",
    ),
    "a bad rate of arrivals": (
        HEAD
        + "workload: {kind: sharegpt, num_requests: 9, arrivals: {kind: poisson, rate: -2}}\n"
        + "allocator: {kind: paged}\n",
        "x.yaml:4: workload.arrivals.rate: ",
    ),
    "a zero pool": (
        GOOD.replace("256", "0"),
        "x.yaml:2: kv_cache.num_slots: must be at least 1, got 0",
    ),
    "a pool said in two ways": (
        GOOD.replace("256", "256, block_size: 16"),
        "x.yaml:2: kv_cache: must say the number of slots in one way; "
        "accepted: {num_slots} or {num_gpu_blocks, block_size}",
    ),
    "an unknown key of the pool": (
        GOOD.replace("num_slots: 256", "num_slots: 256, num_slot: 3"),
        "x.yaml:2: kv_cache.num_slot: unknown key, did you mean num_slots; "
        "accepted: num_slots, num_gpu_blocks, block_size",
    ),
    "a model without weights on a device": (
        GOOD.replace(
            "kv_cache: {num_slots: 256}", "model: {kv_bytes_per_token: 9}\ndevice: a100-40gb"
        ),
        "x.yaml:2: model.weights_bytes: is needed to find the pool that device leaves; "
        "or give kv_cache.num_slots",
    ),
    "weights that do not fit": (
        GOOD.replace("kv_cache: {num_slots: 256}", "model: opt-66b\ndevice: a100-40gb"),
        "x.yaml:3: device: 122.41 GiB of weights (opt-66b) leave no KV memory in 0.9 of "
        "39.39 GiB (a100-40gb-sxm)",
    ),
    "an unknown model": (
        GOOD + "model: opt13b\n",
        "x.yaml:9: model: unknown model 'opt13b', did you mean opt-13b; accepted: opt-13b, ",
    ),
    "an unknown device": (
        GOOD + "device: a100-40g-sxm\n",
        "x.yaml:9: device: unknown device 'a100-40g-sxm', did you mean a100-40gb-sxm; accepted: ",
    ),
    "a name that is no folder": (
        GOOD.replace("example", "a/b"),
        "x.yaml:1: name: 'a/b' is no folder name; accepted: letters, digits, _ . and -",
    ),
    "a name that climbs": (
        GOOD.replace("example", '".."'),
        "x.yaml:1: name: '..' is no folder name; accepted: letters, digits, _ . and -",
    ),
    "a missing workload": (
        "name: x\nkv_cache: {num_slots: 9}\nmax_model_len: 9\nallocator: {kind: paged}\n",
        "x.yaml:1: workload: is required",
    ),
    "an empty allocator": (
        GOOD.replace("{kind: paged}", ""),
        f"x.yaml:8: allocator: is required; accepted: {{kind: {', '.join(ALLOCATORS)}",
    ),
    "no seeds": (GOOD + "seeds: 0\n", "x.yaml:9: seeds: got 0; accepted: a number from 1 to"),
    "a seed twice": (GOOD + "seeds: [1, 1]\n", "x.yaml:9: seeds: has a seed twice; accepted: "),
    "a negative limit": (
        GOOD + "slo: {ttft_s: -1}\n",
        "x.yaml:9: slo.ttft_s: must be above 0.0, got -1",
    ),
    "an unknown figure": (
        GOOD + "figures: [waist]\n",
        "x.yaml:9: figures.0: unknown figure 'waist', did you mean waste; accepted: waste, ",
    ),
    "a figure twice": (
        GOOD + "figures:\n  - waste\n  - waste\n",
        "x.yaml:11: figures.1: waste is named twice",
    ),
    "an unknown rule of max_tokens": (
        GOOD.replace("kind: inline", "kind: inline\n  max_tokens: colum"),
        "x.yaml:6: workload.max_tokens: unknown rule 'colum'; "
        "accepted: output, max_model_len, column, or 1 to ",
    ),
    "max_tokens from a column that is not there": (
        GOOD.replace("kind: inline", "kind: inline\n  max_tokens: column"),
        "x.yaml:6: workload.max_tokens: inline has no max_tokens; "
        "accepted: output, max_model_len or a number",
    ),
    "a reservation of max_tokens that nobody gives": (
        GOOD.replace("paged}", "contiguous, reservation: max_tokens}"),
        "x.yaml:8: allocator.reservation: max_tokens needs workload.max_tokens, "
        "because the trace has none of its own",
    ),
    "a negative length": (
        GOOD.replace("prompt_tokens: 20", "prompt_tokens: -20"),
        "x.yaml:7: workload.requests.0: request 0: prompt_tokens is -20",
    ),
    "text in a column": (
        GOOD.replace("prompt_tokens: 20", "prompt_tokens: many"),
        "x.yaml:7: workload.requests.0.prompt_tokens: must be a whole number or a number or a "
        "list, got 'many'",
    ),
    "not a number": (
        GOOD.replace("prompt_tokens: 20", "arrival_s: .nan, prompt_tokens: 20"),
        "x.yaml:7: workload.requests.0.arrival_s: .nan is no finite number of at most 4.6e18",
    ),
    "an empty trace": (
        GOOD.replace("requests:\n    - {prompt_tokens: 20, output_tokens: 5}", "requests: []"),
        "x.yaml:6: workload.requests: ",
    ),
    "a trace file that is missing": (
        HEAD + "workload: {kind: azure, path: no.csv}\nallocator: {kind: paged}\n",
        "x.yaml:4: workload.path: ",
    ),
    "a list of no allocators": (
        GOOD.replace("{kind: paged}", "[]"),
        "x.yaml:8: allocator: must name at least one allocator",
    ),
    "a key given twice": (
        GOOD + "name: other\n",
        "x.yaml:9: name: is given twice, first in line 1",
    ),
    "a tag that builds objects": (
        GOOD + "description: !!python/object/apply:os.getcwd []\n",
        "x.yaml:9: description: the tag tag:yaml.org,2002:python/object/apply:os.getcwd "
        "has no meaning here",
    ),
    "an integer too large for a column": (
        GOOD + f"seeds: {'9' * 5000}\n",
        "x.yaml:9: seeds: 999999999999999999999999999999… is no finite number of at most",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_one_error_is_one_line_with_its_place(tmp_path: Path, case: str) -> None:
    text, expected = CASES[case]
    lines = errors_of(tmp_path, text)
    assert len(lines) == 1, lines
    assert lines[0].startswith(expected), lines[0]
    assert "\n" not in lines[0]


def test_all_errors_are_shown_at_once(tmp_path: Path) -> None:
    text = """\
name: 5
kv_cache: {num_slots: many}
max_model_len: 64
workload: {kind: azure, path: no.csv}
allocator:
  - {kind: paged, block_size: 0}
  - {kind: pagd}
cost: {kind: linear, base_s: slow}
figures: [wast]
sweep: {seeds: [1, 2]}
"""
    lines = errors_of(tmp_path, text)
    keys = [line.split(": ")[1] for line in lines]
    assert sorted(keys) == sorted(
        [
            "name",
            "kv_cache.num_slots",
            "workload.path",
            "allocator.0.block_size",
            "allocator.1.kind",
            "cost.base_s",
            "figures.0",
            "sweep.seeds",
        ]
    )
