"""Where requests become work for the pool, and its results become answers."""

import asyncio
from collections.abc import Coroutine
from time import perf_counter
from typing import Any, TypeVar

import numpy as np
from PIL import Image
from starlette.requests import Request
from starlette.types import Receive

from memo_tta.methods import Prediction
from memo_tta.service.api_errors import ApiError
from memo_tta.service.deadline import Costs
from memo_tta.service.metrics import Metrics
from memo_tta.service.model import ServedModel
from memo_tta.service.parsing import FORMATS, from_base64, opened, read_form, read_json
from memo_tta.service.pool import Pool
from memo_tta.service.replica import CorruptionLevel, IsWanted, PredictionRequest, PredictionResult, Replica
from memo_tta.service.schemas import RequestOptions, body_model, options_model

Value = TypeVar("Value")


class ClientLeft(Exception):
    """Nobody is there to be answered."""


class Handlers:
    """One service: what is served, its pool and its metrics."""

    def __init__(self, served: ServedModel):
        settings, costs = served.settings, Costs()
        self.served, self.metrics = served, Metrics()
        self.pool = Pool(
            lambda is_wanted: Replica(served, costs, is_wanted),
            settings.replicas,
            settings.threads,
            settings.queue_size,
        )
        self.pool.on_replaced = self.metrics.replica_replaced
        self.metrics.watch("queue_depth", "Requests that wait for a replica", lambda: self.pool.depth)
        self.metrics.watch("replicas_busy", "Replicas at work", lambda: self.pool.busy)
        self.options = options_model(served)
        self.json_body = body_model(self.options)

    async def predict(self, request: Request, arrived: float) -> dict[str, Any]:
        """The answer to a prediction over the API."""
        options, data = await self._read(request)
        self.pool.check_room()  # before any work on the image
        ask = PredictionRequest(
            image=await self.open(data),
            method=options.method,
            options=self._method_options(options),
            explain=options.explain,
            until=arrived + options.deadline_ms / 1000,
        )
        answer = await self.answer(ask, request.receive, arrived)
        return _response(ask, answer, options.top_k)

    async def answer(self, ask: PredictionRequest, receive: Receive, arrived: float) -> PredictionResult:
        """The pool's answer, counted; a client that leaves gives its place free."""
        accepted = perf_counter()

        def work(replica: Replica, is_wanted: IsWanted) -> PredictionResult:
            waited = perf_counter() - accepted
            answer = replica.predict(ask, is_wanted)
            answer.seconds["queue"] = waited
            return answer

        answer = await self.unless_left(self.pool.run(work), receive)
        answer.seconds["total"] = perf_counter() - arrived
        self.metrics.predicted(ask.method, answer.prediction, answer.seconds)
        return answer

    async def picture(
        self, image: Image.Image | np.ndarray, shift: CorruptionLevel | None, receive: Receive
    ) -> np.ndarray:
        """What the model would see of an image."""
        return await self.unless_left(
            self.pool.run(lambda replica, _: replica.picture(image, shift)), receive
        )

    async def open(self, data: bytes | None) -> Image.Image:
        """In a thread: a file can be made so that its header alone takes long."""
        return await asyncio.to_thread(opened, data, self.served.settings.max_pixels)

    async def unless_left(self, work: Coroutine[Any, Any, Value], receive: Receive) -> Value:
        """The work's result; it is cancelled when the client leaves."""
        task, gone = asyncio.ensure_future(work), asyncio.ensure_future(_left(receive))
        try:
            await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            self.metrics.client_left()
            raise ClientLeft
        finally:
            task.cancel()
            gone.cancel()

    def model(self) -> dict[str, Any]:
        served, settings = self.served, self.served.settings
        labels = served.classifier.labels
        return {
            "model": served.model,
            "fingerprint": served.fingerprint,
            "parameters": sum(p.numel() for p in served.classifier.module.parameters()),
            "input_size": served.classifier.size,
            "labels": labels and list(labels),
            "method": settings.method,
            "methods": served.methods,
            "replicas": settings.replicas,
            "limits": {
                "max_views": settings.max_views,
                "deadline_ms": settings.deadline_ms,
                "max_body_bytes": settings.max_body,
                "max_pixels": settings.max_pixels,
                "formats": list(FORMATS),
            },
        }

    async def _read(self, request: Request) -> tuple[RequestOptions, bytes | None]:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == "multipart/form-data":
            form = await read_form(request, self.options)
            return form.fields, form.image
        if kind == "application/json":
            fields = read_json(await request.body(), self.json_body)
            return fields, from_base64(getattr(fields, "image"))  # noqa: B009
        raise ApiError("unsupported_type", "Content-Type: expected multipart/form-data or application/json")

    def _method_options(self, options: RequestOptions) -> dict[str, Any]:
        """All that a request may choose of the method, said or not."""
        chosen = dict(self.served.methods[options.method])
        for name, value in (("n_views", options.n_views), ("lr", options.lr)):
            if value is not None and name not in chosen:
                raise ApiError("invalid", f"{name}: the method {options.method} has no such option")
            if value is not None:
                chosen[name] = value
        return {**chosen, "seed": options.seed}


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _response(ask: PredictionRequest, answer: PredictionResult, top_k: int) -> dict[str, Any]:
    prediction = answer.prediction
    stages = ("queue", "decode", "source", "views", "model", "predict", "total")
    return {
        **_summary(prediction, top_k),
        "source": _summary(prediction.source, top_k),
        "adapted": prediction.adapted,
        "status": prediction.status,
        "reason": prediction.reason,
        "marginal_entropy": prediction.marginal_entropy,
        "method": ask.method,
        "n_views": ask.options.get("n_views"),
        "seed": ask.options["seed"],
        "timings": {f"{stage}_ms": round(1000 * answer.seconds.get(stage, 0.0), 3) for stage in stages},
        "views": _views(answer) if ask.explain else None,
    }


def _summary(prediction: Prediction, top_k: int) -> dict[str, Any]:
    return {
        "label": prediction.label,
        "index": prediction.index,
        "score": prediction.score,
        "entropy": max(0.0, prediction.entropy),  # rounding can leave a trace below
        "top": prediction.top(top_k),
    }


def _views(answer: PredictionResult) -> list[dict[str, Any]]:
    return [
        {
            "thumbnail": thumbnail,
            "before": {"label": before.label, "score": before.score},
            "after": {"label": after.label, "score": after.score},
        }
        for thumbnail, before, after in zip(answer.views, answer.before, answer.after, strict=True)
    ]
