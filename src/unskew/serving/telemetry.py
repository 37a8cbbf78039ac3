"""What a server tells of itself: counts for Prometheus, and a line of JSON for each request and reload."""

import logging
import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import orjson
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

LOGGER = logging.getLogger("unskew.serving")
TIMES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Edges of the histogram, in seconds."""


class Metrics:
    """The counters and histograms that `/metrics` tells."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        own: dict[str, Any] = {"registry": self.registry}
        living = own | {"multiprocess_mode": "livesum"}
        self.requests = Counter("unskew_requests", "Requests answered.", ["path", "status"], **own)
        self.seconds = Histogram("unskew_request_seconds", "From head to answer.", ["path"], buckets=TIMES, **own)
        self.documents = Counter("unskew_documents", "Documents ranked.", **own)
        told = "Folders that changed, by whether they were taken up."
        self.reloads = Counter("unskew_reloads", told, ["model", "done"], **own)
        told = "Processes that answer with this version."
        self.model = Gauge("unskew_model", told, ["model", "version"], **living)
        told = "Processes that did not take up the newest folder."
        self.held_back = Gauge("unskew_held_back", told, ["model"], **living)
        self.open = Gauge("unskew_open_requests", "Requests that are being answered.", **living)
        self.waiting = Gauge("unskew_waiting_requests", "Those of them that wait to be scored.", **living)
        told = "Pages and clicks for the log, by whether it took them."
        self.logged = Counter("unskew_logged", told, ["what", "done"], **own)
        self.store = Gauge("unskew_store", "1 while the store answers.", multiprocess_mode="livemin", **own)
        self._answering: dict[str, str] = {}

    def answers(self, versions: Mapping[str, str]) -> None:
        """Note the versions of models that answer now."""
        for name, version in self._answering.items():
            if versions.get(name) != version:
                self.model.labels(name, version).set(0)  # one that is counted over processes cannot be removed
        self._answering = dict(versions)
        for name, version in versions.items():
            self.model.labels(name, version).set(1)

    def logs(self, what: str, **counts: int) -> None:
        """Count pages or clicks that the log took (yes), did not (no), or that were refused."""
        for word, count in counts.items():
            if count:
                self.logged.labels(what, word).inc(count)

    def text(self) -> bytes:
        """In the format of Prometheus; of all processes where there are several."""
        if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
            return generate_latest(self.registry)
        whole = CollectorRegistry()
        MultiProcessCollector(whole)  # type: ignore[no-untyped-call]
        return generate_latest(whole)


def log_event(event: str, level: int = logging.INFO, **facts: Any) -> None:
    """Write a line to the log: what happened, and its facts."""
    LOGGER.log(level, event, extra={"facts": facts})


class JsonLines(logging.Formatter):
    """A record as one line of JSON, whatever is in it."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as a line of JSON."""
        told = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "facts", {}),
        }
        if record.exc_info:
            told["trace"] = self.formatException(record.exc_info)
        return orjson.dumps(told, default=str).decode()


def log_to_stderr() -> None:
    """Send the log, and that of uvicorn, to standard error as JSON lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name in ("unskew.serving", "uvicorn", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler] if name != "uvicorn.error" else [], name == "uvicorn.error"
        logger.setLevel(logging.INFO)
