"""What an ideal prefix cache would do: policies over one cache, replayed without an engine.

POLICIES is their table. A replay has no clock: it says what a cache of some capacity finds of a
trace's prompts, between a floor (none, fifo) and a ceiling (clairvoyant, unbounded).
"""

from sim.policies.references import References, references
from sim.policies.replay import POLICIES, hit_blocks, hit_rate

__all__ = ["POLICIES", "References", "hit_blocks", "hit_rate", "references"]
