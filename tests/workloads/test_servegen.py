"""Requests drawn from ServeGen's client models."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path

import numpy as np
import pytest

from workloads.servegen import ServeGen, window_lengths, window_times
from workloads.servegen_clients import read_clients
from workloads.trace import TraceError

HOURS_6 = 21_600
SHORT = {10: 0.25, 20: 0.75}
LONG = {1000: 0.5, 3000: 0.5}


def row(start: int, rate: float, distribution: str = "Gamma", shape: float = 1.0) -> str:
    return f"{start},{rate},1.0,{distribution},{shape},0.1"


IDLE = "{},0,0,,0,0"


def write_client(folder: Path, number: int, rows: list[str], dataset: dict | None = None) -> None:
    """A client; its lengths are SHORT in and LONG out in the first 12 h if nothing else is said."""
    table = {"input_tokens": str(SHORT), "output_tokens": str(LONG)}
    dataset = dataset if dataset is not None else {"0": table, str(HOURS_6): table}
    folder.mkdir(exist_ok=True)
    (folder / f"chunk-{number}-trace.csv").write_text("\n".join(rows) + "\n")
    (folder / f"chunk-{number}-dataset.json").write_text(json.dumps(dataset))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two clients over half an hour; the first is idle in the middle."""
    path = tmp_path / "clients"
    write_client(path, 3, [row(0, 2.0), IDLE.format(600), row(1200, 4.0, "Weibull", 0.7)])
    write_client(path, 11, [row(0, 1.0), row(600, 1.0), row(1200, 1.0)])
    return path


def counts_of(arrival_ns: np.ndarray, num_windows: int) -> list[int]:
    return np.bincount(arrival_ns // (600 * 10**9), minlength=num_windows).tolist()


def test_every_window_has_the_requests_of_its_rate(folder):
    trace = ServeGen(duration_s=1800, path=str(folder)).load(0)
    assert counts_of(trace.arrival_ns, 3) == [1200 + 600, 600, 2400 + 600]
    assert trace.provides == {"arrivals"}
    assert trace.notes == {}


def test_lengths_are_those_of_the_dataset_in_their_shares(folder):
    trace = ServeGen(duration_s=1800, path=str(folder)).load(0)
    assert set(trace.prompt_tokens.tolist()) == set(SHORT)
    assert set(trace.output_tokens.tolist()) == set(LONG)
    num = len(trace)
    share = np.count_nonzero(trace.prompt_tokens == 10) / num
    assert abs(share - 0.25) < 5 * math.sqrt(0.25 * 0.75 / num)
    share = np.count_nonzero(trace.output_tokens == 1000) / num
    assert abs(share - 0.5) < 5 * math.sqrt(0.5 * 0.5 / num)


def test_the_same_seed_gives_the_same_requests_and_another_seed_others(folder):
    first, again, other = (ServeGen(duration_s=1800, path=str(folder)).load(s) for s in (7, 7, 8))
    assert first.digest() == again.digest()
    assert first.digest() != other.digest()


def test_a_slice_has_the_requests_of_the_whole(folder):
    whole = ServeGen(duration_s=1800, path=str(folder)).load(0)
    part = ServeGen(start_s=300.5, duration_s=1000, path=str(folder)).load(0)
    start, end = 300_500_000_000, 1_300_500_000_000
    inside = (whole.arrival_ns >= start) & (whole.arrival_ns < end)
    assert np.array_equal(part.arrival_ns, whole.arrival_ns[inside] - start)
    assert np.array_equal(part.prompt_tokens, whole.prompt_tokens[inside])
    assert np.array_equal(part.output_tokens, whole.output_tokens[inside])


def test_another_client_changes_none_of_the_others_requests(folder):
    alone = ServeGen(duration_s=600, path=str(folder)).load(0)
    write_client(folder, 5, [row(0, 0.5), IDLE.format(600), IDLE.format(1200)])
    more = ServeGen(duration_s=600, path=str(folder)).load(0)
    assert len(more) == len(alone) + 300
    assert set(alone.arrival_ns.tolist()) <= set(more.arrival_ns.tolist())


def test_a_rate_may_be_scaled_and_fractions_of_a_request_are_drawn(tmp_path):
    path = tmp_path / "one"
    write_client(path, 1, [row(0, 0.001)])  # 0.6 requests
    (client,) = read_clients(str(path))
    counts = [len(window_times(client, 0, 0.5, seed)) for seed in range(2000)]
    assert set(counts) == {0, 1}
    assert abs(np.mean(counts) - 0.3) < 5 * math.sqrt(0.3 * 0.7 / 2000)
    trace = ServeGen(duration_s=600, path=str(path), rate_scale=1000).load(0)
    assert len(trace) == 600


@pytest.mark.parametrize(
    ("distribution", "shape", "cv"),
    [
        ("Gamma", 0.25, 2.0),
        ("Gamma", 1.0, 1.0),
        ("Gamma", 4.0, 0.5),
        ("Weibull", 1.0, 1.0),
        ("Weibull", 2.0, math.sqrt(math.gamma(2.0) / math.gamma(1.5) ** 2 - 1)),
    ],
)
def test_gaps_have_the_spread_of_their_distribution(tmp_path, distribution, shape, cv):
    write_client(tmp_path / "one", 1, [row(0, 100.0, distribution, shape)])
    (client,) = read_clients(str(tmp_path / "one"))
    times = window_times(client, 0, 1.0, 0)
    gaps = np.diff(times)
    assert len(times) == 60_000
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.05)
    assert times[0] >= 0
    assert times[-1] < 600e9


