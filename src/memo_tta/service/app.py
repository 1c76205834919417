"""The FastAPI application: its routes, middleware and exception handlers."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from time import perf_counter
from typing import Any

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles

from memo_tta.errors import InputError
from memo_tta.service.api_errors import ApiError
from memo_tta.service.handlers import ClientDisconnected, Handlers
from memo_tta.service.middleware import RequestLimits, ResponseGuard
from memo_tta.service.model import ServedModel
from memo_tta.service.openapi import DESCRIPTION, install_openapi
from memo_tta.service.page.routes import STATIC, page_routes
from memo_tta.service.responses import model_response
from memo_tta.service.schemas import BatchResponse, Health, ModelResponse, PredictResponse


def build_app(served_model: ServedModel) -> FastAPI:
    """Build the service for one model; its replicas start with the application."""
    handlers = Handlers(served_model)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncGenerator[None]:
        try:
            handlers.pool.start()
            with suppress(asyncio.CancelledError):  # a second signal skips the graceful shutdown
                yield
        finally:
            await handlers.close()

    # FastAPI's own /docs pages load scripts from other hosts.
    app = FastAPI(
        title="memo-tta",
        version="1",
        description=DESCRIPTION,
        lifespan=lifespan,
        redirect_slashes=False,  # redirects would repeat the client's Host header
        docs_url=None,
        redoc_url=None,
    )
    app.state.handlers = handlers
    _add_routes(app, handlers)
    app.include_router(page_routes(handlers))
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    app.add_middleware(RequestLimits, settings=served_model.settings, metrics=handlers.metrics)
    app.add_middleware(ResponseGuard, metrics=handlers.metrics)
    app.exception_handler(ApiError)(_on_api_error)
    app.exception_handler(InputError)(_on_input_error)
    app.exception_handler(HTTPException)(_on_framework_error)
    app.exception_handler(ClientDisconnected)(_on_disconnect)
    install_openapi(app, handlers)
    return app


def _add_routes(app: FastAPI, handlers: Handlers) -> None:
    @app.post("/v1/predict", response_model=PredictResponse, tags=["predict"], summary="Predict one image")
    async def predict(request: Request) -> Any:
        """Adapt a copy of the model to the image and return the predictions before and after adaptation."""
        return await handlers.predict(request, perf_counter())

    @app.post(
        "/v1/predict:batch", response_model=BatchResponse, tags=["predict"], summary="Predict several images"
    )
    async def predict_batch(request: Request) -> Any:
        """Predict each image on its own; an image that fails has an error in its place."""
        return await handlers.predict_batch(request, perf_counter())

    @app.get("/v1/model", response_model=ModelResponse, tags=["predict"], summary="Describe the model")
    async def model() -> Any:
        return model_response(handlers.served_model, handlers.pool)

    @app.get("/healthz", response_model=Health, tags=["operation"], summary="Check that the process runs")
    async def healthz() -> Any:
        return {"status": "ok"}

    @app.get("/readyz", response_model=Health, tags=["operation"], summary="Check that every replica is warm")
    async def readyz() -> Any:
        if not handlers.pool.is_ready:
            raise ApiError(
                "stopping" if handlers.pool.is_closing else "starting", headers={"Retry-After": "1"}
            )
        return {"status": "ready"}

    @app.get("/metrics", tags=["operation"], summary="Metrics for Prometheus", response_class=Response)
    async def metrics() -> Response:
        return Response(handlers.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


async def _on_api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error.response(request.headers)


async def _on_input_error(request: Request, error: Exception) -> Response:
    return ApiError.from_exception(error).response(request.headers)


async def _on_framework_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return ApiError.from_status(error.status_code, error.headers).response(request.headers)


async def _on_disconnect(_request: Request, _error: Exception) -> Response:
    return Response(status_code=499)  # counted in the metrics, never read by the client
