"""The claims that are measured quickly come out as recorded: what CI runs of kvsim claims."""

from __future__ import annotations

import contextlib
import shutil
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

from sim.cli import main

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "results" / "claims" / "verdicts.json"


def test_fast_claims_have_the_recorded_verdicts(tmp_path: Path) -> None:
    """Claims whose data is not here are no regressions; without KVSIM_SHARED these are more."""
    (tmp_path / "claims").mkdir()
    shutil.copy(RECORD, tmp_path / "claims")
    out, err = StringIO(), StringIO()
    with contextlib.chdir(ROOT), redirect_stdout(out), redirect_stderr(err):
        code = main(["claims", "--fast", "--out", str(tmp_path)])
    assert code == 0, err.getvalue()
    assert "confirmed" in out.getvalue()
