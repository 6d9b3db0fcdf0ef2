"""Downloads of public traces: pinned by repository, commit, size and SHA-256.

A file arrives under a name of its own beside its place, and takes its place only when size and
hash are right. What an earlier attempt left is continued where the server can (HTTP ranges). A file
whose hash nobody here knows is taken as the server gives it for the commit, whole or not at all.
"""

from __future__ import annotations

import hashlib
import http.client
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from workloads.publictraces import PublicTrace, Source, named

GITHUB = "https://raw.githubusercontent.com"
TIMEOUT_S = 30
CHUNK_BYTES = 1 << 16


class FetchError(Exception):
    """A trace that cannot be fetched: one sentence."""


def fetch(name: str, base_url: str = GITHUB) -> Path:
    """Get a public trace into the cache, unless it is there; return where it is read.

    base_url is a server with the same files under /<repository>/<commit>/<path>. Raises
    FetchError, and ValueError for an unknown name; then nothing incomplete is in a file's place.
    """
    trace = named(name)
    if trace.not_fetched is not None:
        raise FetchError(f"trace {name}: cannot be fetched: {trace.not_fetched}")
    if not base_url.startswith(("http://", "https://")):
        raise FetchError(f"{base_url}: is no address; accepted: http://… or https://…")
    for source in trace.sources:
        server = trace.server if trace.server and base_url == GITHUB else base_url
        _fetch_file(trace, source, server.rstrip("/"))
    return trace.place()


def _fetch_file(trace: PublicTrace, source: Source, base_url: str) -> None:
    place = trace.folder() / source.file_name
    part = place.with_name(f".{place.name}.part")
    url = f"{base_url}/{trace.repository}/{trace.commit}/{source.path}"
    try:
        if place.exists() and _is_right(place, source):
            return
        place.parent.mkdir(parents=True, exist_ok=True)
        if source.num_bytes is None or source.sha256 is None:
            _download_unknown(url, part)
            part.replace(place)
            return
        is_resumed = _download(url, part, source.num_bytes)
        if is_resumed and not _is_right(part, source):
            part.unlink()  # what an earlier attempt left may be the fault
            _download(url, part, source.num_bytes)
        if not _is_right(part, source):
            part.unlink()
            raise FetchError(
                f"{url}: has another content than the pinned one (SHA-256 {source.sha256}, "
                f"{source.num_bytes:,} bytes); nothing was kept"
            )
        part.replace(place)
    except OSError as error:
        raise FetchError(f"{place}: cannot be written: {error.strerror or error}") from None


def _is_right(path: Path, source: Source) -> bool:
    if source.sha256 is None:
        return True
    if path.stat().st_size != source.num_bytes:
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == source.sha256


def _download(url: str, part: Path, num_bytes: int) -> bool:
    """Bring part to num_bytes, from where it ends; return whether it had a beginning.

    One byte more tells a file that is too long. Raises FetchError if the server does not give as
    much, or says that it has another number of bytes; OSError if part cannot be written.
    """
    have = part.stat().st_size if part.exists() else 0
    if have == num_bytes:
        return True
    if have > num_bytes:
        have = 0
    with _open(url, have) as answer:
        if not _continues(answer, have):
            have = 0
        is_resumed = have > 0
        total = _total_bytes(answer)
        if total is not None and total != num_bytes:
            part.unlink(missing_ok=True)
            raise FetchError(
                f"{url}: has {total:,} bytes, the pinned file {num_bytes:,}; nothing was kept"
            )
        with part.open("ab" if have else "wb") as file:
            while have <= num_bytes and (chunk := _read(url, answer, num_bytes + 1 - have)):
                file.write(chunk)
                have += len(chunk)
    if have < num_bytes:
        raise FetchError(
            f"{url}: ended after {have:,} of {num_bytes:,} bytes; fetch again to continue"
        )
    return is_resumed


def _download_unknown(url: str, part: Path) -> None:
    """Download a file of unknown size from its start.

    Raises FetchError if the server says how long it is and gives another number of bytes; OSError
    if part cannot be written.
    """
    with _open(url, 0) as answer, part.open("wb") as file:
        have = 0
        while chunk := _read(url, answer, CHUNK_BYTES):
            file.write(chunk)
            have += len(chunk)
        total = _total_bytes(answer)
    if have == 0 or total not in {None, have}:
        part.unlink()
        whole = f"{total:,}" if total else "some"
        raise FetchError(f"{url}: ended after {have:,} of {whole} bytes; fetch again")


def _continues(answer: Any, have: int) -> bool:
    """Whether the answer begins at byte have; otherwise it is the whole file."""
    where = answer.headers.get("Content-Range") or ""
    return answer.status == http.client.PARTIAL_CONTENT and where.startswith(f"bytes {have}-")


def _total_bytes(answer: Any) -> int | None:
    """The length of the whole file, as the server gives it; None if it does not."""
    headers = answer.headers
    if answer.status == http.client.PARTIAL_CONTENT:
        said = (headers.get("Content-Range") or "").rpartition("/")[2]
    elif headers.get("Content-Encoding", "identity") != "identity":
        return None
    else:
        said = headers.get("Content-Length") or ""
    return int(said) if said.isascii() and said.isdigit() else None


def _open(url: str, have: int) -> Any:
    """The server's answer, from byte have on if it can."""
    headers = {"User-Agent": "kvsim", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    try:
        return urllib.request.urlopen(
            urllib.request.Request(url, headers=headers), timeout=TIMEOUT_S
        )
    except urllib.error.HTTPError as error:
        error.close()
        if have and error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            return _open(url, 0)
        said = str(error.reason).strip().split("\n")[-1]  # of a loop of redirects: three lines
        raise FetchError(f"{url}: the server answers {error.code} {said}") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise FetchError(f"{url}: cannot be reached: {reason}") from None


def _read(url: str, answer: Any, at_most: int) -> bytes:
    try:
        chunk: bytes = answer.read(min(at_most, CHUNK_BYTES))
    except http.client.IncompleteRead as error:
        return error.partial
    except (OSError, http.client.HTTPException) as error:
        raise FetchError(f"{url}: the connection broke: {error}; fetch again to continue") from None
    return chunk
