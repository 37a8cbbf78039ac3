"""What is done beside answering: looks at run folders, the store, the log and the clock; in the end it lets go."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from fastapi import FastAPI

from unskew.errors import UnskewError
from unskew.serving.scoring.models import Following
from unskew.serving.service.answers import Answering
from unskew.serving.service.queue import ScoringQueue
from unskew.serving.telemetry import Metrics, log_event

PULSE = 0.1
"""Seconds between two looks at the clock."""


class Upkeep:
    """What is done beside answering."""

    def __init__(self, answering: Answering, queue: ScoringQueue, metrics: Metrics) -> None:
        self.answering, self.queue, self.metrics = answering, queue, metrics
        self.store: str | None = None
        """ok or away; None where there is none."""
        self._count_models()
        self._look_at_store()

    @asynccontextmanager
    async def span(self, _: FastAPI) -> AsyncIterator[None]:
        """From the first request to the last."""
        tasks = [asyncio.create_task(each) for each in (self._follow(), self._measure())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
            self.queue.close()
            for each in (self.answering.showing.impressions, self.answering.store):
                if each is not None:
                    each.close()

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(self.answering.settings.poll)
            try:
                await asyncio.to_thread(self.look)
            except Exception:  # the next look may do better
                logging.getLogger("unskew.serving").exception("look")

    async def _measure(self) -> None:
        """How late a task comes back that was to sleep for a while: as late as what arrives is looked at."""
        while True:
            began = time.monotonic()
            await asyncio.sleep(PULSE)
            self.queue.behind = time.monotonic() - began - PULSE

    def look(self) -> None:
        """Take up what changed."""
        self.answering.models.look(self._tell)
        if (impressions := self.answering.showing.impressions) is not None:
            impressions.end_old()
        self._look_at_store()  # last, as it may be waited for

    def _look_at_store(self) -> None:
        if (store := self.answering.store) is None:
            return
        before, trouble = self.store, None
        try:
            store.view()
        except (UnskewError, OSError) as error:
            trouble = str(error)
        self.store = "ok" if trouble is None else "away"
        self.metrics.store.set(trouble is None)
        if self.store != before and (before is not None or trouble is not None):
            log_event("store", logging.INFO if trouble is None else logging.ERROR, state=self.store, error=trouble)

    def _tell(self, model: Following, changed: bool) -> None:
        self.metrics.reloads.labels(model.name, "yes" if changed else "no").inc()
        self._count_models()
        facts = {"model": model.name, "version": model.current.version, "error": model.trouble}
        log_event("reload", logging.INFO if changed else logging.ERROR, done=changed, **facts)

    def _count_models(self) -> None:
        models = self.answering.models.values()
        self.metrics.answers({model.name: model.current.version for model in models})
