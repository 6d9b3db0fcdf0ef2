"""Schedulers: who computes what in the next iteration. One file a scheduler.

SCHEDULERS is the table of plug-ins.
"""

from sim.schedulers.base import Scheduler
from sim.schedulers.fcfs import Fcfs

SCHEDULERS: dict[str, type[Scheduler]] = {
    "fcfs": Fcfs,
}

__all__ = ["SCHEDULERS", "Scheduler"]
