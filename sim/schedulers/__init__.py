"""Schedulers: who computes what in the next iteration. One file a scheduler.

SCHEDULERS is the table of plug-ins.
"""

from sim.schedulers.base import Scheduler
from sim.schedulers.fcfs import Fcfs
from sim.schedulers.static import Static

SCHEDULERS: dict[str, type[Scheduler]] = {
    "fcfs": Fcfs,
    "static": Static,
}

__all__ = ["SCHEDULERS", "Scheduler"]
