"""Cost models: how long an iteration takes. One file a model.

COST_MODELS is the table of plug-ins.
"""

from sim.costs.base import CostModel
from sim.costs.linear import Constant, Linear
from sim.costs.measured import Measured
from sim.costs.roofline import Roofline

COST_MODELS: dict[str, type[CostModel]] = {
    "constant": Constant,
    "linear": Linear,
    "roofline": Roofline,
    "measured": Measured,
}

__all__ = ["COST_MODELS", "CostModel"]
