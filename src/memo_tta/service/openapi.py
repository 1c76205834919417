"""The OpenAPI document: what FastAPI derives, with request bodies and every refusal."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from memo_tta.service.api_errors import API_ERRORS
from memo_tta.service.handlers import Handlers
from memo_tta.service.middleware import OPEN
from memo_tta.service.schemas import EXAMPLE_PNG, ErrorResponse

ABOUT = (
    "Predictions of an image classifier that adapts to each image by itself and then forgets it. "
    "Every refusal is JSON with a name for programs and a message for people."
)
PREDICT = (
    *("bad_request", "slow_body", "too_large", "too_many_pixels", "unsupported_type", "invalid"),
    *("damaged_image", "busy", "starting", "stopping"),
)
BY_PATH = {"/v1/predict": PREDICT, "/readyz": ("starting", "stopping")}
REF = "#/components/schemas/"


def describe(app: FastAPI, handlers: Handlers) -> None:
    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app, handlers)
        return app.openapi_schema

    app.openapi = openapi


def _document(app: FastAPI, handlers: Handlers) -> dict[str, Any]:
    document = get_openapi(title=app.title, version=app.version, description=ABOUT, routes=app.routes)
    schemas = document["components"]["schemas"]
    schemas["Error"] = ErrorResponse.model_json_schema()
    schemas["PredictJson"] = handlers.json_body.model_json_schema()
    schemas["PredictForm"] = _form(schemas["PredictJson"])
    document["paths"]["/v1/predict"]["post"]["requestBody"] = _body()
    has_token = handlers.served.settings.token is not None
    for path, operations in document["paths"].items():
        names = [*BY_PATH.get(path, ()), "internal"]
        for operation in operations.values():
            if has_token and path not in OPEN:
                names.append("unauthorized")
                operation["security"] = [{"token": []}]
            operation["responses"].update(_refusals(names))
    document["paths"]["/metrics"]["get"]["responses"]["200"]["content"] = {
        "text/plain": {"schema": {"type": "string"}}
    }
    if has_token:
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    return document


def _form(json_body: dict[str, Any]) -> dict[str, Any]:
    image = {"type": "string", "format": "binary", "description": "An image file."}
    return {**json_body, "title": "PredictForm", "properties": {**json_body["properties"], "image": image}}


def _body() -> dict[str, Any]:
    example = {"image": EXAMPLE_PNG, "method": "memo", "n_views": 8, "top_k": 3, "explain": False}
    return {
        "required": True,
        "content": {
            "multipart/form-data": {"schema": {"$ref": REF + "PredictForm"}},
            "application/json": {
                "schema": {"$ref": REF + "PredictJson"},
                "examples": {"grey": {"summary": "A grey square, eight views", "value": example}},
            },
        },
    }


def _refusals(names: list[str]) -> dict[str, Any]:
    """One response per status, with an example of each refusal that has it."""
    responses: dict[str, Any] = {}
    for name in names:
        status, about = API_ERRORS[name]
        response = responses.setdefault(
            str(status),
            {
                "description": about,
                "content": {"application/json": {"schema": {"$ref": REF + "Error"}, "examples": {}}},
            },
        )
        if about not in response["description"]:
            response["description"] += " " + about
        example = {"summary": about, "value": {"error": name, "message": about}}
        response["content"]["application/json"]["examples"][name] = example
        if status == 503:
            response["headers"] = {"Retry-After": {"description": "Seconds.", "schema": {"type": "string"}}}
    return responses
