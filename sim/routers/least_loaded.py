"""Requests go where the fewest wait and run at the time of their arrival.

The rule of vLLM's data-parallel front end and of "least connections" in general. Differs on
purpose: the counts are those of this very moment, where a real router's are as old as the last
report; a waiting request counts like a running one, where vLLM lets it weigh four times as much
(DPLBAsyncMPClient).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from sim.routers.base import Router, Server, least_loaded


class LeastLoaded(Router):
    """The replica with the fewest waiting and running requests, the first of several."""

    kind: ClassVar[str] = "least_loaded"

    def route(self, request: int, replicas: Sequence[Server]) -> int:
        return least_loaded(replicas)
