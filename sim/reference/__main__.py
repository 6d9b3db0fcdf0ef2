"""python -m sim.reference [FOLDER]: write the reference pages (docs/reference)."""

from __future__ import annotations

import sys
from pathlib import Path

from sim.reference import write

if len(sys.argv) > 2 or "-h" in sys.argv or "--help" in sys.argv:
    print(__doc__)
    sys.exit(0 if len(sys.argv) == 2 else 2)
for path in write(Path(sys.argv[1] if len(sys.argv) == 2 else "docs/reference")):
    print(path)
