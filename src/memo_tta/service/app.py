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
from memo_tta.service.api_errors import ApiError
from memo_tta.service.handlers import ClientLeft, Handlers
from memo_tta.service.middleware import RequestLimits, ResponseGuard
from memo_tta.service.model import ServedModel
from memo_tta.service.openapi import ABOUT, describe
from memo_tta.service.page import STATIC, page_routes
from memo_tta.service.schemas import Health, ModelResponse, PredictResponse


def build_app(served: ServedModel) -> FastAPI:
    """The service for one model; its replicas start with the application."""
    handlers = Handlers(served)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        try:
            handlers.pool.start()
            with suppress(asyncio.CancelledError):  # a server that was told twice to end waits no longer
                yield
        finally:
            await asyncio.to_thread(handlers.pool.close)

    # The pages that FastAPI offers for /docs fetch their scripts from elsewhere.
    app = FastAPI(
        title="memo-tta", version="1", description=ABOUT, lifespan=lifespan, docs_url=None, redoc_url=None
    )
    app.state.handlers = handlers
    _add_routes(app, handlers)
    app.include_router(page_routes(handlers))
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    app.add_middleware(RequestLimits, settings=served.settings, metrics=handlers.metrics)
    app.add_middleware(ResponseGuard, metrics=handlers.metrics)
    app.exception_handler(ApiError)(_refused)
    app.exception_handler(InputError)(_damaged)
    app.exception_handler(HTTPException)(_by_framework)
    app.exception_handler(ClientLeft)(_left)
    describe(app, handlers)
    return app


def _add_routes(app: FastAPI, handlers: Handlers) -> None:
    @app.post("/v1/predict", response_model=PredictResponse, tags=["predict"], summary="Predict one image")
    async def predict(request: Request) -> Any:
        """Adapt a copy of the model to the image, predict, and give both answers: before and after."""
        return await handlers.predict(request, perf_counter())

    @app.get("/v1/model", response_model=ModelResponse, tags=["predict"], summary="What is served")
    async def model() -> Any:
        return handlers.model()

    @app.get("/healthz", response_model=Health, tags=["operation"], summary="The process runs")
    async def healthz() -> Any:
        return {"status": "ok"}

    @app.get("/readyz", response_model=Health, tags=["operation"], summary="Every replica is warm")
    async def readyz() -> Any:
        if not handlers.pool.is_ready:
            raise ApiError("stopping" if handlers.pool.closing else "starting", headers={"Retry-After": "1"})
        return {"status": "ready"}

    @app.get("/metrics", tags=["operation"], summary="For Prometheus", response_class=Response)
    async def metrics() -> Response:
        return Response(handlers.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error.response(request.headers)


async def _damaged(request: Request, error: Exception) -> Response:
    return ApiError("damaged_image", str(error)).response(request.headers)


async def _by_framework(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return ApiError.of_status(error.status_code, error.headers).response(request.headers)


async def _left(_request: Request, _error: Exception) -> Response:
    return Response(status_code=499)  # nobody reads it
