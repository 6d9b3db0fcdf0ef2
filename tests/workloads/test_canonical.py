"""What is written to a canonical file is read back, all of it."""

import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from canonical_files import everything, packed
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workloads import open_file
from workloads.canonical import Canonical, canonical_table, write_canonical
from workloads.content import ContentBuilder, as_runs
from workloads.trace import COLUMNS, Trace, TraceError

in_a_folder = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60
)
lengths = st.integers(1, 2**31 - 1)
runs = st.tuples(st.integers(-9, 9), st.integers(0, 2**40), st.integers(1, 1000))


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """Traces with any of the columns, and perhaps content."""
    count = draw(st.integers(1, 6))
    columns = {"arrival_ns": sorted(draw(st.lists(st.integers(0, 2**62), min_size=count)))[:count]}
    for name, (low, high) in COLUMNS.items():
        if name not in {"arrival_ns", "parent"} and (draw(st.booleans()) or "tokens" in name):
            one = st.integers(low, high)
            columns[name] = draw(st.lists(one, min_size=count, max_size=count))
    if draw(st.booleans()):
        columns["parent"] = [draw(st.integers(-1, i - 1)) for i in range(count)]
    content = None
    if draw(st.booleans()):
        builder = ContentBuilder()
        prompts = draw(st.lists(st.lists(runs, min_size=1), min_size=count, max_size=count))
        columns["prompt_tokens"] = [sum(run[2] for run in prompt) for prompt in prompts]
        for prompt, length in zip(prompts, columns["prompt_tokens"], strict=True):
            builder.add(prompt, length)
        content = builder.build()
        if draw(st.booleans()):
            outputs = draw(st.lists(st.lists(runs), min_size=count, max_size=count))
            cells = [np.array(known, np.int64).reshape(-1, 3) for known in outputs]
            content = replace(content, outputs=as_runs(cells))
    arrays = {name: np.array(column) for name, column in columns.items()}
    return Trace(**arrays, content=content, has_output_identity=draw(st.booleans()))


@in_a_folder
@given(trace=traces())
def test_any_trace_is_read_back_with_the_same_digest(tmp_path: Path, trace: Trace) -> None:
    path = tmp_path / "t.parquet"
    assert write_canonical(trace, path) == {}
    opened = open_file(str(path))
    assert isinstance(opened, Canonical)
    read = opened.load(0)
    assert read.digest() == trace.digest()
    assert read.provides == trace.provides
    assert read.notes == {}


def test_every_public_trace_is_read_back_with_the_same_digest(tmp_path, traces) -> None:
    names = list(json.loads((traces / "EXPECTED.json").read_text()))
    sessions = [name for name in names if name.startswith("kv-cache-tester/")]
    kinds = set()
    for name in [*(name for name in names if name not in sessions), *sessions[:2]]:
        try:
            file = replace(open_file(str(traces / name)), zero_tokens="one", unsorted="sort")
            trace = file.load(0)
        except TraceError:  # lengths without arrivals, tables beside a trace, other statistics
            continue
        write_canonical(trace, tmp_path / "t.parquet")
        read = open_file(str(tmp_path / "t.parquet")).load(0)
        assert (read.digest(), read.provides) == (trace.digest(), trace.provides), name
        kinds.add(file.kind)
    assert {"azure", "bailian", "burstgpt", "kv_cache_tester", "mooncake", "ragpulse"} <= kinds


def test_the_same_trace_gives_the_same_bytes() -> None:
    assert packed(everything()) == packed(everything())


def test_the_metadata_says_what_it_is_and_what_reading_the_source_dropped(write) -> None:
    path = write("t.parquet", packed(everything()))
    facts = json.loads(pq.read_schema(path).metadata[b"kvsim.trace"])
    assert facts["schema"] == 1
    assert facts["digest"] == everything().digest()
    read = open_file(path).load(0)
    assert read.notes == {"when converted: dropped: no output": 2}
    again = open_file(write("u.parquet", packed(read))).load(0)
    assert again.notes == read.notes
    assert json.loads(canonical_table(read).schema.metadata[b"kvsim.trace"])["notes"] == {
        "dropped: no output": 2
    }


def test_a_slice_keeps_content_and_moves_parents(write) -> None:
    path = write("t.parquet", packed(everything()))
    part = Canonical(path, start_s=0.5).load(0)
    assert part.content is not None
    assert part.content.runs(0) == [(1, 0, 80), (-2, 0, 20), (-3, 100, 20)]
    assert part.parent is not None
    assert part.parent.tolist() == [-1, -1]
    assert part.notes["follow-ups whose turn before is not there"] == 1


