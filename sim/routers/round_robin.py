"""Requests go to the replicas in turn, whatever the replicas do.

The default of most load balancers (nginx, Kubernetes services), and the floor for all others here:
a prompt finds its prefix on one replica of many only by chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from sim.routers.base import Router, Server
from sim.sequence import IntArray


class RoundRobin(Router):
    """One replica after the other, in order of arrival."""

    kind: ClassVar[str] = "round_robin"

    def bind(self, num_replicas: int, requests: IntArray, session: IntArray | None) -> None:
        super().bind(num_replicas, requests, session)
        self._next = 0

    def route(self, request: int, replicas: Sequence[Server]) -> int:
        number = self._next
        self._next = (number + 1) % self.num_replicas
        return number
