"""Request traces from files and generators.

WORKLOADS names everything an experiment's workload can be, FORMATS those that read trace files,
ARRIVALS the arrival processes of generators. To add one, write a class and add a line here (for
a file format: in formats.py).
"""

from workloads.arrivals import ARRIVALS
from workloads.base import Workload
from workloads.formats import FORMATS, open_file
from workloads.inline import Inline
from workloads.lengths import Lengths
from workloads.sharegpt import ShareGPT

WORKLOADS: dict[str, type[Workload]] = {
    **FORMATS,
    "inline": Inline,
    "lengths": Lengths,
    "sharegpt": ShareGPT,
}

__all__ = ["ARRIVALS", "FORMATS", "WORKLOADS", "Workload", "open_file"]
