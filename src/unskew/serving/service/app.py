"""The HTTP service: `POST /v1/rank` and what belongs to it.

    POST /v1/rank        a query with its documents         -> their order, scores, and why where asked
    POST /v1/rank/batch  several of these, answered together
    POST /v1/clicks      what was clicked of it, for the log
    GET  /v1/models      what is served                      GET /metrics   counts for Prometheus
    GET  /healthz        the process lives                   GET /readyz    its models are loaded
    GET  /               a page to try a request             GET /openapi.json

Bodies are read in `requests/`, scored by way of `queue.py` and answered in `answers.py`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from importlib.resources import files
from typing import Any

import orjson
from anyio import to_thread
from fastapi import FastAPI, Request, Response
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from unskew import __version__
from unskew.errors import UnskewError
from unskew.serving.requests.bodies import (
    BadRequest,
    BatchAnswer,
    BatchRequest,
    ClicksAnswer,
    ClicksRequest,
    ErrorAnswer,
    ModelAnswer,
    RankAnswer,
    RankRequest,
    ReadyAnswer,
)
from unskew.serving.requests.parsing import (
    TENSORS,
    AskedRanking,
    checked,
    parsed,
    read_batch,
    read_request,
    read_tensors,
)
from unskew.serving.scoring.models import Following
from unskew.serving.service.answers import Answering, Noted
from unskew.serving.service.description import describe, listed
from unskew.serving.service.guard import Guard, page_policy
from unskew.serving.service.queue import Pace, ScoringQueue
from unskew.serving.settings import Limits
from unskew.serving.telemetry import LOGGER, Metrics, log_event
from unskew.settings import known

PULSE = 0.1
"""Seconds between two looks at the clock."""
BODIES: dict[str, type[BaseModel]] = {
    "/v1/rank": RankRequest,
    "/v1/rank/batch": BatchRequest,
    "/v1/clicks": ClicksRequest,
}
ERRORS = {
    400: "Not JSON, or not safetensors.",
    401: "The token is missing or wrong.",
    404: "No model has this name.",
    408: "The body did not arrive in time.",
    409: "This server logs nothing.",
    413: "Too large.",
    415: "The content type is not JSON's, nor for /v1/rank safetensors'.",
    421: "Without a token: called by a name that is not localhost.",
    422: "Not a request, or not for this model; says where.",
    503: "The store is away, the log cannot be written, the answer took too long, or too many wait.",
}


def _errors(*codes: int) -> dict[int | str, dict[str, Any]]:
    return {code: {"model": ErrorAnswer, "description": ERRORS[code]} for code in codes}


RANKING, TELLING = _errors(400, 401, 404, 408, 413, 415, 421, 422, 503), _errors(401, 421)


def make_app(answering: Answering) -> FastAPI:
    """The application, over models that are loaded; it closes the store and the log of pages when it ends."""
    models, settings, metrics = answering.models, answering.settings, Metrics()
    for name in settings.shadows:
        known("shadow", name, models)
    queue = ScoringQueue(settings.limits, metrics)
    upkeep = Upkeep(answering, queue, metrics)
    app = FastAPI(
        title="unskew",
        version=__version__,
        docs_url=None,  # these pages load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,  # to wherever the caller's Host says
        lifespan=upkeep.span,
    )
    _add_ranking(app, answering, queue, metrics)
    _add_clicks(app, answering, metrics)
    _add_facts(app, answering, upkeep, metrics)
    _add_errors(app)
    app.state.listed, app.state.limits = partial(listed, models, settings.shadows), settings.limits
    app.state.takes = {name: each.takes for name, each in models.items()}
    example, locked = app.state.listed()[0].example, settings.token is not None
    describe(app, BODIES, settings.limits, locked=locked, example=example)
    app.add_middleware(
        Guard, metrics=metrics, paths=frozenset(_paths(app)), token=settings.token, limits=settings.limits
    )
    return app


def _add_ranking(app: FastAPI, answering: Answering, queue: ScoringQueue, metrics: Metrics) -> None:
    limits, pace = answering.settings.limits, Pace()

    async def answered(request: Request, asked: Sequence[AskedRanking]) -> list[dict[str, object]]:
        facts = Noted()
        work = partial(pace.run, asked, partial(answering.answer, asked, facts))
        try:
            if not answering.waits and pace.is_short(asked):
                return work()
            async with asyncio.timeout(limits.seconds):
                return await queue.run(work)
        except TimeoutError as error:
            facts.dropped = True
            raise BadRequest("the answer took too long; ask for fewer documents", status=503) from error
        except (ConnectionError, OSError) as error:
            raise BadRequest(f"the store does not answer: {type(error).__name__}", status=503) from error
        finally:
            if facts.logged or facts.unlogged:
                metrics.logs("page", yes=facts.logged, no=facts.unlogged)
            request.state.facts.update(vars(facts))

    @app.post("/v1/rank", response_model=RankAnswer, responses=RANKING)
    async def rank(request: Request) -> Response:
        """Rank the documents of a query."""
        queue.refuse_if_full()
        if content_type(request) == TENSORS:
            asked = read_tensors(await read_bytes(request, limits), limits)
        else:
            asked = read_request(await _body(request, limits), limits)
        (answer,) = await answered(request, [asked])
        return _plain(answer)

    @app.post("/v1/rank/batch", response_model=BatchAnswer, responses=RANKING)
    async def rank_batch(request: Request) -> Response:
        """Rank the documents of several queries; one that is wrong refuses all."""
        queue.refuse_if_full()
        asked = read_batch(await _body(request, limits), limits)
        return _plain({"answers": await answered(request, asked)})


def _add_clicks(app: FastAPI, answering: Answering, metrics: Metrics) -> None:
    responses = _errors(400, 401, 408, 409, 413, 415, 421, 422, 503)

    @app.post("/v1/clicks", status_code=202, response_model=ClicksAnswer, responses=responses)
    async def clicks(request: Request) -> Response:
        """Tell what was clicked; the page and the document are looked for when the log is read."""
        asked = checked(ClicksRequest, await _body(request, answering.settings.limits))
        impressions, facts = answering.impressions, Noted()
        taken = [each for each in asked.clicks if answering.may_have_shown(each.request_id)]
        refused = len(asked.clicks) - len(taken)
        if impressions is None:
            raise BadRequest("this server logs nothing; start it with --log FOLDER", status=409)

        def write() -> None:
            for each in taken:
                impressions.clicked(each.request_id, each.id, dwell_time=each.dwell_time)
                facts.logged += 1

        try:
            await to_thread.run_sync(write)
        except (UnskewError, OSError) as error:
            log_event("unlogged", logging.ERROR, error=str(error))
            told = f"the log cannot be written; {facts.logged} of {len(taken)} clicks were"
            raise BadRequest(told, status=503) from error
        finally:
            metrics.logs("click", yes=facts.logged, no=len(taken) - facts.logged, refused=refused)
            request.state.facts |= {"logged": facts.logged, "refused": refused}
        if not taken:
            raise BadRequest("no page that this server showed has this id", "clicks.0.request_id")
        return _json(ClicksAnswer(written=facts.logged, refused=refused or None), 202)


def _add_facts(app: FastAPI, answering: Answering, upkeep: Upkeep, metrics: Metrics) -> None:
    page = files("unskew.serving.service").joinpath("page.html").read_text(encoding="utf-8")
    policy = page_policy(page)

    @app.get("/v1/models", responses=TELLING)
    async def models() -> list[ModelAnswer]:
        """What is served; the first answers who asks for none."""
        return list(app.state.listed())

    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        """The process lives."""
        return {"status": "ok"}

    @app.get("/readyz")
    async def readyz() -> ReadyAnswer:
        """The models are loaded, as they are before anything is heard; whether all are the newest; the store."""
        held_back = sum(each.trouble is not None for each in answering.models.values())
        return ReadyAnswer(status="ok", models=len(answering.models), held_back=held_back, store=upkeep.store)

    @app.get("/metrics", response_class=Response, responses=TELLING)
    async def counts() -> Response:
        """Counts of all processes, for Prometheus."""
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/", include_in_schema=False)
    async def root() -> Response:
        return Response(page, media_type="text/html", headers={"content-security-policy": policy})


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(BadRequest)
    async def bad(_: Request, error: BadRequest) -> Response:
        where = None if error.where is None else error.where[:300]
        answer = _json(ErrorAnswer(error=str(error)[:2000], where=where), error.code)
        if error.code == 503:
            answer.headers["retry-after"] = "1"
        if error.code == 408:
            answer.headers["connection"] = "close"  # the rest of the body may never come
        return answer

    @app.exception_handler(HTTPException)
    async def http(_: Request, error: HTTPException) -> Response:
        known = f"; there are {', '.join(_paths(app))}" if error.status_code == 404 else ""
        answer = _json(ErrorAnswer(error=f"{str(error.detail).lower()}{known}"), error.status_code)
        answer.headers.update(error.headers or {})
        return answer


def _paths(app: FastAPI) -> list[str]:
    return [str(getattr(route, "path", "")) for route in app.routes]


def content_type(request: Request) -> str:
    """What a request says of its body."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def _body(request: Request, limits: Limits) -> object:
    if content_type(request) != "application/json":
        raise BadRequest("send JSON, with content-type: application/json", status=415)
    return parsed(await read_bytes(request, limits), limits)


