"""The OpenAPI document: FastAPI's own, completed with request bodies and every error."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from memo_tta.service.access import PUBLIC_PATHS
from memo_tta.service.api_errors import API_ERRORS
from memo_tta.service.handlers import Handlers
from memo_tta.service.schemas import EXAMPLE_PNG, EXAMPLE_URL

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
ERRORS_BY_PATH = {
    "/v1/predict": PREDICT_ERRORS,
    "/v1/predict:batch": PREDICT_ERRORS,
    "/readyz": ("starting", "stopping"),
}
FILE = {"type": "string", "format": "binary", "description": "An image file."}
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
    settings = handlers.served_model.settings
    files = {"type": "array", "items": FILE, "minItems": 1, "maxItems": settings.max_batch}
    schemas["PredictJson"] = handlers.json_model.model_json_schema()
    schemas["PredictForm"] = _form_schema("PredictForm", schemas["PredictJson"], "image", FILE)
    schemas["PredictBatchJson"] = handlers.batch_model.model_json_schema()
    schemas["PredictBatchForm"] = _form_schema(
        "PredictBatchForm", schemas["PredictBatchJson"], "images", files
    )
    options = {"method": settings.method, "top_k": 3, "explain": False}
    single, batch = {"image": EXAMPLE_PNG, **options}, {"images": [EXAMPLE_PNG, EXAMPLE_URL], **options}
    paths = document["paths"]
    paths["/v1/predict"]["post"]["requestBody"] = _request_body("Predict", "A grey square", single)
    paths["/v1/predict:batch"]["post"]["requestBody"] = _request_body("PredictBatch", "Two of them", batch)
    has_token = settings.token is not None
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


def _form_schema(
    title: str, json_schema: dict[str, Any], replaced: str, image: dict[str, Any]
) -> dict[str, Any]:
    """Return the schema of a form: that of the JSON body, with files named `image` in place of a field."""
    properties = {name: value for name, value in json_schema["properties"].items() if name != replaced}
    return {
        **json_schema,
        "title": title,
        "properties": {**properties, "image": image},
        "required": ["image"],
    }


def _request_body(name: str, summary: str, example: dict[str, Any]) -> dict[str, Any]:
    return {
        "required": True,
        "content": {
            "multipart/form-data": {"schema": {"$ref": f"{REF}{name}Form"}},
            "application/json": {
                "schema": {"$ref": f"{REF}{name}Json"},
                "examples": {"grey": {"summary": summary, "value": example}},
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
                "content": {"application/json": {"schema": {"$ref": REF + "ErrorResponse"}, "examples": {}}},
            },
        )
        if message not in response["description"]:
            response["description"] += " " + message
        example = {"summary": message, "value": {"error": name, "message": message}}
        response["content"]["application/json"]["examples"][name] = example
        if status == 503:
            response["headers"] = {"Retry-After": {"description": "Seconds.", "schema": {"type": "string"}}}
    return responses
