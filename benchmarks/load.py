"""A load generator for the benchmark of serving, in a process of its own: `python benchmarks/load.py`.

Reads one plan per line of standard input, as JSON, and answers each with one line. Arrivals are due at a fixed
rate whatever the server does (an open loop), and a latency counts from when the request was due, so that waiting
for a connection, or for a generator that lags, is in it. Without a rate each connection asks again as soon as it
has its answer (a closed loop).

It takes a core: within the last tenth of a millisecond before a request is due it does not sleep. A plan without
an address sends nothing and keeps its core as busy, for measuring what a second busy core does to something
else.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time
from collections import Counter, deque
from pathlib import Path
from typing import Any

AWAKE = 1e-4
"""Seconds before a request is due during which it does not sleep."""
BUFFER = 2**21


class Connection:
    """A connection that is kept alive, and the request that it carries."""

    def __init__(self, host: str, port: int) -> None:
        self.socket = socket.create_connection((host, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
        self.socket.setblocking(False)
        self.left = memoryview(b"")
        self.got = b""
        self.due = 0.0

    def start(self, request: bytes, due: float) -> None:
        """Begin to send."""
        self.left, self.got, self.due = memoryview(request), b"", due
        self.send()

    def send(self) -> None:
        """Send what the socket takes."""
        try:
            while self.left:
                self.left = self.left[self.socket.send(self.left) :]
        except BlockingIOError:
            pass

    def receive(self) -> int | None:
        """The status of the answer once it is there whole."""
        part = self.socket.recv(BUFFER)
        if not part:
            raise ConnectionError("the server closed a connection")
        self.got += part
        head, gap, body = self.got.partition(b"\r\n\r\n")
        if not gap:
            return None
        lower = head.lower()
        at = lower.index(b"content-length:") + len(b"content-length:")
        length = int(lower[at:].partition(b"\r\n")[0])
        return int(head.split(b" ", 2)[1]) if len(body) >= length else None


class Generator:
    """What sends, and what came back."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.requests = [path.read_bytes() for path in sorted(Path(plan["requests"]).iterdir())]
        self.rate, self.count = float(plan["rate"]), int(plan["count"])
        self.free = deque(Connection(*plan["address"]) for _ in range(plan["connections"]))
        self.busy: dict[socket.socket, Connection] = {}
        self.latencies: list[float] = []
        self.lags: list[float] = []
        self.statuses: Counter[int] = Counter()

    def run(self) -> dict[str, Any]:
        """Send all and wait for the answers; times in milliseconds, in the order of answers."""
        began, sent = time.perf_counter() + 0.01, 0
        while sent < self.count or self.busy:
            now = time.perf_counter()
            while sent < self.count and self.free and (due := self._due(began, sent, now)) <= now:
                connection = self.free.popleft()
                self.lags.append(1000 * (now - due))
                connection.start(self.requests[sent % len(self.requests)], due)
                self.busy[connection.socket] = connection
                sent, now = sent + 1, time.perf_counter()
            more = sent < self.count and self.free
            self._wait(self._due(began, sent, now) - time.perf_counter() if more else 1.0)
        seconds = time.perf_counter() - began
        for connection in self.free:
            connection.socket.close()
        lags = sorted(self.lags)
        return {
            "latencies": self.latencies,
            "statuses": self.statuses,
            "seconds": seconds,
            "lag": lags[int(0.99 * len(lags))],
        }

    def _due(self, began: float, index: int, now: float) -> float:
        """When a request is to be sent."""
        return began + index / self.rate if self.rate else now

    def _wait(self, seconds: float) -> None:
        """Wait for sockets, no longer than this, and see to those that are ready."""
        waiting = [each.socket for each in self.busy.values() if each.left]
        reads, writes, _ = select.select([*self.busy], waiting, [], max(seconds - AWAKE, 0))
        for ready in writes:
            self.busy[ready].send()
        for ready in reads:
            if (status := self.busy[ready].receive()) is not None:
                connection = self.busy.pop(ready)
                self.latencies.append(1000 * (time.perf_counter() - connection.due))
                self.statuses[status] += 1
                self.free.append(connection)


def idle(seconds: float) -> dict[str, Any]:
    """Keep a core busy as a generator does."""
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        select.select([sys.stdin], [], [], 0)
    return {}


def main() -> None:
    """Answer plans until there are no more."""
    for line in sys.stdin:
        plan = json.loads(line)
        result = idle(plan["seconds"]) if plan.get("address") is None else Generator(plan).run()
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
