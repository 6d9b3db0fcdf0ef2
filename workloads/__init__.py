"""Request traces from files and generators.

WORKLOADS names everything an experiment's workload can be, FORMATS those that read trace files.
Of generators, ARRIVALS are the arrival processes, LENGTH_DISTRIBUTIONS the lengths, PREFIXES what
prompts begin with, TURNS what follows a request, DURATIONS the times between. To add one, write a
class and add a line here (for all but WORKLOADS: in their own file).
"""

from workloads.alpaca import Alpaca
from workloads.anyfile import AnyFile, NamedTrace
from workloads.arrivals import ARRIVALS
from workloads.base import WORKLOADS, Workload
from workloads.combine import Filter, Mix, Repeat
from workloads.distributions import LENGTH_DISTRIBUTIONS
from workloads.durations import DURATIONS
from workloads.formats import FORMATS, open_file
from workloads.inline import Inline
from workloads.lengths import Lengths
from workloads.prefixes import PREFIXES
from workloads.servegen import ServeGen
from workloads.sessions import Sessions
from workloads.sharegpt import ShareGPT
from workloads.sharegpt_json import ShareGPTJSON
from workloads.stretch import Stretch
from workloads.synthetic import Synthetic
from workloads.turns import TURNS
from workloads.wmt16 import WMT16

WORKLOADS |= {
    **FORMATS,
    "alpaca": Alpaca,
    "file": AnyFile,
    "filter": Filter,
    "inline": Inline,
    "lengths": Lengths,
    "mix": Mix,
    "repeat": Repeat,
    "sessions": Sessions,
    "servegen": ServeGen,
    "sharegpt": ShareGPT,
    "sharegpt_json": ShareGPTJSON,
    "stretch": Stretch,
    "synthetic": Synthetic,
    "trace": NamedTrace,
    "wmt16": WMT16,
}

__all__ = [
    "ARRIVALS",
    "DURATIONS",
    "FORMATS",
    "LENGTH_DISTRIBUTIONS",
    "PREFIXES",
    "TURNS",
    "WORKLOADS",
    "Workload",
    "open_file",
]
