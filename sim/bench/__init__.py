"""How fast the simulator is, as ratios measured in one process."""
