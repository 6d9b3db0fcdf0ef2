"""A server of two files, in a thread, with the manners of good and bad servers."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CONTENT = b"arrival_s,prompt_tokens,output_tokens\n" + b"".join(
    b"%d,3,4\n" % i for i in range(30000)
)
SECOND = b"second file\n"
FILES = {"/owner/repo/c0ffee/data/a.csv": CONTENT, "/owner/repo/c0ffee/data/b.txt": SECOND}


class Handler(BaseHTTPRequestHandler):
    """Serves FILES in the manner of the server's `manner`, and notes the ranges asked for."""

    def do_GET(self) -> None:
        manner = self.server.manner
        self.server.ranges.append(self.headers.get("Range"))
        if manner == "redirect" and not self.path.startswith("/moved"):
            self._answer(302, b"", Location="/moved" + self.path)
            return
        if manner == "loop":
            self._answer(302, b"", Location=self.path)
            return
        content = FILES.get(self.path.removeprefix("/moved"))
        if content is None:
            self._answer(404, b"")
        elif manner == "other content":
            self._answer(200, content[::-1])
        elif manner == "too long":
            self._answer(200, content + b"x")
        elif manner == "too short":
            self._answer(200, b"<html>not found</html>")
        elif manner == "too short, of no length":
            self._answer(200, b"<html>not found</html>", says_length=False)
        elif manner == "cut":
            self._answer(200, content, num_sent=len(content) // 2)
        else:
            self._answer_range(content, manner)

    def _answer_range(self, content: bytes, manner: str) -> None:
        asked = self.headers.get("Range")
        if asked is None or manner == "no ranges":
            self._answer(200, content)
            return
        start = int(asked.removeprefix("bytes=").removesuffix("-"))
        if manner == "range refused":
            self._answer(416, b"")
            return
        where = f"bytes {start}-{len(content) - 1}/{len(content)}"
        self._answer(206, content[start:], **{"Content-Range": where})

    def _answer(
        self,
        status: int,
        body: bytes,
        num_sent: int | None = None,
        says_length: bool = True,
        **headers: str,
    ) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if says_length:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[:num_sent])
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    manner = "ranges"

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.ranges: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"
