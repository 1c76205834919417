"""The page: pick an image, spoil it, and see the model before and after it adapts."""

from collections.abc import Callable
from functools import cache
from importlib.resources import files
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader
from PIL import Image
from pydantic import BaseModel, ConfigDict, Field

from memo_tta.data.corruptions import CORRUPTIONS, SEVERITIES
from memo_tta.data.sample_images import load_sample
from memo_tta.methods import METHODS
from memo_tta.methods.memo import MemoOptions
from memo_tta.models.classifier import Classifier
from memo_tta.service.api_errors import ApiError
from memo_tta.service.handlers import Handlers
from memo_tta.service.page.result import Result
from memo_tta.service.parsing import read_form
from memo_tta.service.replica import CorruptionLevel, PredictionRequest, data_url

HOME = Path(str(files("memo_tta").joinpath("service/page")))
STATIC = HOME / "static"
FIRST_LABEL, FIRST_SHIFT = "deer", CorruptionLevel(name="snow", severity=3)
DECADES, STEPS = range(-5, -1), (1, 2.5, 5)


class Choices(BaseModel):
    """What the form sends."""

    model_config = ConfigDict(extra="forbid", strict=True)

    sample: int | None = None
    corruption: str = ""
    severity: int = Field(1, ge=min(SEVERITIES), le=max(SEVERITIES))
    n_views: int | None = Field(None, ge=1)
    lr_step: int | None = Field(None, ge=0)

    @property
    def shift(self) -> CorruptionLevel | None:
        if self.corruption and self.corruption not in CORRUPTIONS:
            raise ApiError("invalid", "corruption: not one of those on the page")
        return CorruptionLevel(name=self.corruption, severity=self.severity) if self.corruption else None


class Controls:
    """The sliders' ranges, and the paper's values for this model on them."""

    def __init__(self, handlers: Handlers):
        served = handlers.served
        self.defaults, self.max_views = served.methods[served.settings.method], served.settings.max_views
        self.paper = {name: _paper(served.classifier, name) for name in ("n_views", "lr")}
        grid = {float(f"{step}e{decade}") for decade in DECADES for step in STEPS}
        own = {value for value in (self.paper["lr"], self.defaults.get("lr")) if value is not None}
        self.rates = sorted(grid | own)

    def method_options(self, choices: Choices) -> dict[str, Any]:
        chosen = dict(self.defaults)
        if choices.n_views is not None and "n_views" in chosen:
            if choices.n_views > self.max_views:
                raise ApiError("invalid", f"n_views: expected at most {self.max_views}")
            chosen["n_views"] = choices.n_views
        if choices.lr_step is not None and "lr" in chosen:
            if choices.lr_step >= len(self.rates):
                raise ApiError("invalid", "lr_step: not on the slider")
            chosen["lr"] = self.rates[choices.lr_step]
        return {**chosen, "seed": 0}


def _paper(classifier: Classifier, name: str) -> Any:
    return classifier.settings.get(name, getattr(MemoOptions(), name))


@cache
def _samples() -> dict[int, tuple[str, np.ndarray]]:
    """The first embedded image of each class: by position, its label and pixels."""
    sample, found = load_sample(), dict[str, tuple[int, np.ndarray]]()
    for position, (_, image, label) in enumerate(sample):
        found.setdefault(sample.labels[label], (position, image))
    return {position: (label, image) for label, (position, image) in sorted(found.items())}


def page_routes(handlers: Handlers) -> APIRouter:
    """The page and the pieces of it that change; none of them is part of the API."""
    router = APIRouter(include_in_schema=False)
    controls = Controls(handlers)
    render = _renderer(handlers, controls)

    async def read(request: Request) -> tuple[Choices, Image.Image | np.ndarray]:
        form = await read_form(request, Choices)
        if form.image is not None:
            return form.fields, await handlers.open(form.image)
        chosen = _samples().get(-1 if form.fields.sample is None else form.fields.sample)
        if chosen is None:
            raise ApiError("invalid", "Choose an image first: drop one, or take one of the small ones.")
        return form.fields, chosen[1]

    @router.get("/")
    async def page() -> HTMLResponse:
        return render("page.html")

    @router.post("/page/preview")
    async def preview(request: Request) -> HTMLResponse:
        choices, image = await read(request)
        picture = await handlers.picture(image, choices.shift, request.receive)
        return render("preview.html", picture=data_url(picture), shift=choices.shift)

    @router.post("/page/predict")
    async def predict(request: Request) -> HTMLResponse:
        arrived = perf_counter()
        choices, image = await read(request)
        settings, options = handlers.served.settings, controls.method_options(choices)
        until = arrived + settings.deadline_ms / 1000
        ask = PredictionRequest(
            image=image,
            method=settings.method,
            options=options,
            explain=True,
            shift=choices.shift,
            until=until,
        )
        answer = await handlers.answer(ask, request.receive, arrived)
        result = Result(answer, options)
        # Without scripts the form itself was sent, and the answer is a page.
        return render("result.html" if "hx-request" in request.headers else "page.html", result=result)

    return router


def _renderer(handlers: Handlers, controls: Controls) -> Callable[..., HTMLResponse]:
    environment = Environment(
        loader=FileSystemLoader(HOME / "templates"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals.update(
        model=handlers.served.model,
        settings=handlers.served.settings,
        about=METHODS[handlers.served.settings.method].about,
        controls=controls,
        corruptions=CORRUPTIONS,
        first=FIRST_SHIFT,
        first_label=FIRST_LABEL,
        samples={position: (label, data_url(image)) for position, (label, image) in _samples().items()},
    )

    def render(template: str, **values: Any) -> HTMLResponse:
        return HTMLResponse(environment.get_template(template).render(**values))

    return render