def damaged(change) -> bytes:
    """A file whose table was changed by other hands, its metadata kept."""
    table = canonical_table(everything())
    buffer = io.BytesIO()
    pq.write_table(change(table).replace_schema_metadata(table.schema.metadata), buffer)
    return buffer.getvalue()


def with_column(name, values):
    def change(table):
        return table.set_column(table.schema.get_field_index(name), name, [values])

    return change


RUN = {"source": 1, "start": 0, "length": 100}
BROKEN = {
    "a bad length": (with_column("prompt_tokens", [100, 0, 3]), "row 2: prompt_tokens is 0"),
    "a null": (with_column("arrival_ns", [5, None, 9]), "row 2: arrival_ns is None"),
    "no column": (lambda table: table.drop_columns(["output_tokens"]), "no column output_tokens"),
    "no sources": (lambda table: table.drop_columns(["output_source"]), "is damaged"),
    "no run": (with_column("prompt_runs", [[RUN], None, [RUN]]), "is damaged"),
    "a run below 1": (with_column("prompt_runs", [[{**RUN, "length": -1}], [], []]), "is damaged"),
    "no output runs": (lambda t: t.append_column("output_runs", [[None, [], []]]), "is damaged"),
    "numbers for runs": (with_column("prompt_runs", [1, 2, 3]), "is damaged"),
    "other runs": (with_column("prompt_runs", [[RUN], [RUN], [RUN]]), "content has 100 tokens"),
}


@pytest.mark.parametrize(("change", "sentence"), BROKEN.values(), ids=BROKEN.keys())
def test_a_file_that_was_tampered_with_is_one_sentence(write, change, sentence):
    path = write("t.parquet", damaged(change))
    with pytest.raises(TraceError, match=sentence) as error:
        open_file(path).load(0)
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)


OTHER_TRACES = {
    "a row less": lambda table: table.slice(0, 2),
    "another length": with_column("output_tokens", [10, 20, 31]),
    "another arrival": with_column("arrival_ns", [5, 6, 2**40]),
    "no max_tokens": lambda table: table.drop_columns(["max_tokens"]),
    "no content": lambda table: table.drop_columns(["prompt_runs", "output_source"]),
}


@pytest.mark.parametrize("change", OTHER_TRACES.values(), ids=OTHER_TRACES.keys())
@pytest.mark.parametrize("options", [{}, {"limit": 1}, {"on_bad_row": "drop"}])
def test_a_file_that_holds_another_trace_than_was_written_is_refused(write, change, options):
    path = write("t.parquet", damaged(change))
    sentence = f"is damaged: its digest is [0-9a-f]{{32}}, .* '{everything().digest()}'"
    for read in (lambda file: file.load(0), Canonical.lengths, Canonical.raw):
        with pytest.raises(TraceError, match=sentence):
            read(Canonical(path, **options))


def test_no_flipped_bit_gives_another_trace(write) -> None:
    content, digest = packed(everything()), everything().digest()
    for place in range(0, len(content), 7):
        flipped = bytearray(content)
        flipped[place] ^= 1 << place % 8
        try:
            read = Canonical(write("t.parquet", bytes(flipped))).load(0)
        except TraceError:
            continue
        assert (read.digest(), read.provides) == (digest, everything().provides), place


def test_another_version_of_the_schema_is_refused(write) -> None:
    table = canonical_table(everything()).replace_schema_metadata({b"kvsim.trace": '{"schema": 2}'})
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    with pytest.raises(TraceError, match="has schema version 2; accepted: 1"):
        open_file(write("t.parquet", buffer.getvalue())).load(0)


@settings(in_a_folder, max_examples=200)
@given(data=st.data())
def test_damage_anywhere_is_a_trace_or_one_sentence(tmp_path: Path, data: st.DataObject) -> None:
    content = bytearray(packed(everything()))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / "t.parquet"
    path.write_bytes(content[: data.draw(st.integers(len(content) // 2, len(content)))])
    for drop in ("error", "drop"):
        try:
            message = f"{path}: {len(Canonical(str(path), on_bad_row=drop).load(0))} requests"
        except TraceError as error:
            message = str(error)
        assert message.startswith(f"{path}: ")
        assert "\n" not in message
