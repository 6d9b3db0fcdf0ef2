"""All requests of a session go to one replica, whatever the replicas do.

Models session-based routing as vLLM's production stack (SessionRouter) and others have it. Differs
on purpose: they hash a session's key onto a ring of replicas, so that replicas may come and go;
here replicas stay, and new sessions take them in turn, in order of their first arrival, which is
as even as a hash can be.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from sim.routers.base import Router, Server
from sim.sequence import IntArray


class SessionAffinity(Router):
    """The replica that has served the session before; new sessions take them in turn."""

    kind: ClassVar[str] = "session_affinity"
    needs: frozenset[str] = frozenset({"sessions"})

    def bind(self, num_replicas: int, requests: IntArray, session: IntArray | None) -> None:
        super().bind(num_replicas, requests, session)
        self._number_of: dict[int, int] = {}

    def route(self, request: int, replicas: Sequence[Server]) -> int:
        if self.session is None:
            raise ValueError("session_affinity: the trace says no sessions")
        turn = len(self._number_of) % self.num_replicas
        return self._number_of.setdefault(self.session.item(request), turn)
