"""Routers: which replica serves a request. One file a router.

ROUTERS is the table of plug-ins.
"""

from sim.routers.base import Router
from sim.routers.least_loaded import LeastLoaded
from sim.routers.prefix_aware import PrefixAware
from sim.routers.round_robin import RoundRobin
from sim.routers.session_affinity import SessionAffinity

ROUTERS: dict[str, type[Router]] = {
    "least_loaded": LeastLoaded,
    "prefix_aware": PrefixAware,
    "round_robin": RoundRobin,
    "session_affinity": SessionAffinity,
}

__all__ = ["ROUTERS", "Router"]
