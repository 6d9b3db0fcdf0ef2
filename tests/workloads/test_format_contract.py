"""What every trace format promises, on a small file of each."""

import gzip

import numpy as np
import pytest
from trace_files import EXAMPLE_FILES

from workloads import FORMATS, open_file
from workloads.files import LFS_POINTER
from workloads.trace import TraceError

BOM = "\ufeff"

pytestmark = pytest.mark.usefixtures("companions")
every_format = pytest.mark.parametrize("name", FORMATS)


def test_every_format_has_an_example() -> None:
    assert set(EXAMPLE_FILES) == set(FORMATS)


@every_format
def test_an_example_is_recognized_from_its_content(write, name):
    file, text = EXAMPLE_FILES[name]
    assert open_file(write(file, text)).kind == name


@every_format
@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("change", ["bom", "crlf", "no end", "blank lines"])
def test_how_a_text_file_is_written_makes_no_difference(write, name, change, suffix):
    file, text = EXAMPLE_FILES[name]
    if isinstance(text, bytes):
        pytest.skip("not text")
    plain = open_file(write(file, text)).load(0)
    changed = {
        "bom": BOM + text,
        "crlf": text.replace("\n", "\r\n"),
        "no end": text.rstrip("\n"),
        "blank lines": text + "\n\n",
    }[change]
    opened = open_file(write(f"{change}-{file}{suffix}", changed))
    assert opened.kind == name
    assert opened.load(0).digest() == plain.digest()


@every_format
def test_a_file_cut_short_while_packed_is_one_sentence(write, name):
    file, text = EXAMPLE_FILES[name]
    data = gzip.compress(text.encode() if isinstance(text, str) else text, mtime=0)
    path = write(f"cut-{file}", data[: len(data) // 2])
    with pytest.raises(TraceError, match="the gzip data is damaged or cut short"):
        FORMATS[name](path).load(0)


@every_format
def test_a_git_lfs_pointer_in_a_files_place_is_one_sentence(write, name):
    path = write(EXAMPLE_FILES[name][0], LFS_POINTER + b"v1\noid sha256:00\nsize 9\n")
    with pytest.raises(TraceError, match="is a Git LFS pointer"):
        FORMATS[name](path).load(0)


@every_format
def test_an_empty_file_has_no_requests(write, name):
    with pytest.raises(TraceError, match=r"at least one request is needed|is not a"):
        FORMATS[name](write(EXAMPLE_FILES[name][0], b"")).load(0)


@every_format
def test_a_limit_keeps_the_first_requests_and_what_they_share(write, name):
    path = write(*EXAMPLE_FILES[name])
    whole, part = FORMATS[name](path).load(0), FORMATS[name](path, limit=1).load(0)
    assert len(part) == 1
    assert part.provides == whole.provides
    assert np.array_equal(part.prompt_tokens, whole.prompt_tokens[:1])
    if part.content is not None and whole.content is not None:
        assert part.content.runs(0) == whole.content.runs(0)


@every_format
def test_rows_as_they_stand_and_a_trace_hold_the_same_requests(write, name):
    path = write(*EXAMPLE_FILES[name])
    raw, trace = FORMATS[name](path).raw(), FORMATS[name](path).load(0)
    assert sorted(raw.fields["prompt_tokens"]) == sorted(trace.prompt_tokens)
    assert (raw.content is None) == (trace.content is None)
