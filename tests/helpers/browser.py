"""A browser without a window for tests of pages, driven through a pipe by the protocol of its developer tools."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
_OPTIONS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-extensions --hide-scrollbars --remote-debugging-pipe"
)

# the browser reads from 3 and writes to 4
_START = """
import fcntl, os, sys
into, out = (fcntl.fcntl(int(each), fcntl.F_DUPFD, 10) for each in sys.argv[1:3])
os.dup2(into, 3)
os.dup2(out, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


def installed() -> str | None:
    """Where the browser is; None where there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One tab."""

    def __init__(self, into: int, out: int, seconds: float) -> None:
        self._into, self._out, self._until, self._sent = into, out, time.monotonic() + seconds, 0
        self._rest, self._session, self._home = b"", "", "file:"
        self.problems: list[str] = []
        """What pages have written to the console, thrown, or wanted from elsewhere."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """What a method of the protocol answers."""
        self._sent += 1
        asked = {"id": self._sent, "method": method, "params": parameters}
        asked |= {"sessionId": self._session} if self._session else {}
        os.write(self._into, json.dumps(asked).encode() + b"\0")
        while True:
            told = self._next()
            if told.get("id") == self._sent:
                assert "error" not in told, f"{method}: {told['error']}"
                return dict(told["result"])
            self._listen(told)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._out], [], [], max(0.0, self._until - time.monotonic()))
            assert ready, "the browser takes too long"
            more = os.read(self._out, 2**20)
            assert more, "the browser has ended"
            self._rest += more
        first, self._rest = self._rest.split(b"\0", 1)
        return dict(json.loads(first))

    def _listen(self, told: dict[str, Any]) -> None:
        method, about = told.get("method", ""), told.get("params", {})
        if method in ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled"):
            self.problems.append(json.dumps(about)[:500])
        if method == "Network.requestWillBeSent" and not about["request"]["url"].startswith((self._home, "data:")):
            self.problems.append(f"asks for {about['request']['url']}")

    def open(self, page: Path | str, *, width: int, dark: bool = False, media: str = "screen") -> None:
        """Open a file, or the page at an address, in a window of this width, on a light or a dark screen."""
        self._home = page if isinstance(page, str) else "file:"
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=media, features=[scheme])
        self.call("Page.navigate", url=page if isinstance(page, str) else page.as_uri())
        while self.run("document.readyState") != "complete" or self.run("location.href") == "about:blank":
            time.sleep(0.02)

    def until(self, script: str) -> Any:
        """The value of an expression, once it is true."""
        while not (found := self.run(script)):
            assert time.monotonic() < self._until, f"never true: {script}"
            time.sleep(0.02)
        return found

    def run(self, script: str) -> Any:
        """The value of an expression."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def shoot(self, path: Path, *, most: int = 6000) -> None:
        """Write the whole page as an image."""
        height = min(int(self.run("document.documentElement.scrollHeight")), most)
        box = {"x": 0, "y": 0, "width": self.run("innerWidth"), "height": height, "scale": 1}
        image = self.call("Page.captureScreenshot", captureBeyondViewport=True, clip=box)
        path.write_bytes(base64.b64decode(image["data"]))


@contextmanager
def browser(profile: Path, *, seconds: float = 60) -> Iterator[Browser]:
    """A browser with a folder of its own, which ends with the block."""
    name = installed()
    assert name is not None
    read_by_it, into = os.pipe()
    out, written_by_it = os.pipe()
    start = [sys.executable, "-S", "-c", _START, str(read_by_it), str(written_by_it)]
    command = [*start, name, *_OPTIONS.split(), f"--user-data-dir={profile}", "about:blank"]
    process = subprocess.Popen(
        command,
        pass_fds=(read_by_it, written_by_it),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(read_by_it)
    os.close(written_by_it)
    try:
        tab = Browser(into, out, seconds)
        yield tab
        tab._session = ""
        tab.call("Browser.close")
        process.wait(10)
    finally:
        process.kill()
        process.wait()
        os.close(into)
        os.close(out)
