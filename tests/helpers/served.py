"""A server that a command starts, for tests: at a free port of this machine, stopped by its process id."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

USUAL = "127.0.0.1:8000"
"""Where a server listens that is told no port; documents say so."""


class Started(NamedTuple):
    """A server that listens."""

    place: str
    """Host and port."""
    printed: str
    """What it said, as if at the usual place."""

    def at_this(self, text: str) -> str:
        """The text with this server's place for the usual one."""
        return text.replace(USUAL, self.place)


@contextmanager
def started(line: str, folder: Path) -> Iterator[Started]:
    """Run a line of shell that serves, `unskew` being the one of this environment, until the block ends."""
    own = f"{shlex.quote(sys.executable)} -m unskew "
    script = f"exec {own + line.removeprefix('unskew ') if line.startswith('unskew ') else line} --port 0"
    log = folder / "server.log"
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with log.open("wb") as out:
        process = subprocess.Popen(["bash", "-euc", script], cwd=folder, stdout=out, stderr=out, env=environment)
    try:
        while not (found := re.search(r"at http://(\S+?)/?\n", log.read_text())):
            assert process.poll() is None, log.read_text()
            time.sleep(0.02)
        first = log.read_text().partition("\n")[0]
        yield Started(found[1], first.replace(found[1], USUAL))
    finally:
        process.terminate()
        process.wait(20)
        log.unlink()
