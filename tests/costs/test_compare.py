"""A simulated run beside a measured one."""

import gzip
import json
from pathlib import Path

import pandas as pd
import pytest

from sim.cli import main
from sim.costs.fit.compare import compare, read_measured
from sim.costs.fit.tables import TableError

EXPERIMENT = """\
name: two
kv_cache: {num_slots: 64}
max_model_len: 64
workload:
  kind: inline
  requests:
    - {prompt_tokens: 20, output_tokens: 5}
    - {arrival_s: 1.0, prompt_tokens: 30, output_tokens: 3}
allocator: {kind: paged}
cost: {kind: constant, seconds: 0.5}
"""


def measured_run(folder: Path) -> Path:
    """Twice as fast as the simulation, on a clock of its own."""
    folder.mkdir()
    rows = [
        {
            "arrival_time": 1e9,
            "queued_ts": 77.0,
            "first_token_ts": 77.25,
            "last_token_ts": 78.25,
            "output_toks": 5,
        },
        {
            "arrival_time": 1e9 + 1,
            "queued_ts": 78.1,
            "first_token_ts": 78.25,
            "last_token_ts": 78.75,
            "output_toks": 3,
        },
    ]
    text = "\n".join(json.dumps(row) for row in rows)
    (folder / "requests.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    series = {"t": [1.0, 2.0], "running": [1, 2], "waiting": [1, 0], "kv_cache_pct": [50.0, 0.0]}
    pd.DataFrame(series).to_csv(folder / "timeseries.csv", index=False)
    return folder


def test_every_metric_is_compared_and_a_picture_drawn(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(EXPERIMENT)
    assert main(["run", str(tmp_path / "x.yaml"), "--out", str(tmp_path)]) == 0
    table, paths = compare(tmp_path / "two", measured_run(tmp_path / "real"))
    assert all(path.stat().st_size > 0 for path in paths)
    cells = table.set_index("metric")
    assert cells.loc["ttft_s_mean", "measured"] == 0.25
    assert cells.loc["ttft_s_mean", "simulated"] == 0.5
    assert cells.loc["ttft_s_mean", "error_percent"] == 100
    assert cells.loc["tpot_s_p50", "measured"] == 0.25
    assert cells.loc["makespan_s", "measured"] == 1.75
    assert cells.loc["num_running_max", "error_percent"] == 0
    assert "num_running_mean while requests wait" not in cells.index, (
        "nobody waits in the simulation"
    )


def test_a_folder_that_is_no_measured_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        TableError, match=r"experiment\.json: No such file or directory; accepted: a folder"
    ):
        compare(tmp_path, tmp_path)


def test_a_bad_time_is_named_by_its_row_and_one_token_has_no_tpot(tmp_path: Path) -> None:
    folder = measured_run(tmp_path / "real")
    lines = gzip.decompress((folder / "requests.jsonl.gz").read_bytes()).decode().splitlines()
    rows = [json.loads(line) for line in lines]
    (folder / "requests.jsonl.gz").unlink()
    target = folder / "requests.jsonl"
    target.write_text(
        "\n".join(json.dumps(row) for row in (rows[0], {**rows[1], "output_toks": 1}))
    )
    assert len(read_measured(folder).tpot_s) == 1
    for value in (None, "soon"):
        bad = {**rows[1], "first_token_ts": value}
        target.write_text("\n".join(json.dumps(row) for row in (rows[0], bad)))
        with pytest.raises(TableError, match=r"requests\.jsonl, row 2: first_token_ts is"):
            read_measured(folder)
