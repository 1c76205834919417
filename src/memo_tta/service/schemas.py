"""Schemas of requests and responses, from which the OpenAPI document is made."""

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, create_model

from memo_tta.methods import Status
from memo_tta.methods.memo import MemoOptions
from memo_tta.methods.options import Number, declarations
from memo_tta.service.model import ServedModel

MAX_SEED = 2**53 - 1  # the largest integer that every JSON parser reads exactly
MAX_TOP = 1000
MAX_LR = 1.0
EXAMPLE_PNG = (  # 8 × 8 grey pixels
    "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAAAAADhZOFXAAAAEElEQVR42mNsYIAAJgaKGAAmCACQtTEKkQAAAABJRU5ErkJggg=="
)
EXAMPLE_URL = f"data:image/png;base64,{EXAMPLE_PNG}"


class RequestOptions(BaseModel):
    """The options of a request; the operator's settings are their defaults."""

    model_config = ConfigDict(extra="forbid", strict=True)

    method: str
    n_views: int | None
    lr: float | None
    seed: int
    top_k: int
    deadline_ms: int
    explain: bool


class JsonRequest(RequestOptions):
    """The options of a request with its image, as a JSON body carries them."""

    image: str = Field(
        description="An image file: base64, or a data: URL of it. Other URLs are not fetched.",
        examples=[EXAMPLE_PNG, EXAMPLE_URL],
    )


class JsonBatch(RequestOptions):
    """The options of a request with its images, as a JSON body carries them."""

    images: list[str]


def options_model(served_model: ServedModel) -> type[RequestOptions]:
    """Return RequestOptions with the methods, limits and defaults of this service."""
    return create_model("RequestOptions", __base__=RequestOptions, **_option_fields(served_model))


def json_request_model(served_model: ServedModel) -> type[JsonRequest]:
    """Return JsonRequest with the methods, limits and defaults of this service."""
    return create_model("PredictJson", __base__=JsonRequest, **_option_fields(served_model))


def json_batch_model(served_model: ServedModel) -> type[JsonBatch]:
    """Return JsonBatch with the methods, limits and defaults of this service."""
    images = Field(
        min_length=1,
        max_length=served_model.settings.max_batch,
        description="Image files: base64, or data: URLs of them.",
        examples=[[EXAMPLE_PNG, EXAMPLE_URL]],
    )
    fields = _option_fields(served_model)
    return create_model("PredictBatchJson", __base__=JsonBatch, images=(list[str], images), **fields)


def _option_fields(served_model: ServedModel) -> dict[str, Any]:
    settings, methods = served_model.settings, list(served_model.methods)

    def check_method(name: str) -> str:
        if name not in methods:
            raise ValueError(f"expected one of {', '.join(methods)}")
        return name

    return {
        "method": (
            Annotated[str, AfterValidator(check_method)],
            Field(
                settings.method,
                description="The adaptation method.",
                json_schema_extra={"enum": [*methods]},
            ),
        ),
        "n_views": (int | None, _declared_field("n_views", None, settings.max_views)),
        "lr": (float | None, _declared_field("lr", None, MAX_LR, allow_inf_nan=False)),
        "seed": (int, _declared_field("seed", 0, MAX_SEED)),
        "top_k": (
            int,
            Field(5, ge=1, le=MAX_TOP, description="The number of classes in `top`, at most the model's."),
        ),
        "deadline_ms": (
            int,
            Field(
                settings.deadline_ms,
                ge=1,
                le=settings.deadline_ms,
                description="Milliseconds from the arrival of the whole request; without time to adapt, the "
                'response is the source prediction, with status "deadline".',
            ),
        ),
        "explain": (
            bool,
            Field(False, description="Whether to return the views, for methods that use views."),
        ),
    }


def _declared_field(name: str, default: Any, maximum: float, **others: Any) -> Any:
    """Return a field for an option that methods declare, with the maximum that a request may set."""
    declaration = declarations(MemoOptions)[name]
    assert isinstance(declaration.values, Number)
    low = int(declaration.values.low) if declaration.values.whole else declaration.values.low
    minimum = {"ge" if declaration.values.includes_low else "gt": low}
    description = f"{declaration.meaning[0].upper()}{declaration.meaning[1:]}."
    return Field(default, le=maximum, description=description, **minimum, **others)


class Scored(BaseModel):
    """A class and its probability."""

    label: str = Field(description="The name of a class.", examples=["airplane"])
    score: float = Field(ge=0, le=1, description="Its probability.", examples=[0.71])


class PredictionSummary(BaseModel):
    """A prediction, with the likeliest classes."""

    label: str = Field(description="The predicted class.", examples=["airplane"])
    index: int = Field(ge=0, description="Its index.", examples=[0])
    score: float = Field(ge=0, le=1, description="Its probability.", examples=[0.71])
    entropy: float = Field(ge=0, description="The entropy of the probabilities, in nats.", examples=[0.93])
    top: list[Scored] = Field(description="The likeliest classes, in descending order.")


