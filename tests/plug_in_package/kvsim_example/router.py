"""Long prompts have a replica of their own: the last one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from sim.parts import Router, Server


class ByLength(Router):
    """Prompts of long_tokens or more go to the last replica, others to the least loaded one."""

    kind: ClassVar[str] = "by_length"

    def __init__(self, long_tokens: int = 1024) -> None:
        if long_tokens < 1:
            raise ValueError(f"long_tokens: must be at least 1, got {long_tokens}")
        self.long_tokens = long_tokens

    def route(self, request: int, replicas: Sequence[Server]) -> int:
        if self.num_prompt_tokens(request) >= self.long_tokens:
            return len(replicas) - 1
        others = [replica.num_requests for replica in replicas[:-1]] or [0]
        return others.index(min(others))
