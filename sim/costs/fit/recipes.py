"""Which tables a shipped profile is fitted to, and the numbers beside them, with sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sim.costs.link import PCIE_5_GB_S

AICONFIGURATOR = (
    "ai-dynamo/aiconfigurator 095f58a51 (Apache-2.0, NVIDIA), perf data of vllm 0.24.0 and 0.14.0, "
    "sglang 0.5.14 and 0.5.10, trtllm 1.3.0rc20: a CUDA graph of one call, warm L2, uniform batches"
)
LLMSERVINGSIM = (
    "casys-kaist/LLMServingSim 5daddb2 (MIT), profiler/perf: vLLM 0.19.0 kernels of Llama-3.1-8B, "
    "bf16, from the profiler in eager mode, FlashAttention-2, block size 16"
)
VIDUR = "microsoft/vidur 7d47513 (MIT), data/profiling/compute, medians"

Constants = dict[str, dict[str, Any]]


def constants_of(
    host_us: float, host_source: str, graph_launch_us: float, peak_gb_s: float
) -> Constants:
    launch = "assumed, within the 3 to 6 us by which floors of one-call graphs are too high"
    return {
        "host_us": {"value": host_us, "source": host_source},
        "graph_launch_us": {
            "value": graph_launch_us,
            "source": launch if graph_launch_us else "times are kernels' own",
        },
        "peak_gb_s": {
            "value": peak_gb_s,
            "source": "datasheet; attention is never faster, whatever a table says of warm L2",
        },
        "all_reduce_us": {"value": 10.0, "source": "assumed: latency of one all-reduce"},
        "all_reduce_efficiency": {
            "value": 0.7,
            "source": "assumed: share of one direction of the GPUs' link",
        },
        "link_gb_s": {
            "value": PCIE_5_GB_S,
            "source": "datasheet; rates of small copies: sim/costs/link.py",
        },
    }


MODERN_HOST = "assumed: what one step in flight leaves of the engine's work between two steps"


@dataclass(frozen=True)
class Recipe:
    """How a profile is made. gpus: the name in each table, where it is not `gpu`."""

    gpu: str
    sms: int
    tables: tuple[str, ...]
    source: str
    constants: Mapping[str, Mapping[str, Any]]
    paging: str = "equal-prefetch"
    kernel: str = "vllm"
    gpus: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


ATTENTION_AND_LINEARS = ("decode_attention", "prefill_attention", "gemm", "layer_times")
WARM = (
    "The tables' calls ran in a loop: below 64 MB of KV part of it comes from L2. Where that is "
    "faster the simulation reads as from memory (sim/costs/forms.py, small_factor)."
)
NO_CONTEXT = (
    "Prompts were measured without earlier context: chunks with context follow the closed form."
)

RECIPES: dict[str, Recipe] = {
    "h200": Recipe(
        "H200",
        132,
        ATTENTION_AND_LINEARS,
        f"{AICONFIGURATOR}; small operations: an H100's, {VIDUR}",
        constants_of(300.0, MODERN_HOST, 4.0, 4800.0),
        gpus={"layer_times": "H100"},
        notes=(WARM, NO_CONTEXT),
    ),
    "h100": Recipe(
        "H100",
        132,
        ATTENTION_AND_LINEARS,
        f"{AICONFIGURATOR}; small operations: {VIDUR}",
        constants_of(300.0, MODERN_HOST, 4.0, 3350.0),
        notes=(WARM, NO_CONTEXT),
    ),
    "a100-80": Recipe(
        "A100",
        108,
        ATTENTION_AND_LINEARS,
        f"{AICONFIGURATOR}; small operations: {VIDUR}",
        constants_of(300.0, MODERN_HOST, 4.0, 2039.0),
        notes=(WARM, NO_CONTEXT),
    ),
    "rtx-4090": Recipe(
        "RTX 4090",
        128,
        ("mixed_batch_attention", "ragged_decode", "layer_times"),
        LLMSERVINGSIM,
        constants_of(300.0, MODERN_HOST, 0.0, 1008.0),
    ),
    "rtx-pro-6000": Recipe(
        "RTX PRO 6000 Blackwell Server",
        188,
        ("mixed_batch_attention", "ragged_decode", "layer_times"),
        LLMSERVINGSIM,
        constants_of(300.0, MODERN_HOST, 0.0, 1792.0),
    ),
}

# of the PagedAttention paper's stack only whole steps are known
STEP_BASE_US, STEP_SEQ_US = 27_000.0, 400.0  # Fig. 1, right: t = 27 ms + 0.4 ms x batch
STEP_WEIGHTS_MB, STEP_KV_MB = 25_700.0, 340.0  # OPT-13B; about 415 tokens a request, from Fig. 1
PAPER_SOURCE = (
    "PagedAttention paper (SOSP 2023), Fig. 1 read by eye: 270 tokens/s at batch 8 and 900 at 38, "
    "a 13B model on an A100-40GB, which is 27 ms + 0.4 ms a request; the former is charged to "
    "reading the weights, the latter to reading the KV. Two points, none kept out"
)
