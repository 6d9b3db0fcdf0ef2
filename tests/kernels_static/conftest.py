"""What the compiler makes of the kernels: `pytest tests/kernels_static`, in a process without
TRITON_INTERPRET.

No GPU is needed. Without torch and triton, or under the interpreter, nothing here is collected, and
the summary says so.
"""

import importlib.util
import os

# the default changes in triton 3.10; 3.9 warns about it, and warnings are errors here
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")

HAVE_TRITON = bool(importlib.util.find_spec("torch") and importlib.util.find_spec("triton"))
RUNNABLE = HAVE_TRITON and os.environ.get("TRITON_INTERPRET") != "1"
collect_ignore_glob = [] if RUNNABLE else ["test_*.py"]


def pytest_terminal_summary(terminalreporter):
    if not RUNNABLE:
        terminalreporter.write_line(
            "tests/kernels_static was not run: it needs torch and triton, and no TRITON_INTERPRET"
        )