class View(BaseModel):
    """A view, and its predictions before and after adaptation."""

    thumbnail: str = Field(
        description="A PNG image as a data: URL.", examples=["data:image/png;base64,iVBORw0…"]
    )
    before: Scored = Field(description="Its prediction before adaptation.")
    after: Scored = Field(description="Its prediction after adaptation.")


class Timings(BaseModel):
    """The duration of each stage, in milliseconds."""

    queue_ms: float = Field(description="Waiting for a replica.", examples=[0.4])
    decode_ms: float = Field(description="Decoding and resizing the image.", examples=[0.6])
    source_ms: float = Field(description="The prediction before adaptation.", examples=[14.1])
    views_ms: float = Field(description="Making the views.", examples=[22.0])
    model_ms: float = Field(description="Forward pass, backward pass and update.", examples=[131.0])
    predict_ms: float = Field(description="The prediction after adaptation.", examples=[13.2])
    total_ms: float = Field(
        description="From the arrival of the whole request to the response.", examples=[182.0]
    )


class PredictResponse(PredictionSummary):
    """The prediction after adaptation, the source prediction, and how they were made."""

    source: PredictionSummary = Field(description="The prediction before adaptation.")
    adapted: bool = Field(description="Whether the model was adapted.", examples=[True])
    status: Status = Field(description="How the prediction was made.", examples=["adapted"])
    reason: str | None = Field(description="Why the model was not adapted; null if it was.", examples=[None])
    marginal_entropy: float | None = Field(
        description="The entropy of the views' average prediction before adaptation, in nats.",
        examples=[1.12],
    )
    shift: float | None = Field(
        description="How far the image is from the training data; null if the model has no batch norm.",
        examples=[0.31],
    )
    clean_shift: float | None = Field(
        description="The shift of clean photographs, to compare with; null if the model has no batch norm.",
        examples=[0.09],
    )
    method: str = Field(description="The method that was used.", examples=["memo"])
    n_views: int | None = Field(
        description="The number of views; null if the method uses none.", examples=[32]
    )
    seed: int = Field(description="The seed of the views.", examples=[0])
    timings: Timings
    views: list[View] | None = Field(
        description="The views that the method adapted to or averaged; null without explain.",
        examples=[None],
    )


class ErrorResponse(BaseModel):
    """An error, for programs and for people."""

    error: str = Field(description="The name of the error, for programs.", examples=["busy"])
    message: str = Field(description="What happened and what to do.", examples=["The queue is full."])


class BatchResponse(BaseModel):
    """One answer for each image, in order: a prediction, or the error of this image."""

    results: list[PredictResponse | ErrorResponse]


class Limits(BaseModel):
    """The limits on a request."""

    max_views: int = Field(examples=[128])
    max_batch: int = Field(description="The number of images of one request.", examples=[16])
    deadline_ms: int = Field(examples=[2000])
    max_body_bytes: int = Field(examples=[10485760])
    max_pixels: int = Field(examples=[25000000])
    formats: list[str] = Field(description="The supported image formats.", examples=[["PNG", "JPEG"]])


class ModelResponse(BaseModel):
    """The model, its methods and the limits on requests."""

    model: str = Field(description="The model's name.", examples=["resnet26"])
    fingerprint: str = Field(
        description="A hash of its weights.", examples=["3f8a0d6cbb4e0f9e2b1c7d5a6e4f3210"]
    )
    replica_fingerprints: list[str] = Field(
        description="The same of each replica, at most 50 requests or a second of rest ago.",
        examples=[["3f8a0d6cbb4e0f9e2b1c7d5a6e4f3210"]],
    )
    parameters: int = Field(examples=[2426314])
    input_size: int | list[int] = Field(
        description="The side of its square input in pixels, or height and width.", examples=[32]
    )
    labels: list[str] | None = Field(
        description="The names of its classes, by index; null if they have none.",
        examples=[["airplane", "automobile"]],
    )
    method: str = Field(description="The default method.", examples=["memo"])
    methods: dict[str, dict[str, int | float]] = Field(
        description="The methods that a request may choose, with their default n_views and lr.",
        examples=[{"memo": {"n_views": 32, "lr": 0.005}, "source": {}}],
    )
    options: dict[str, dict[str, Any]] = Field(
        description="The options of the methods that the operator has set.",
        examples=[{"memo": {"params": "last:8"}}],
    )
    replicas: int = Field(examples=[2])
    limits: Limits


class Health(BaseModel):
    """The state of the process or of its replicas."""

    status: str = Field(examples=["ok"])
