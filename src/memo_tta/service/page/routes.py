"""The routes of the page: the page itself, and the fragments of it that change."""

from pathlib import Path
from time import perf_counter

import numpy as np
from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from memo_tta.data.corruptions import CORRUPTIONS
from memo_tta.service.api_errors import ApiError
from memo_tta.service.handlers import Handlers
from memo_tta.service.page.form import FormFields, PageForm
from memo_tta.service.page.rendering import render
from memo_tta.service.page.result import DisplayedResult
from memo_tta.service.parsing import read_form
from memo_tta.service.replica import PredictionRequest, thumbnail_url
from memo_tta.service.uploaded_image import UploadedImage

STATIC = Path(__file__).parent / "static"
PREVIEW_SIZE = 288  # pixels: those of the page on a screen of high density


def page_routes(handlers: Handlers) -> APIRouter:
    """Return the page's routes, which are not part of the API."""
    router = APIRouter(include_in_schema=False)
    served_model, settings = handlers.served_model, handlers.served_model.settings
    form = PageForm(served_model)
    samples = [(sample.name, thumbnail_url(sample.image)) for sample in form.samples]

    def render_page(fields: FormFields, result: DisplayedResult | None = None) -> HTMLResponse:
        html = render(
            "page.html",
            model=served_model.name,
            settings=settings,
            form=form,
            fields=fields,
            chosen=form.chosen(fields),
            corruptions=CORRUPTIONS,
            samples=samples,
            result=result,
        )
        return HTMLResponse(html)

    async def find_image(fields: FormFields, uploaded: bytes | None) -> UploadedImage | np.ndarray:
        if uploaded is not None:
            return await handlers.open_image(uploaded)
        if fields.sample is None or not 0 <= fields.sample < len(form.samples):
            others = ", or pick one of those shown" if form.samples else ""
            raise ApiError("invalid", f"Choose an image first: drop a file{others}.")
        return form.samples[fields.sample].image

    @router.get("/")
    async def page() -> HTMLResponse:
        return render_page(form.first)

    async def read(request: Request) -> tuple[FormFields, PredictionRequest]:
        arrived = perf_counter()
        sent = await read_form(request, FormFields)
        controls = form.chosen(sent.fields)
        options = controls.options(sent.fields)
        handlers.check_options(controls.name, options)
        prediction_request = PredictionRequest(
            image=await find_image(sent.fields, sent.image),
            method=controls.name,
            options=options,
            explain=True,
            corruption_level=sent.fields.corruption_level,
            deadline=arrived + settings.deadline_ms / 1000,
        )
        return sent.fields, prediction_request

    @router.post("/page/preview")
    async def preview(request: Request) -> HTMLResponse:
        _, shown = await read(request)
        seen = await handlers.preview(shown, request.receive)
        image = thumbnail_url(seen, PREVIEW_SIZE)
        return HTMLResponse(render("preview.html", image=image, corruption_level=shown.corruption_level))

    @router.post("/page/predict")
    async def predict(request: Request) -> HTMLResponse:
        arrived = perf_counter()
        fields, shown = await read(request)
        result = DisplayedResult(await handlers.run(shown, request.receive, arrived), shown.method)
        if "hx-request" in request.headers:
            return HTMLResponse(render("result.html", result=result))
        return render_page(fields, result)  # without scripts, the browser expects a whole page

    return router
