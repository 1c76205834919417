"""The application: routes, and what every refusal looks like."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from time import perf_counter
from typing import Any

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles

from memo_tta.errors import InputError
from memo_tta.service.description import ABOUT, describe
from memo_tta.service.desk import ClientLeft, Desk
from memo_tta.service.gate import Front, Gate
from memo_tta.service.page import STATIC, page_routes
from memo_tta.service.refusals import Refused
from memo_tta.service.schemas import Health, ModelResponse, PredictResponse
from memo_tta.service.served import Served


def build_app(served: Served) -> FastAPI:
    """The service for one model; its replicas start with the application."""
    desk = Desk(served)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        try:
            desk.pool.start()
            with suppress(asyncio.CancelledError):  # a server that was told twice to end waits no longer
                yield
        finally:
            await asyncio.to_thread(desk.pool.close)

    # The pages that FastAPI offers for /docs fetch their scripts from elsewhere.
    app = FastAPI(
        title="memo-tta", version="1", description=ABOUT, lifespan=lifespan, docs_url=None, redoc_url=None
    )
    app.state.desk = desk
    _add_routes(app, desk)
    app.include_router(page_routes(desk))
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    app.add_middleware(Gate, settings=served.settings, metrics=desk.metrics)
    app.add_middleware(Front, metrics=desk.metrics)
    app.exception_handler(Refused)(_refused)
    app.exception_handler(InputError)(_damaged)
    app.exception_handler(HTTPException)(_by_framework)
    app.exception_handler(ClientLeft)(_left)
    describe(app, desk)
    return app


def _add_routes(app: FastAPI, desk: Desk) -> None:
    @app.post("/v1/predict", response_model=PredictResponse, tags=["predict"], summary="Predict one image")
    async def predict(request: Request) -> Any:
        """Adapt a copy of the model to the image, predict, and give both answers: before and after."""
        return await desk.predict(request, perf_counter())

    @app.get("/v1/model", response_model=ModelResponse, tags=["predict"], summary="What is served")
    async def model() -> Any:
        return desk.model()

    @app.get("/healthz", response_model=Health, tags=["operation"], summary="The process runs")
    async def healthz() -> Any:
        return {"status": "ok"}

    @app.get("/readyz", response_model=Health, tags=["operation"], summary="Every replica is warm")
    async def readyz() -> Any:
        if not desk.pool.is_ready:
            raise Refused("stopping" if desk.pool.closing else "starting", headers={"Retry-After": "1"})
        return {"status": "ready"}

    @app.get("/metrics", tags=["operation"], summary="For Prometheus", response_class=Response)
    async def metrics() -> Response:
        return Response(desk.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return error.response(request.headers)


async def _damaged(request: Request, error: Exception) -> Response:
    return Refused("damaged_image", str(error)).response(request.headers)


async def _by_framework(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return Refused.of_status(error.status_code, error.headers).response(request.headers)


async def _left(_request: Request, _error: Exception) -> Response:
    return Response(status_code=499)  # nobody reads it
