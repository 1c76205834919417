"""The routes of the page: the page itself, and the fragments of it that change."""

from pathlib import Path
from time import perf_counter

import numpy as np
from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from memo_tta.data.corruptions import CORRUPTIONS
from memo_tta.data.corruptions.severity import CorruptionLevel
from memo_tta.methods import METHODS
from memo_tta.service.api_errors import ApiError
from memo_tta.service.handlers import Handlers
from memo_tta.service.page.form import Controls, FormFields, sample_images
from memo_tta.service.page.rendering import render
from memo_tta.service.page.result import DisplayedResult
from memo_tta.service.parsing import read_form
from memo_tta.service.replica import PredictionRequest, thumbnail_url
from memo_tta.service.uploaded_image import UploadedImage

STATIC = Path(__file__).parent / "static"
FIRST_LABEL, FIRST_CORRUPTION_LEVEL = "deer", CorruptionLevel("snow", 3)  # preselected


def page_routes(handlers: Handlers) -> APIRouter:
    """Return the page's routes, which are not part of the API."""
    router = APIRouter(include_in_schema=False)
    served_model, settings = handlers.served_model, handlers.served_model.settings
    controls = Controls(served_model)
    thumbnails = {
        position: (label, thumbnail_url(image)) for position, (label, image) in sample_images().items()
    }

    def render_page(result: DisplayedResult | None = None) -> HTMLResponse:
        html = render(
            "page.html",
            model=served_model.name,
            settings=settings,
            about=METHODS[settings.method].about,
            controls=controls,
            corruptions=CORRUPTIONS,
            first_corruption_level=FIRST_CORRUPTION_LEVEL,
            first_label=FIRST_LABEL,
            samples=thumbnails,
            result=result,
        )
        return HTMLResponse(html)

    async def read(request: Request) -> tuple[FormFields, UploadedImage | np.ndarray]:
        form = await read_form(request, FormFields)
        if form.image is not None:
            return form.fields, await handlers.open_image(form.image)
        sample = sample_images().get(-1 if form.fields.sample is None else form.fields.sample)
        if sample is None:
            raise ApiError("invalid", "Choose an image first: drop a file, or pick one of those shown.")
        return form.fields, sample[1]

    @router.get("/")
    async def page() -> HTMLResponse:
        return render_page()

    async def prediction_request(request: Request) -> PredictionRequest:
        arrived = perf_counter()
        fields, image = await read(request)
        return PredictionRequest(
            image=image,
            method=settings.method,
            options=controls.method_options(fields),
            explain=True,
            corruption_level=fields.corruption_level,
            deadline=arrived + settings.deadline_ms / 1000,
        )

    @router.post("/page/preview")
    async def preview(request: Request) -> HTMLResponse:
        shown = await prediction_request(request)
        seen = await handlers.preview(shown, request.receive)
        html = render("preview.html", image=thumbnail_url(seen), corruption_level=shown.corruption_level)
        return HTMLResponse(html)

    @router.post("/page/predict")
    async def predict(request: Request) -> HTMLResponse:
        arrived = perf_counter()
        shown = await prediction_request(request)
        result = DisplayedResult(await handlers.run(shown, request.receive, arrived))
        if "hx-request" in request.headers:
            return HTMLResponse(render("result.html", result=result))
        return render_page(result)  # without scripts the browser submits the form and expects a whole page

    return router
