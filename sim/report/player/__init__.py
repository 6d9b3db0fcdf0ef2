"""The block-map player: recorded runs of one experiment, watched in a page that needs no network.

    player_section(recordings(stored))    the fragment of a page; None if nothing was recorded

Data flow one way: reading.py reads a folder of results, recordings.py holds what was recorded,
sampling.py bounds it, landmarks.py finds the moments worth a jump, packing.py makes it small,
still.py draws a few moments for readers without JavaScript, section.py puts the fragment together.
The page's own modules (*.js, in the order of section.SCRIPTS) unpack it, keep the state of the
pools, and draw.
"""

from sim.report.player.reading import recordings
from sim.report.player.recordings import Recording
from sim.report.player.section import player_section

__all__ = ["Recording", "player_section", "recordings"]
