"""Handlers of prediction requests, which become tasks for the pool."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter, sleep
from typing import Any, TypeVar

import numpy as np
from starlette.requests import Request
from starlette.types import Receive

from memo_tta.errors import ConfigError
from memo_tta.service.api_errors import ApiError
from memo_tta.service.batch import predict_each
from memo_tta.service.deadline import AdaptationTimes, IsCancelled
from memo_tta.service.memory import MemoryBudget
from memo_tta.service.metrics import Metrics
from memo_tta.service.model import ServedModel
from memo_tta.service.parsing import decode_image, read_form, read_json
from memo_tta.service.pool import Pool
from memo_tta.service.replica import DECODING_BYTES, PredictionRequest, PredictionResult, Replica
from memo_tta.service.responses import prediction_response
from memo_tta.service.schemas import RequestOptions, json_batch_model, json_request_model, options_model
from memo_tta.service.uploaded_image import PixelLimits, UploadedImage

OPENERS = 2  # threads that read the headers of images
UNSUPPORTED_TYPE = "Content-Type: expected multipart/form-data or application/json"

ImageData = bytes | str  # of a file, or as base64

Value = TypeVar("Value")


class ClientDisconnected(Exception):
    """The client closed the connection before its response."""


class Handlers:
    """The model that is served, the pool of its replicas, and the metrics."""

    def __init__(self, served_model: ServedModel):
        settings, times, decoding = served_model.settings, AdaptationTimes(), MemoryBudget(DECODING_BYTES)
        self.served_model, self.metrics = served_model, Metrics()
        self.pool = Pool(
            lambda is_cancelled: Replica(served_model, times, decoding, is_cancelled),
            settings.replicas,
            settings.threads,
            settings.queue_size,
        )
        self.pool.on_replaced = self.metrics.count_replacement
        self.metrics.add_gauge("queue_depth", "Requests waiting for a replica", lambda: self.pool.queue_depth)
        self.metrics.add_gauge("replicas_busy", "Replicas at work", lambda: self.pool.n_busy)
        self._openers = ThreadPoolExecutor(OPENERS, "opener")
        for _ in range(OPENERS):  # a thread may not be had later, for lack of memory
            self._openers.submit(sleep, 0.01)
        self.options_model = options_model(served_model)
        self.json_model = json_request_model(served_model)
        self.batch_model = json_batch_model(served_model)

    async def close(self) -> None:
        """Finish the accepted requests, and end all threads."""
        await asyncio.get_running_loop().run_in_executor(self._openers, self.pool.close)
        self._openers.shutdown()

    async def predict(self, request: Request, arrived: float) -> dict[str, Any]:
        """Return the JSON response to a request that arrived at this perf_counter time."""
        options, data = await self._parse(request)
        build_request = self._request_builder(options, arrived)
        self.pool.check_capacity()  # before any work on the image
        prediction_request = build_request(await self.open_image(data))
        result = await self.run(prediction_request, request.receive, arrived)
        return prediction_response(prediction_request, result, options.top_k)

    async def predict_batch(self, request: Request, arrived: float) -> dict[str, Any]:
        """Return the JSON response to a request of several images: a prediction or an error for each."""
        options, images = await self._parse_batch(request)
        build_request = self._request_builder(options, arrived)
        self.pool.check_capacity()

        async def predict_image(data: ImageData) -> dict[str, Any]:
            self.pool.check_capacity()
            image = await self.open_image(decode_image(data) if isinstance(data, str) else data)
            prediction_request = build_request(image)
            result = await self._run(prediction_request, arrived)
            return prediction_response(prediction_request, result, options.top_k)

        lanes = self.served_model.settings.replicas
        answers = await self._cancel_on_disconnect(
            predict_each(images, predict_image, lanes), request.receive
        )
        return {"results": answers}

    async def run(self, request: PredictionRequest, receive: Receive, arrived: float) -> PredictionResult:
        """Predict in the pool and record the metrics; cancel if the client disconnects."""
        return await self._cancel_on_disconnect(self._run(request, arrived), receive)

    async def _run(self, request: PredictionRequest, arrived: float) -> PredictionResult:
        accepted = perf_counter()

        def work(replica: Replica, is_cancelled: IsCancelled) -> PredictionResult:
            waited = perf_counter() - accepted
            result = replica.predict(request, is_cancelled)
            result.seconds["queue"] = waited
            return result

        result = await self.pool.run(work)
        result.seconds["total"] = perf_counter() - arrived
        self.metrics.count_prediction(request.method, result.prediction, result.seconds)
        return result

    async def preview(self, request: PredictionRequest, receive: Receive) -> np.ndarray:
        """Return the image as the model sees it: corrupted, resized and cropped."""
        return await self._cancel_on_disconnect(
            self.pool.run(lambda replica, is_cancelled: replica.preview(request, is_cancelled)), receive
        )

    async def open_image(self, data: bytes | None) -> UploadedImage:
        """Open an image in a thread: a crafted file can make reading its header alone slow."""
        limits = PixelLimits(self.served_model.settings.max_pixels, self.served_model.resized_side)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._openers, UploadedImage, data, limits)

    async def _cancel_on_disconnect(self, work: Coroutine[Any, Any, Value], receive: Receive) -> Value:
        """Return the result of the work; cancel it and raise ClientDisconnected if the client goes first."""
        task, disconnect = asyncio.ensure_future(work), asyncio.ensure_future(_disconnect(receive))
        try:
            await asyncio.wait({task, disconnect}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            self.metrics.count_disconnect()
            raise ClientDisconnected
        finally:
            task.cancel()
            disconnect.cancel()
            del task, disconnect  # they hold the exception, whose traceback holds this frame

    async def _parse(self, request: Request) -> tuple[RequestOptions, bytes | None]:
        """Return the options of a request and the bytes of its image file."""
        content_type = _content_type(request)
        if content_type == "multipart/form-data":
            form = await read_form(request, self.options_model)
            return form.fields, form.image
        if content_type == "application/json":
            fields = read_json(await request.body(), self.json_model)
            return fields, decode_image(fields.image)
        raise ApiError("unsupported_type", UNSUPPORTED_TYPE)

    async def _parse_batch(self, request: Request) -> tuple[RequestOptions, Sequence[ImageData]]:
        """Return the options of a request and its images: files, or texts that are still to be decoded."""
        content_type, most = _content_type(request), self.served_model.settings.max_batch
        if content_type == "multipart/form-data":
            form = await read_form(request, self.options_model, most)
            if not form.images:
                raise ApiError("invalid", "image: expected at least one file, got nothing")
            return form.fields, form.images
        if content_type == "application/json":
            fields = read_json(await request.body(), self.batch_model, most)
            return fields, fields.images
        raise ApiError("unsupported_type", UNSUPPORTED_TYPE)

    def _request_builder(
        self, options: RequestOptions, arrived: float
    ) -> Callable[[UploadedImage], PredictionRequest]:
        """Return a function that makes the request for an image; raise if the options are not valid."""
        method_options = self._method_options(options)
        return lambda image: PredictionRequest(
            image=image,
            method=options.method,
            options=method_options,
            explain=options.explain,
            deadline=arrived + options.deadline_ms / 1000,
        )

    def _method_options(self, options: RequestOptions) -> dict[str, Any]:
        """Return the method's options: its defaults, replaced by those that the request sets."""
        method_options = dict(self.served_model.methods[options.method])
        for name, value in (("n_views", options.n_views), ("lr", options.lr)):
            if value is not None and name not in method_options:
                raise ApiError("invalid", f"{name}: the method {options.method} has no such option")
            if value is not None:
                method_options[name] = value
        method_options["seed"] = options.seed
        self.check_options(options.method, method_options)
        return method_options

    def check_options(self, method: str, options: Mapping[str, Any]) -> None:
        """Raise an ApiError if the options of a request are not valid together."""
        try:
            self.served_model.check_options(method, options)
        except ConfigError as error:
            raise ApiError("invalid", str(error)) from None


def _content_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def _disconnect(receive: Receive) -> None:
    """Wait until the client disconnects."""
    while (await receive())["type"] != "http.disconnect":
        pass
