"""Request traces from files and generators.

WORKLOADS names everything an experiment's workload can be, FORMATS those that read trace files,
ARRIVALS the arrival processes of generators, LENGTH_DISTRIBUTIONS their lengths. To add one,
write a class and add a line here (for the others: in their own file).
"""

from workloads.alpaca import Alpaca
from workloads.anyfile import AnyFile, NamedTrace
from workloads.arrivals import ARRIVALS
from workloads.base import Workload
from workloads.distributions import LENGTH_DISTRIBUTIONS
from workloads.formats import FORMATS, open_file
from workloads.inline import Inline
from workloads.lengths import Lengths
from workloads.servegen import ServeGen
from workloads.sessions import Sessions
from workloads.sharegpt import ShareGPT
from workloads.sharegpt_json import ShareGPTJSON
from workloads.synthetic import Synthetic

WORKLOADS: dict[str, type[Workload]] = {
    **FORMATS,
    "alpaca": Alpaca,
    "file": AnyFile,
    "inline": Inline,
    "lengths": Lengths,
    "sessions": Sessions,
    "servegen": ServeGen,
    "sharegpt": ShareGPT,
    "sharegpt_json": ShareGPTJSON,
    "synthetic": Synthetic,
    "trace": NamedTrace,
}

__all__ = ["ARRIVALS", "FORMATS", "LENGTH_DISTRIBUTIONS", "WORKLOADS", "Workload", "open_file"]
