"""python -m sim.costs.fit."""

import sys

from sim.costs.fit.command import main

sys.exit(main())