async def read_bytes(request: Request, limits: Limits) -> bytes:
    """The body of a request: no more than the limit, in no more than the time."""
    declared, parts = request.headers.get("content-length", ""), list[bytes]()

    def refuse_large(size: int) -> None:
        if size > limits.body:
            raise BadRequest(f"the body has more than {limits.body:,} bytes", status=413)

    refuse_large(int(declared[:20]) if declared.isdecimal() else 0)
    size = 0
    try:
        async with asyncio.timeout(limits.seconds):
            async for part in request.stream():
                parts.append(part)
                size += len(part)
                refuse_large(size)
    except TimeoutError as error:
        raise BadRequest(f"the body did not arrive within {limits.seconds:g} s", status=408) from error
    return b"".join(parts)


def _json(answer: BaseModel, status: int = 200) -> Response:
    content = answer.model_dump_json(exclude_none=status < 300)
    return Response(content, status_code=status, media_type="application/json")


def _plain(answer: dict[str, object]) -> Response:
    return Response(orjson.dumps(answer), media_type="application/json")


# ---- beside answering


class Upkeep:
    """Looks at run folders, the store, the log and the clock beside answering; in the end it lets go."""

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
            for each in (self.answering.impressions, self.answering.store):
                if each is not None:
                    each.close()

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(self.answering.settings.poll)
            try:
                await asyncio.to_thread(self.look)
            except Exception:  # the next look may do better
                LOGGER.exception("look")

    async def _measure(self) -> None:
        """How late a task comes back that was to sleep for a while: as late as what arrives is looked at."""
        while True:
            began = time.monotonic()
            await asyncio.sleep(PULSE)
            self.queue.behind = time.monotonic() - began - PULSE

    def look(self) -> None:
        """Take up models, log files and store content that changed since the last look."""
        self.answering.models.look(self._tell)
        self._count_models()
        if (impressions := self.answering.impressions) is not None:
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
        facts = {"model": model.name, "version": model.current.version, "error": model.trouble}
        log_event("reload", logging.INFO if changed else logging.ERROR, done=changed, **facts)

    def _count_models(self) -> None:
        models = self.answering.models.values()
        self.metrics.answers({model.name: model.current.version for model in models})
        for model in models:
            self.metrics.held_back.labels(model.name).set(model.trouble is not None)
