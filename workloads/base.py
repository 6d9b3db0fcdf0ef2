"""What every workload is: parameters that give a trace."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

from workloads.trace import Trace


class Workload(ABC):
    """Where the requests of a run come from.

    Extend it by one class with annotated constructor parameters (they are the configuration) and
    one line in workloads.WORKLOADS. Constructors check values and touch no file; a bad value is
    a ValueError that begins with "<parameter>: ", several bad ones are as many such lines.
    """

    kind: ClassVar[str]
    uses_seed: ClassVar[bool] = False
    # parameters that are themselves {kind: …}, and the table that names their entries
    nested: ClassVar[Mapping[str, Mapping[str, type]]] = {}
    # parameters that are lists of {kind: …}, likewise
    nested_lists: ClassVar[Mapping[str, Mapping[str, type]]] = {}
    # parameters that are lists of mappings, and the keys that an item may have
    item_keys: ClassVar[Mapping[str, Sequence[str]]] = {}

    @abstractmethod
    def load(self, seed: int) -> Trace:
        """The requests; the same bytes for the same parameters, files and seed.

        Raises TraceError if a file cannot be used as it is.
        """


# every workload by its kind; filled in workloads/__init__, here because workloads name workloads
WORKLOADS: dict[str, type[Workload]] = {}
