"""The contract suites, for plug-ins of your own: each checks a class in a second or so.

>>> from sim.testing import check_cost
>>> from sim.costs import COST_MODELS
>>> check_cost(COST_MODELS["linear"])

What is raised is a ContractError, or for memory a ConservationError, both AssertionErrors, with
the rule that is broken in one sentence. The tests of this project run the same suites over every
entry of its tables.
"""

from sim.allocators.checked import CheckedAllocator, visible_state
from sim.testing.allocators import check_allocator
from sim.testing.beginnings import SharedBeginnings
from sim.testing.costs import check_cost
from sim.testing.history import History
from sim.testing.routers import check_router
from sim.testing.rules import ContractError
from sim.testing.schedulers import check_scheduler
from sim.testing.traces import check_workload

__all__ = [
    "CheckedAllocator",
    "ContractError",
    "History",
    "SharedBeginnings",
    "check_allocator",
    "check_cost",
    "check_router",
    "check_scheduler",
    "check_workload",
    "visible_state",
]
