"""Downloads of public traces, from a server in a thread."""

from __future__ import annotations

import hashlib
import resource
import signal
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest
import yaml
from file_server import CONTENT, FILES, SECOND, Server

from workloads import publictraces
from workloads.anyfile import NamedTrace
from workloads.fetch import FetchError, fetch
from workloads.publictraces import AbsentTraceError


def source(content: bytes) -> dict[str, object]:
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


HEAD = {"about": "a test", "licence": "MIT", "repository": "owner/repo", "commit": "c0ffee"}
CATALOGUE = {
    "small": {**HEAD, "shared": "small/a.csv", "files": {"data/a.csv": source(CONTENT)}},
    "two": {
        **HEAD,
        "shared": "two",
        "files": {"data/a.csv": source(CONTENT), "data/b.txt": source(SECOND)},
    },
    "unpinned": {**HEAD, "shared": "u.csv", "files": {"data/a.csv": {}}},
    "derived": {**HEAD, "shared": "d.csv", "not_fetched": "it was derived"},
    "clients": {**HEAD, "shared": "m", "read_by": "servegen", "not_fetched": "it was derived"},
}


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        thread = Thread(target=running.serve_forever, daemon=True)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache, no shared folder, and the catalogue of these tests."""
    (tmp_path / "traces.yaml").write_text(yaml.safe_dump(CATALOGUE, sort_keys=False))
    monkeypatch.setattr(publictraces, "DATA", tmp_path / "traces.yaml")
    monkeypatch.setenv("KVSIM_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("KVSIM_SHARED", raising=False)
    publictraces.public_traces.cache_clear()
    yield tmp_path / "cache"
    publictraces.public_traces.cache_clear()


def names_below(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_a_trace_is_fetched_once_and_then_read_by_its_name(server, cache):
    place = fetch("small", server.url)
    assert place == cache / "small" / "a.csv"
    assert place.read_bytes() == CONTENT
    assert names_below(cache) == ["a.csv"]
    assert fetch("small", server.url) == place
    assert server.ranges == [None]
    trace = NamedTrace(name="small", limit=5).load(0)
    assert len(trace) == 5
    assert trace.notes == {"taken for table": 5, "cut: beyond limit": 29995}


def test_a_trace_of_several_files_is_a_folder(server, cache):
    assert fetch("two", server.url) == cache / "two"
    assert names_below(cache / "two") == ["a.csv", "b.txt"]
    assert publictraces.find("two") == cache / "two"
    (cache / "two" / "b.txt").unlink()
    with pytest.raises(AbsentTraceError):
        publictraces.find("two")


def test_a_file_whose_hash_nobody_knows_is_taken_whole_or_not_at_all(server, cache):
    server.manner = "cut"
    with pytest.raises(FetchError, match=rf"ended after .* of {len(CONTENT):,} bytes; fetch again"):
        fetch("unpinned", server.url)
    assert names_below(cache) == []
    with pytest.raises(AbsentTraceError, match="kvsim trace fetch unpinned"):
        publictraces.find("unpinned")
    server.manner = "ranges"
    assert fetch("unpinned", server.url).read_bytes() == CONTENT
    assert publictraces.find("unpinned") == cache / "unpinned" / "a.csv"
    asked = len(server.ranges)
    fetch("unpinned", server.url)
    assert len(server.ranges) == asked


@pytest.mark.parametrize("manner", ["redirect", "no ranges"])
def test_redirects_and_servers_without_ranges_are_fine(server, manner):
    server.manner = manner
    assert fetch("small", server.url).read_bytes() == CONTENT


def test_a_download_cut_short_is_said_and_continued(server, cache):
    server.manner = "cut"
    half = len(CONTENT) // 2
    with pytest.raises(FetchError, match=rf"ended after {half:,} of {len(CONTENT):,} bytes; fetch"):
        fetch("small", server.url)
    assert names_below(cache) == [".a.csv.part"]
    server.manner = "ranges"
    assert fetch("small", server.url).read_bytes() == CONTENT
    assert server.ranges == [None, f"bytes={half}-"]
    assert names_below(cache) == ["a.csv"]


@pytest.mark.parametrize("manner", ["no ranges", "range refused"])
def test_where_a_server_cannot_continue_it_starts_again(server, cache, manner):
    part = cache / "small" / ".a.csv.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(CONTENT[:1000])
    server.manner = manner
    assert fetch("small", server.url).read_bytes() == CONTENT


def test_an_older_attempt_that_is_too_long_is_begun_again(server, cache):
    part = cache / "small" / ".a.csv.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(CONTENT + b"more")
    assert fetch("small", server.url).read_bytes() == CONTENT


def test_another_content_is_refused_and_nothing_is_kept(server, cache):
    server.manner = "other content"
    with pytest.raises(FetchError, match=r"has another content than the pinned one \(SHA-256 "):
        fetch("small", server.url)
    assert names_below(cache) == []


@pytest.mark.parametrize("manner", ["too long", "too short"])
@pytest.mark.parametrize("left", [b"", b"?" * 1000])
def test_a_file_of_another_length_is_refused_before_it_is_written(server, cache, manner, left):
    part = cache / "small" / ".a.csv.part"
    if left:
        part.parent.mkdir(parents=True)
        part.write_bytes(left)
    server.manner = manner
    with pytest.raises(FetchError, match=rf"bytes, the pinned file {len(CONTENT):,}; nothing was"):
        fetch("small", server.url)
    assert names_below(cache) == []


def test_what_an_older_attempt_left_damaged_is_fetched_from_the_start_at_once(server, cache):
    server.manner = "too short, of no length"
    with pytest.raises(FetchError, match="ended after 22 of "):
        fetch("small", server.url)
    server.manner = "ranges"
    assert fetch("small", server.url).read_bytes() == CONTENT
    assert server.ranges == [None, "bytes=22-", None]
    assert names_below(cache) == ["a.csv"]


def test_a_damaged_rest_of_full_length_is_fetched_from_the_start_at_once(server, cache):
    part = cache / "small" / ".a.csv.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"?" * len(CONTENT))
    assert fetch("small", server.url).read_bytes() == CONTENT
    assert server.ranges == [None]


def test_a_damaged_file_in_the_cache_is_fetched_again(server, cache):
    place = fetch("small", server.url)
    place.write_bytes(b"?" * len(CONTENT))
    assert fetch("small", server.url).read_bytes() == CONTENT


def test_no_network_is_one_sentence(server, cache):
    port = server.server_address[1]
    server.server_close()
    with pytest.raises(FetchError, match=rf"^http://127.0.0.1:{port}/owner/.* cannot be reached: "):
        fetch("small", server.url)
    assert names_below(cache) == []


@pytest.mark.parametrize("manner", ["loop", "ranges"])
def test_an_answer_that_is_no_file_is_one_sentence(server, monkeypatch, manner):
    server.manner = manner
    monkeypatch.setitem(FILES, "/owner/repo/c0ffee/data/a.csv", None)
    with pytest.raises(FetchError, match=r"the server answers (404|302) ") as error:
        fetch("small", server.url)
    assert "\n" not in str(error.value)


def test_a_place_that_cannot_be_written_is_one_sentence(server, cache):
    cache.write_text("a file where the folder should be")
    with pytest.raises(FetchError, match=r"a\.csv: cannot be written: "):
        fetch("small", server.url)


def test_a_full_disk_is_one_sentence_and_leaves_nothing_in_the_files_place(server, cache):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(FetchError, match=r"a\.csv: cannot be written: "):
            fetch("small", server.url)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert names_below(cache) == [".a.csv.part"]
    assert fetch("small", server.url).read_bytes() == CONTENT


def test_what_cannot_be_fetched_says_why(server):
    with pytest.raises(FetchError, match="trace derived: cannot be fetched: it was derived"):
        fetch("derived", server.url)
    with pytest.raises(ValueError, match="name: 'smal' is unknown, did you mean small; accepted: "):
        fetch("smal", server.url)
    with pytest.raises(FetchError, match="ftp://x: is no address; accepted: http"):
        fetch("small", "ftp://x")


def test_a_copy_in_the_shared_folder_is_found_after_the_cache(server, tmp_path, monkeypatch):
    copy = tmp_path / "traces" / "small" / "a.csv"
    copy.parent.mkdir(parents=True)
    copy.write_bytes(CONTENT)
    monkeypatch.setenv("KVSIM_SHARED", str(tmp_path))
    assert publictraces.find("small") == copy
    assert publictraces.find("small") != fetch("small", server.url)
    assert publictraces.find("small") == publictraces.public_traces()["small"].place()


def test_an_absent_trace_says_how_to_get_it(cache, tmp_path, monkeypatch):
    with pytest.raises(AbsentTraceError) as error:
        NamedTrace(name="small").load(0)
    assert str(error.value) == (
        f"trace small: is not in the cache {cache / 'small'}, and KVSIM_SHARED is not set; "
        "get it with: kvsim trace fetch small"
    )
    monkeypatch.setenv("KVSIM_SHARED", str(tmp_path))
    with pytest.raises(AbsentTraceError, match=r"nor at .*d\.csv; it cannot be fetched: it was "):
        NamedTrace(name="derived").load(0)


def test_a_name_that_another_kind_reads_is_refused():
    with pytest.raises(ValueError, match="name: clients is read by 'kind: servegen', not by trace"):
        NamedTrace(name="clients")


def test_the_cache_is_where_the_environment_says(monkeypatch):
    monkeypatch.delenv("KVSIM_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert publictraces.cache_folder() == Path("/x/kvsim/traces")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert publictraces.cache_folder() == Path.home() / ".cache/kvsim/traces"
