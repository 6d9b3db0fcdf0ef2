"""A page in a headless Firefox, if there is one, by Firefox's own protocol: JSON over a socket.

It needs no driver beside the browser: with --marionette Firefox listens on a port of its profile's.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FIREFOX = shutil.which("firefox") or shutil.which("firefox-esr")
START_S = 60
PREFERENCES = {
    "app.normandy.enabled": False,
    "app.update.enabled": False,
    "browser.shell.checkDefaultBrowser": False,
    "datareporting.policy.dataSubmissionEnabled": False,
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
    "services.settings.server": "data:,",
    "toolkit.telemetry.enabled": False,
}
# what the console says of a page: errors and warnings of scripts, styles and security policies
COMPLAINTS = """const address = arguments[0];
return Services.console.getMessageArray().filter((m) => m instanceof Ci.nsIScriptError
  && m.sourceName.startsWith(address)).map((m) => m.errorMessage);"""


class Firefox:
    """A connection to a running Firefox, with one window."""

    def __init__(self, port: int) -> None:
        self.socket = _connected(port)
        self.count = 0
        self._received()  # its greeting
        self.say("WebDriver:NewSession", pageLoadStrategy="normal")

    def say(self, command: str, **parameters: Any) -> Any:
        """Give a command; its value. Raises RuntimeError with Firefox's words."""
        self.count += 1
        text = json.dumps([0, self.count, command, parameters])
        self.socket.sendall(f"{len(text.encode())}:{text}".encode())
        _, _, error, result = self._received()
        if error is not None:
            raise RuntimeError(f"{command}: {error['error']}: {error['message']}")
        return result.get("value") if isinstance(result, dict) and "value" in result else result

    def open(self, address: str) -> None:
        self.say("WebDriver:Navigate", url=address)

    def run(self, script: str, *values: Any) -> Any:
        """What a script returns in the page."""
        return self.say("WebDriver:ExecuteScript", script=script, args=list(values), sandbox=None)

    def wait(self, expression: str, seconds: float = 20) -> None:
        """Until an expression is true."""
        end = time.monotonic() + seconds
        while not self.run(f"return Boolean({expression})"):
            if time.monotonic() > end:
                raise TimeoutError(expression)
            time.sleep(0.05)

    def point(self, x: int, y: int) -> None:
        """Move the mouse there, in the window."""
        move = {"type": "pointerMove", "x": x, "y": y, "duration": 0}
        mouse = {"type": "pointer", "id": "mouse", "actions": [move]}
        self.say("WebDriver:PerformActions", actions=[mouse])

    def press(self, key: str) -> None:
        strokes = [{"type": kind, "value": key} for kind in ("keyDown", "keyUp")]
        self.say(
            "WebDriver:PerformActions", actions=[{"type": "key", "id": "k", "actions": strokes}]
        )

    def complaints(self, address: str) -> list[str]:
        self.say("Marionette:SetContext", value="chrome")
        found = self.say(
            "WebDriver:ExecuteScript", script=COMPLAINTS, args=[address], sandbox="system"
        )
        self.say("Marionette:SetContext", value="content")
        return list(found)

    def _received(self) -> Any:
        size = b""
        while not size.endswith(b":"):
            size += self._read(1)
        return json.loads(self._read(int(size[:-1])))

    def _read(self, count: int) -> bytes:
        read = b""
        while len(read) < count:
            part = self.socket.recv(count - len(read))
            if not part:
                raise ConnectionError("Firefox has gone")
            read += part
        return read


@contextmanager
def firefox(folder: Path) -> Iterator[Firefox]:
    """A running Firefox, whose profile is in the folder."""
    assert FIREFOX is not None
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    said = [f'user_pref("{name}", {json.dumps(value)});' for name, value in PREFERENCES.items()]
    (folder / "user.js").write_text("\n".join([*said, f'user_pref("marionette.port", {port});']))
    command = [FIREFOX, "--headless", "--marionette", "--remote-allow-system-access"]
    command += ["--profile", str(folder), "about:blank"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        browser = Firefox(port)
        yield browser
        browser.socket.close()
    finally:
        process.terminate()
        process.wait(START_S)


def _connected(port: int) -> socket.socket:
    end = time.monotonic() + START_S
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), START_S)
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
