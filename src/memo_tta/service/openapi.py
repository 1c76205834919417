"""The OpenAPI document: FastAPI's own, completed with request bodies and every error."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from memo_tta.service.access import PUBLIC_PATHS
from memo_tta.service.api_errors import API_ERRORS
from memo_tta.service.handlers import Handlers
from memo_tta.service.schemas import EXAMPLE_PNG, ErrorResponse

DESCRIPTION = (
    "Predictions of an image classifier that adapts to each image separately and restores its weights "
    "afterwards. Every error is JSON with a name for programs and a message for people."
)
PREDICT_ERRORS = (
    *(
        "bad_request",
        "slow_headers",
        "slow_body",
        "too_large",
        "too_many_pixels",
        "unsupported_type",
        "invalid",
    ),
    *("damaged_image", "cross_site", "expired", "no_memory", "busy", "starting", "stopping"),
)
ERRORS_BY_PATH = {"/v1/predict": PREDICT_ERRORS, "/readyz": ("starting", "stopping")}
REF = "#/components/schemas/"


def install_openapi(app: FastAPI, handlers: Handlers) -> None:
    """Make the application serve the completed document."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app, handlers)
        return app.openapi_schema

    app.openapi = openapi


def _document(app: FastAPI, handlers: Handlers) -> dict[str, Any]:
    document = get_openapi(title=app.title, version=app.version, description=DESCRIPTION, routes=app.routes)
    schemas = document["components"]["schemas"]
    schemas["Error"] = ErrorResponse.model_json_schema()
    schemas["PredictJson"] = handlers.json_model.model_json_schema()
    schemas["PredictForm"] = _form_schema(schemas["PredictJson"])
    document["paths"]["/v1/predict"]["post"]["requestBody"] = _request_body()
    has_token = handlers.served_model.settings.token is not None
    for path, operations in document["paths"].items():
        names = [*ERRORS_BY_PATH.get(path, ()), "internal", *(() if has_token else ("unknown_host",))]
        for operation in operations.values():
            if has_token and path not in PUBLIC_PATHS:
                names.append("unauthorized")
                operation["security"] = [{"token": []}]
            operation["responses"].update(_error_responses(names))
    document["paths"]["/metrics"]["get"]["responses"]["200"]["content"] = {
        "text/plain": {"schema": {"type": "string"}}
    }
    if has_token:
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    return document


def _form_schema(json_schema: dict[str, Any]) -> dict[str, Any]:
    image = {"type": "string", "format": "binary", "description": "An image file."}
    properties = {**json_schema["properties"], "image": image}
    return {**json_schema, "title": "PredictForm", "properties": properties}


def _request_body() -> dict[str, Any]:
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


def _error_responses(names: list[str]) -> dict[str, Any]:
    """Return one response per status, with an example of each error that has it."""
    responses: dict[str, Any] = {}
    for name in names:
        status, message = API_ERRORS[name]
        response = responses.setdefault(
            str(status),
            {
                "description": message,
                "content": {"application/json": {"schema": {"$ref": REF + "Error"}, "examples": {}}},
            },
        )
        if message not in response["description"]:
            response["description"] += " " + message
        example = {"summary": message, "value": {"error": name, "message": message}}
        response["content"]["application/json"]["examples"][name] = example
        if status == 503:
            response["headers"] = {"Retry-After": {"description": "Seconds.", "schema": {"type": "string"}}}
    return responses
