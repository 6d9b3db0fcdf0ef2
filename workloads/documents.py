"""Files that are one JSON document, for formats that do not write a request a line."""

from __future__ import annotations

from workloads.files import BYTE_ORDER_MARK, open_binary, refuse_other_content
from workloads.readers import DECODER
from workloads.trace import TraceError

MAX_DOCUMENT_BYTES = 1 << 30  # the largest published one, ShareGPT, has two thirds of that


def read_document(path: str) -> object:
    """What a JSON file holds. Raises TraceError if it cannot be read or is no JSON."""
    with open_binary(path) as file:
        data = file.read(MAX_DOCUMENT_BYTES + 1).removeprefix(BYTE_ORDER_MARK)
    refuse_other_content(path, data)
    if len(data) > MAX_DOCUMENT_BYTES:
        raise TraceError(f"{path}: is larger than {MAX_DOCUMENT_BYTES} bytes; accepted: up to that")
    try:
        return DECODER.decode(data.decode())
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{path}: is not a JSON document: {error}") from None


def read_object(path: str) -> dict[str, object]:
    """The JSON object that a file holds. Raises TraceError if it holds anything else."""
    document = read_document(path)
    if not isinstance(document, dict):
        raise TraceError(f"{path}: is not a JSON object; accepted: one object a file")
    return document
