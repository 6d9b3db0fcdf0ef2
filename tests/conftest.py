"""Settings of all tests."""

import os
from pathlib import Path

from hypothesis import settings

# the commands that tests start find what is beside the project as the tests themselves do
_BESIDE = Path(__file__).parents[2] / "shared"
if _BESIDE.is_dir():
    os.environ.setdefault("KVSIM_SHARED", str(_BESIDE))

# the first call of compiled code may compile it: no example has a time limit of its own
settings.register_profile("kvsim", deadline=None)
settings.load_profile("kvsim")
