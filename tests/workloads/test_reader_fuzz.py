"""Whatever a file holds, a reader gives a trace or a TraceError of one sentence."""

from __future__ import annotations

import gzip
import io
import json
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trace_files import EXAMPLE_FILES, open_as

from workloads import FORMATS
from workloads.azure import Azure
from workloads.table import Table
from workloads.trace import TraceError

fuzz = settings(
    max_examples=400,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
NAMES = ["arrival_s", "prompt_tokens", "output_tokens"]
AZURE_NAMES = ["TIMESTAMP", "ContextTokens", "GeneratedTokens"]
cells = st.one_of(
    st.integers(-2, 10**6).map(str),
    st.sampled_from(
        ["", "0", "1", "1.5", "nan", '"', '"1"', "2023-11-16 18:15:46", "\r", "\0", "é"]
    ),
    st.text(max_size=5),
)
rows = st.lists(cells, max_size=5).map(",".join)
csv_text = st.tuples(
    st.sampled_from(["", "\ufeff", "\n"]),
    st.one_of(
        st.permutations([*NAMES, "max_tokens"]), st.permutations(AZURE_NAMES), st.just(NAMES)
    ),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.lists(rows, max_size=6),
).map(lambda parts: parts[0] + parts[2].join([",".join(parts[1]), *parts[3]]))
json_values = st.one_of(
    st.integers(0, 9).map(str),
    st.sampled_from(
        ["1.5", "NaN", "null", "true", '"1"', '"\\ud800"', "[]", "{}", "1e400", "9" * 400]
    ),
)
json_rows = st.one_of(
    st.tuples(json_values, json_values, json_values).map(
        lambda v: f'{{"arrival_s": {v[0]}, "prompt_tokens": {v[1]}, "output_tokens": {v[2]}}}'
    ),
    st.text(max_size=20),
)
contents = st.one_of(
    st.binary(max_size=200),
    csv_text.map(lambda text: text.encode(errors="surrogatepass")),
    st.lists(json_rows, max_size=5).map(lambda r: "\n".join(r).encode(errors="surrogatepass")),
)


def read(path, make):
    check(path, lambda: make(str(path)).load(0))


def check(path, attempt):
    try:
        message = f"{path}: {len(attempt())} requests"
    except TraceError as error:
        message = str(error)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message


@pytest.mark.parametrize("drop", ["error", "drop"])
@fuzz
@given(content=contents, packed=st.booleans(), sort=st.sampled_from(["error", "sort"]))
def test_nothing_but_a_trace_error_escapes_from_text(tmp_path, drop, content, packed, sort):
    path = tmp_path / "t"
    path.write_bytes(gzip.compress(content) if packed else content)
    options = {"on_bad_row": drop, "unsorted": sort}
    read(path, lambda name: Azure(name, **options))
    for form in ("csv", "jsonl", "parquet"):
        read(path, lambda name, form=form: Table(name, format=form, **options))


def parquet_bytes():
    buffer = io.BytesIO()
    pq.write_table(pa.table([pa.array(range(1, 40))] * 3, NAMES), buffer)
    return buffer.getvalue()


GOOD = {
    "csv": (",".join(NAMES) + "\n" + "".join(f"{i},{i},{i}\n" for i in range(1, 40))).encode(),
    "jsonl": b'{"arrival_s": 0, "prompt_tokens": 1, "output_tokens": 2}\n' * 20,
    "parquet": parquet_bytes(),
}


@pytest.mark.parametrize("form", GOOD)
@fuzz
@given(data=st.data(), packed=st.booleans())
def test_nothing_but_a_trace_error_escapes_from_damaged_files(tmp_path, form, data, packed):
    content = bytearray(gzip.compress(GOOD[form]) if packed else GOOD[form])
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / "t"
    path.write_bytes(content[: data.draw(st.integers(len(content) // 2, len(content)))])
    read(path, lambda name: Table(name, format=form))


JSON_FORMATS = [name for name, (file, _) in EXAMPLE_FILES.items() if ".json" in file]
odd_values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.sampled_from([0, 1, 64, 2**31, 2**63, 0.5, 1e300, float("nan"), float("inf"), "\ud800"]),
    st.text(max_size=4),
    st.lists(st.integers(-2, 2**65), max_size=3),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
)


def places(value):
    """Every container in a JSON value, with each key that leads to something in it."""
    keys = list(value) if isinstance(value, dict) else range(len(value))
    for key in keys:
        yield value, key
        if isinstance(value[key], dict | list):
            yield from places(value[key])


@pytest.mark.usefixtures("companions")
@pytest.mark.parametrize("name", JSON_FORMATS)
@pytest.mark.parametrize("drop", ["error", "drop"])
@settings(fuzz, max_examples=150)
@given(data=st.data())
def test_nothing_but_a_trace_error_escapes_from_odd_values(tmp_path, name, drop, data):
    file, text = EXAMPLE_FILES[name]
    rows = [json.loads(line) for line in text.splitlines()]
    for _ in range(data.draw(st.integers(1, 3))):
        container, key = data.draw(st.sampled_from(list(places(rows))))
        container[key] = data.draw(odd_values)
    path = tmp_path / file
    path.write_text("\n".join(json.dumps(row) for row in rows))
    options = {"unsorted": "sort", "zero_tokens": data.draw(st.sampled_from([None, "drop", "one"]))}
    read(path, lambda name_of_file: open_as(name, name_of_file, on_bad_row=drop, **options))


ODD = [b"", b"0", b"-1", b"1.5", b"1e400", b"9" * 30, b"nan", b"null", b"[]", b"[0]", b"{}", b'"']
FIELDS = re.compile(rb"[^,:\s]+")


@st.composite
def damaged(draw, content):
    """An example with a few bytes flipped, fields swapped or made odd, parts cut or doubled."""
    content = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        fields = list(FIELDS.finditer(content)) or [re.search(b"$", content)]
        one, other = sorted(draw(st.tuples(*[st.integers(0, len(fields) - 1)] * 2)))
        first, last = fields[one].span(), fields[other].span()
        match draw(st.sampled_from(["flip", "odd", "swap", "cut", "double", "end"])):
            case "flip":
                place = draw(st.integers(0, len(content)))
                content[place : place + 1] = bytes([draw(st.integers(0, 255))])
            case "odd":
                content[slice(*first)] = draw(st.sampled_from(ODD))
            case "swap" if one < other:
                words = bytes(content[slice(*first)]), bytes(content[slice(*last)])
                content[slice(*last)], content[slice(*first)] = words
            case "cut":
                del content[first[0] : last[0]]
            case "double":
                content[last[0] : last[0]] = content[first[0] : last[0]]
            case "end":
                del content[last[0] :]
    return bytes(content)


@pytest.mark.usefixtures("companions")
@pytest.mark.parametrize("name", FORMATS)
@settings(fuzz, max_examples=150)
@given(
    data=st.data(),
    drop=st.sampled_from(["error", "drop"]),
    sort=st.sampled_from(["error", "sort"]),
    zero=st.sampled_from([None, "drop", "one"]),
)
def test_nothing_but_a_trace_error_escapes_from_a_damaged_example(
    tmp_path, name, data, drop, sort, zero
):
    name_of_file, text = EXAMPLE_FILES[name]
    path = tmp_path / name_of_file
    path.write_bytes(data.draw(damaged(text if isinstance(text, bytes) else text.encode())))
    options = {"on_bad_row": drop, "unsorted": sort, "zero_tokens": zero}
    file = open_as(name, str(path), **options)
    for attempt in (lambda: file.load(0), file.lengths, file.raw):
        check(path, attempt)
