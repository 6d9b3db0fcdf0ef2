"""Schedulers: who computes what in the next iteration. One file a scheduler.

SCHEDULERS is the table of plug-ins.
"""

from sim.schedulers.base import Scheduler
from sim.schedulers.fcfs import Fcfs
from sim.schedulers.mini_sglang import MiniSglang
from sim.schedulers.nano_vllm import NanoVllm
from sim.schedulers.sglang import Sglang
from sim.schedulers.static import Static
from sim.schedulers.tgi import Tgi
from sim.schedulers.trtllm import TrtLlm
from sim.schedulers.vllm_v0 import VllmV0
from sim.schedulers.vllm_v1 import VllmV1
from sim.schedulers.vllm_v1_async import VllmV1Async

SCHEDULERS: dict[str, type[Scheduler]] = {
    "fcfs": Fcfs,
    "mini_sglang": MiniSglang,
    "nano_vllm": NanoVllm,
    "sglang": Sglang,
    "static": Static,
    "tgi": Tgi,
    "trtllm": TrtLlm,
    "vllm_v0": VllmV0,
    "vllm_v1": VllmV1,
    "vllm_v1_async": VllmV1Async,
}

__all__ = ["SCHEDULERS", "Scheduler"]
