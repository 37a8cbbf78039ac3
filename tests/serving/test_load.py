"""The load generator of the benchmark: waiting for a busy server is in its latencies."""

from __future__ import annotations

import json
import socketserver
import subprocess
import sys
import threading
import time
from pathlib import Path

LOAD = Path(__file__).resolve().parents[2] / "benchmarks" / "load.py"
COUNT, SLOW, RATE = 5, 0.03, 1000


class Slow(socketserver.StreamRequestHandler):
    """Answers every request on a connection after a while."""

    def handle(self) -> None:
        while self.rfile.readline():
            while self.rfile.readline().strip():
                pass
            time.sleep(SLOW)
            self.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")


def test_latencies_count_from_when_requests_were_due(tmp_path: Path) -> None:
    (tmp_path / "0").write_bytes(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    with socketserver.TCPServer(("127.0.0.1", 0), Slow) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        plan = {"address": server.server_address, "requests": str(tmp_path), "rate": RATE, "count": COUNT}
        told = json.dumps(plan | {"connections": 1}) + "\n"
        done = subprocess.run(
            [sys.executable, str(LOAD)], input=told, capture_output=True, text=True, timeout=60, check=True
        )
        server.shutdown()
    found = json.loads(done.stdout)
    assert found["statuses"] == {"200": COUNT}
    # the last was due after 4 ms, and its answer took five turns of the only connection
    assert found["latencies"][-1] >= 1000 * (COUNT * SLOW - (COUNT - 1) / RATE)
    assert found["latencies"] == sorted(found["latencies"])
