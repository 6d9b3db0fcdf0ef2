"""The catalogue of public traces, and files of any format."""

import gzip
import hashlib
import json
import re

import numpy as np
import pytest
from trace_files import EXAMPLE_FILES, OPTIONS

from workloads import FORMATS
from workloads.anyfile import AnyFile, NamedTrace
from workloads.publictraces import public_traces

# published, but not at hand when their names were written down: no hash, no copy to look at
UNSEEN = {
    "azure-code-2023",
    "mooncake-toolagent",
    "mooncake-synthetic",
    "mooncake-arxiv",
    "bailian-a",
    "bailian-b",
}


def test_every_trace_is_pinned_or_says_why_not():
    for name, trace in public_traces().items():
        assert re.fullmatch(r"[a-z0-9-]+", name)
        assert bool(trace.sources) != bool(trace.not_fetched), name
        names = [source.file_name for source in trace.sources]
        assert len(set(names)) == len(names)
        for source in trace.sources:
            assert trace.repository is not None
            assert re.fullmatch(r"[0-9a-f]{40}", trace.commit or "")
            if trace.name in UNSEEN:
                assert source.sha256 is source.num_bytes is None
                continue
            assert re.fullmatch(r"[0-9a-f]{64}", source.sha256 or "")
            assert (source.num_bytes or 0) > 0


def test_copies_of_published_files_have_the_pinned_hashes(traces):
    expected = json.loads((traces / "EXPECTED.json").read_text())
    checked = 0
    for trace in public_traces().values():
        for source in trace.sources:
            if trace.name in UNSEEN:
                continue
            copy = traces / trace.shared
            if copy.is_dir():
                copy = copy / f"{source.file_name}.gz"
            data = copy.read_bytes()
            assert (
                hashlib.sha256(data).hexdigest()
                == expected[str(copy.relative_to(traces))]["sha256"]
            )
            plain = gzip.decompress(data) if copy.suffix == ".gz" else data
            assert len(plain) == source.num_bytes
            assert hashlib.sha256(plain).hexdigest() == source.sha256
            checked += 1
    assert checked > 100


NOT_BY_PATH_ALONE = {*OPTIONS, "nanoflow"}  # columns need names, nanoflow has no arrivals
READABLE = ["azure-conv-2023", "mooncake-1000", "kv-cache-tester", "ragpulse", "dynamo-pi"]


@pytest.mark.parametrize("name", READABLE)
def test_shared_traces_are_read_by_their_names(traces, monkeypatch, tmp_path, name):
    monkeypatch.setenv("KVSIM_SHARED", str(traces.parent))
    monkeypatch.setenv("KVSIM_CACHE", str(tmp_path))
    options = {"unsorted": "sort"} if name == "ragpulse" else {}
    trace = NamedTrace(name=name, limit=20, zero_tokens="one", **options).load(0)
    assert len(trace) <= 20
    assert trace.content is not None or name == "azure-conv-2023"


def test_every_shared_place_is_there(traces):
    for trace in public_traces().values():
        assert trace.name in UNSEEN or (traces / trace.shared).exists(), trace.name


@pytest.mark.usefixtures("companions")
@pytest.mark.parametrize("name", [name for name in FORMATS if name not in NOT_BY_PATH_ALONE])
def test_a_file_of_any_format_is_read_as_its_own_kind_reads_it(write, name):
    path = write(*EXAMPLE_FILES[name])
    trace, own = AnyFile(path).load(0), FORMATS[name](path).load(0)
    assert trace.digest() == own.digest()
    assert trace.notes == {f"taken for {name}": len(own), **own.notes}


def test_options_of_rows_hold_for_any_format(write):
    path = write(*EXAMPLE_FILES["azure"])
    trace = AnyFile(path, limit=1).load(0)
    assert np.array_equal(trace.prompt_tokens, [374])
    with pytest.raises(ValueError, match="limit: must be a whole number"):
        AnyFile(path, limit=0)
