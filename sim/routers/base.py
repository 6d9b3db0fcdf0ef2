"""The router contract: which replica serves a request, decided when the request arrives.

A router has no clock and changes no replica. At the time of an arrival every replica has applied
what ended by then, and nothing that begins then. Its constructor parameters are its configuration;
`bind` tells it how many replicas there are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Protocol

from sim.sequence import PROMPT_TOKENS, IntArray


class Server(Protocol):
    """What a router may ask of a replica. Nothing of it changes the replica."""

    @property
    def num_requests(self) -> int:
        """Requests that were sent to it and have not ended: they wait or run."""

    def lookup(self, request: int) -> int:
        """Tokens of the request's prompt that its memory holds, so that it need not compute them.

        What a running iteration writes counts where its memory finds that already. For routers
        that say `reads_prefixes` only.
        """


class Router(ABC):
    """Base of all routers.

    To write one, define `kind`, take the configuration in the constructor (raise ValueError with
    a message that starts with the parameter's name) and implement `route`.
    """

    kind: ClassVar[str]
    needs: frozenset[str] = frozenset()
    """What the trace must provide beside lengths, for example sessions."""
    reads_prefixes: bool = False
    """Whether it calls `lookup`; then the memory must find prefixes."""

    def bind(self, num_replicas: int, requests: IntArray, session: IntArray | None) -> None:
        """Take the requests of a run (see sim.sequence), and their sessions if the trace has any.

        session is int64, one a request.
        """
        self.num_replicas = num_replicas
        self.requests = requests
        self.session = session

    @abstractmethod
    def route(self, request: int, replicas: Sequence[Server]) -> int:
        """The number of the replica that serves the request. Called once a request, in order."""

    def num_prompt_tokens(self, request: int) -> int:
        """The length of a request's prompt."""
        return self.requests.item(request, PROMPT_TOKENS)


def least_loaded(replicas: Sequence[Server]) -> int:
    """The number of the replica with the fewest requests, the first of several."""
    loads = [replica.num_requests for replica in replicas]
    return loads.index(min(loads))