@pytest.mark.parametrize("distribution", ["Gamma", "Weibull"])
def test_an_extreme_shape_still_gives_the_requests_of_the_rate(tmp_path, distribution):
    write_client(tmp_path / "one", 1, [row(0, 3.0, distribution, 0.01)])
    (client,) = read_clients(str(tmp_path / "one"))
    for seed in range(50):
        times = window_times(client, 0, 1.0, seed)
        assert len(times) == 1800
        assert (np.diff(times) >= 0).all()
        assert 0 <= times[0] <= times[-1] < 600e9


def test_lengths_change_with_the_window_of_six_hours(tmp_path):
    late = {"input_tokens": "{7: 1.0}", "output_tokens": "{8: 1.0}"}
    early = {"input_tokens": "{5: 1.0}", "output_tokens": "{6: 1.0}"}
    rows = [row(start, 0.1) for start in (HOURS_6 - 600, HOURS_6)]
    write_client(tmp_path / "one", 1, rows, {"0": early, str(HOURS_6): late})
    trace = ServeGen(start_s=HOURS_6 - 600, duration_s=1200, path=str(tmp_path / "one")).load(0)
    assert trace.prompt_tokens.tolist() == [5] * 60 + [7] * 60
    assert trace.output_tokens.tolist() == [6] * 60 + [8] * 60


def test_lengths_of_zero_are_one_token_and_counted(tmp_path):
    dataset = {"0": {"input_tokens": "{0: 1.0}", "output_tokens": "{4: 1.0}"}}
    write_client(tmp_path / "one", 1, [row(0, 0.1)], dataset)
    trace = ServeGen(duration_s=600, path=str(tmp_path / "one")).load(0)
    assert trace.prompt_tokens.tolist() == [1] * 60
    assert trace.notes == {"altered: no prompt, taken as one token": 60}


def test_packed_chunks_are_read_like_plain_ones(folder, tmp_path):
    packed = tmp_path / "packed"
    packed.mkdir()
    for file in folder.iterdir():
        (packed / f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
    plain = ServeGen(duration_s=1800, path=str(folder)).load(0)
    assert ServeGen(duration_s=1800, path=str(packed)).load(0).digest() == plain.digest()


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("0,1.0,1.0,Gamma,1.0", "line 2: has 5 cells; accepted: 6, without a header"),
        ("start,rate,cv,pattern,a,b", "line 2: start is 'start'; accepted: a number from 0 to "),
        ("650,1,1,Gamma,1,1", "line 2: start is 650; accepted: a multiple of 600 s"),
        ("600,-1,1,Gamma,1,1", "line 2: rate is '-1'; accepted: a number from 0 to 1e"),
        ("600,nan,1,Gamma,1,1", "line 2: rate is 'nan'; accepted: "),
        ("600,1,1,Pareto,1,1", "line 2: distribution is 'Pareto'; accepted: Gamma, Weibull, or "),
        ("600,1,1,,1,1", "line 2: distribution is ''; accepted: Gamma, Weibull, or nothing"),
        ("600,1,1,Gamma,0,1", "line 2: shape is '0'; accepted: a number from 0.01 to "),
        ("0,1,1,Gamma,1,1", "line 2: starts a window that stands before"),
    ],
)
def test_a_bad_window_is_named(tmp_path, line, sentence):
    write_client(tmp_path / "one", 1, [row(0, 1.0), line])
    with pytest.raises(TraceError, match=f"chunk-1-trace.csv: {sentence}"):
        ServeGen(duration_s=600, path=str(tmp_path / "one")).load(0)


