"""What every trace format promises, on a small file of each."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trace_files import EXAMPLE_FILES, OPTIONS, open_as

from workloads import FORMATS, open_file
from workloads.canonical import write_canonical
from workloads.files import LFS_POINTER
from workloads.trace import Trace, TraceError
from workloads.tracefile import TraceFile

BOM = "\ufeff"

pytestmark = pytest.mark.usefixtures("companions")


def trace_of(file: TraceFile) -> Trace:
    """The trace of a file; where the format has no arrivals, all at once."""
    if any(column.field == "arrival_ns" for column in file.columns):
        return file.load(0)
    rows = file.lengths()
    rows.fields["arrival_ns"] = np.zeros(len(rows), np.int64)
    return rows.to_trace()


def respaced(text: str, separators: tuple[str, str]) -> str:
    """Lines of JSON with other separators; other text as it is."""
    if not text.startswith("{"):
        return text
    rows = [json.loads(line) for line in text.splitlines()]
    return "".join(json.dumps(row, separators=separators) + "\n" for row in rows)


def turned(text: str) -> str:
    """Comma-separated text with its columns the other way round and spaces around their names."""
    header, *rows = [line.split(",")[::-1] for line in text.splitlines()]
    names = ", ".join(f'" {name} "' for name in header)
    return "\n".join([names, *(",".join(row) for row in rows)]) + "\n"


every_format = pytest.mark.parametrize("name", FORMATS)


def test_every_format_has_an_example() -> None:
    assert set(EXAMPLE_FILES) == set(FORMATS)


@every_format
def test_an_example_is_recognized_from_its_content(write, name):
    file, text = EXAMPLE_FILES[name]
    if name in OPTIONS:
        pytest.skip("cannot be recognized: it needs parameters")
    assert open_file(write(file, text)).kind == name


@pytest.mark.parametrize("name", ["bailian", "lmcache_agent", "mooncake"])
def test_a_first_line_longer_than_what_is_seen_of_it_is_recognized(write, name):
    file, text = EXAMPLE_FILES[name]
    row = json.loads(text.splitlines()[0])
    size = FORMATS[name].block_size
    row |= {"input_length": 3000 * size, "hash_ids": list(range(3000))}
    assert open_file(write(file, respaced(json.dumps(row), (",", ":")))).kind == name


@every_format
@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
@pytest.mark.parametrize("change", ["bom", "crlf", "no end", "blank lines", "compact", "spaces"])
def test_how_a_text_file_is_written_makes_no_difference(write, name, change, suffix):
    file, text = EXAMPLE_FILES[name]
    if isinstance(text, bytes):
        pytest.skip("not text")
    plain = trace_of(open_as(name, write(file, text)))
    changed = {
        "bom": BOM + text,
        "crlf": text.replace("\n", "\r\n"),
        "no end": text.rstrip("\n"),
        "blank lines": "\n \r\n\n" + text + "\n\n",
        "compact": respaced(text, (",", ":")),
        "spaces": respaced(text, (" ,  ", " :\t")),
    }[change]
    path = write(f"{change}-{file}{suffix}", changed)
    assert name in OPTIONS or open_file(path).kind == name
    assert trace_of(open_as(name, path)).digest() == plain.digest()


@pytest.mark.parametrize("name", ["azure", "burstgpt", "columns", "nanoflow", "table", "vidur"])
def test_columns_in_another_order_make_no_difference(write, name):
    file, text = EXAMPLE_FILES[name]
    path = write(file, turned(text))
    assert name in OPTIONS or open_file(path).kind == name
    digests = [trace_of(open_as(name, at)).digest() for at in (path, write(f"plain-{file}", text))]
    assert digests[0] == digests[1]


def with_key(name: str, row: dict[str, Any]) -> dict[str, Any]:
    """A row, or a session, whose request says something more."""
    request = row
    if name == "dynamo":
        request = row["event"]["request"]
    elif name == "kv_cache_tester":
        request = row["requests"][0]
    request["a key of tomorrow"] = 1
    return row


JSON_FORMATS = [name for name, (_, text) in EXAMPLE_FILES.items() if text[:1] in {"{", b"{"}]


@pytest.mark.parametrize("name", [name for name in JSON_FORMATS if name != "vllm_bench"])
def test_keys_that_nothing_reads_are_counted(write, name):
    """vllm_bench is one object a run, not one a request."""
    file, text = EXAMPLE_FILES[name]
    rows = [with_key(name, json.loads(line)) for line in text.splitlines()]
    path = write(file, "".join(json.dumps(row) + "\n" for row in rows))
    notes = trace_of(open_as(name, path)).notes
    kind = "key" if "ignored: key 'a key of tomorrow'" in notes else "column"
    assert notes[f"ignored: {kind} 'a key of tomorrow'"] == len(rows)
    before = trace_of(open_as(name, write(f"plain-{file}", text))).notes
    assert not [note for note in before if note.startswith("ignored: key ")]


@every_format
@pytest.mark.parametrize("packing", ["gz", "zst"])
def test_a_file_cut_short_while_packed_is_one_sentence(write, name, packing):
    file, text = EXAMPLE_FILES[name]
    data = Path(write(f"{file}.{packing}", text)).read_bytes()
    path = write(f"cut-{file}", data[: len(data) // 2])
    with pytest.raises(TraceError, match=r"the (gzip|zstd) data is damaged or cut short"):
        trace_of(open_as(name, path))


@every_format
def test_a_git_lfs_pointer_in_a_files_place_is_one_sentence(write, name):
    path = write(EXAMPLE_FILES[name][0], LFS_POINTER + b"v1\noid sha256:00\nsize 9\n")
    with pytest.raises(TraceError, match="is a Git LFS pointer"):
        trace_of(open_as(name, path))


@every_format
def test_an_empty_file_has_no_requests(write, name):
    with pytest.raises(TraceError, match=r"at least one request is needed|is not a"):
        trace_of(open_as(name, write(EXAMPLE_FILES[name][0], b"")))


@every_format
def test_a_limit_keeps_the_first_requests_and_what_they_share(write, name):
    path = write(*EXAMPLE_FILES[name])
    whole, part = trace_of(open_as(name, path)), trace_of(open_as(name, path, limit=1))
    assert len(part) == 1
    assert part.provides == whole.provides
    assert np.array_equal(part.prompt_tokens, whole.prompt_tokens[:1])
    if part.content is not None and whole.content is not None:
        assert part.content.runs(0) == whole.content.runs(0)


@every_format
def test_rows_as_they_stand_and_a_trace_hold_the_same_requests(write, name):
    path = write(*EXAMPLE_FILES[name])
    raw, trace = open_as(name, path).raw(), trace_of(open_as(name, path))
    assert sorted(raw.fields["prompt_tokens"]) == sorted(trace.prompt_tokens)
    assert (raw.content is None) == (trace.content is None)


@every_format
def test_a_canonical_copy_is_the_same_trace(write, tmp_path, name):
    trace = trace_of(open_as(name, write(*EXAMPLE_FILES[name])))
    write_canonical(trace, tmp_path / "copy.parquet")
    copy = open_file(str(tmp_path / "copy.parquet")).load(0)
    assert (copy.digest(), copy.provides) == (trace.digest(), trace.provides)