@pytest.mark.parametrize(
    "text",
    [
        "{10: 0.5}",
        "{-1: 1.0}",
        "{1.5: 1.0}",
        "{10: 2.0, 20: -1.0}",
        "{10}",
        "[1, 2]",
        "{10: {20: 1.0}}",
        "__import__('os')",
        "{" + "-" * 100_000 + "1: 1.0}",
        "{10: 1e400}",
        5,
        None,
    ],
)
def test_what_is_no_table_of_lengths_is_refused(tmp_path, text):
    dataset = {"0": {"input_tokens": text, "output_tokens": "{4: 1.0}"}}
    write_client(tmp_path / "one", 1, [row(0, 1.0)], dataset)
    with pytest.raises(TraceError, match=r"chunk-1-dataset\.json: window 0: input_tokens is .*; "):
        ServeGen(duration_s=600, path=str(tmp_path / "one")).load(0)


def test_requests_without_lengths_are_refused(tmp_path):
    dataset = {"0": {"input_tokens": "{}", "output_tokens": "{}"}}
    write_client(tmp_path / "one", 1, [row(0, 1.0)], dataset)
    with pytest.raises(TraceError, match="window 0: input_tokens is empty, but the client has "):
        ServeGen(duration_s=600, path=str(tmp_path / "one")).load(0)


@pytest.mark.parametrize("text", ["[1]", "{", "[" * 100_000, ""])
def test_a_dataset_that_is_no_object_is_refused(tmp_path, text):
    write_client(tmp_path / "one", 1, [row(0, 1.0)])
    (tmp_path / "one/chunk-1-dataset.json").write_text(text)
    with pytest.raises(TraceError, match=r"chunk-1-dataset\.json: is no JSON object of at most "):
        ServeGen(duration_s=600, path=str(tmp_path / "one")).load(0)


def test_a_folder_without_what_is_needed_is_one_sentence(tmp_path, folder):
    with pytest.raises(TraceError, match=r"has no chunk-N-trace\.csv; accepted: a folder"):
        ServeGen(duration_s=600, path=str(tmp_path)).load(0)
    with pytest.raises(TraceError, match="is no folder; accepted: a folder of chunk-N"):
        ServeGen(duration_s=600, path=str(folder / "chunk-3-trace.csv")).load(0)
    (folder / "chunk-3-dataset.json").unlink()
    with pytest.raises(TraceError, match=r"chunk-3-dataset\.json: no such file"):
        ServeGen(duration_s=600, path=str(folder)).load(0)


def test_a_span_without_requests_or_beyond_the_windows_is_refused(folder, tmp_path):
    with pytest.raises(TraceError, match="the windows end at 1800 s; accepted: start_s and dura"):
        ServeGen(duration_s=1801, path=str(folder)).load(0)
    write_client(tmp_path / "idle", 1, [IDLE.format(0)])
    with pytest.raises(TraceError, match="nobody asks in 600 s from 0 s"):
        ServeGen(duration_s=600, path=str(tmp_path / "idle")).load(0)
    with pytest.raises(
        TraceError, match=r"requests; accepted: at most 100,000,000, with a shorter"
    ):
        ServeGen(duration_s=1800, path=str(folder), rate_scale=1e5).load(0)


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"duration_s": 0, "path": "x"}, "duration_s: must be above 0"),
        ({"duration_s": 1, "path": "x", "start_s": -1}, "start_s: must be at least 0"),
        ({"duration_s": 1, "path": "x", "rate_scale": 0}, "rate_scale: must be above 0"),
        ({"duration_s": 1}, "path: one of path and name is needed, and only one"),
        ({"duration_s": 1, "path": "x", "name": "servegen-m-small"}, "path: one of path and name"),
        ({"duration_s": 1, "name": "azure-conv-2023"}, "name: azure-conv-2023 is read by 'kind: "),
    ],
)
def test_parameters_are_checked(parameters, sentence):
    with pytest.raises(ValueError, match=sentence):
        ServeGen(**parameters)


def test_the_published_clients_give_their_counted_requests(traces):
    path = traces / "servegen/language/m-small"
    clients = read_clients(str(path))
    assert len(clients) == 12
    start, num_windows = 36 * 3600, 6  # an hour of the second day
    trace = ServeGen(start_s=start, duration_s=3600, path=str(path), rate_scale=0.1).load(0)
    wanted = [
        sum(client.windows[start // 600 + i].rate * 60 for client in clients)
        for i in range(num_windows)
    ]
    assert counts_of(trace.arrival_ns, num_windows) == pytest.approx(wanted, abs=len(clients))


def test_the_published_lengths_are_drawn_in_their_shares(traces):
    clients = read_clients(str(traces / "servegen/language/m-small"))
    for client in clients[:3]:
        index = next(i for i, window in client.windows.items() if window.rate > 0)
        table = client.lengths(index, "input_tokens")
        drawn = window_lengths(client, index, "input_tokens", 50_000, 0)
        shares = np.searchsorted(np.sort(drawn), table.tokens, side="right") / len(drawn)
        # the Kolmogorov-Smirnov distance, at a level of about 1 in 10,000
        assert np.abs(shares - table.cumulative).max() < 2.2 / math.sqrt(len(drawn))
