"""What goes in and comes out, as the OpenAPI document describes it."""

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, create_model

from memo_tta.methods import Status
from memo_tta.methods.memo import MemoOptions
from memo_tta.methods.options import Number, declarations
from memo_tta.service.model import ServedModel

MAX_SEED = 2**53 - 1  # the largest that every JSON reader keeps
MAX_TOP = 1000
MAX_LR = 1.0
EXAMPLE_PNG = (  # eight by eight grey pixels
    "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAAAAADhZOFXAAAAEElEQVR42mNsYIAAJgaKGAAmCACQtTEKkQAAAABJRU5ErkJggg=="
)


class RequestOptions(BaseModel):
    """What a request may choose; what it leaves out is the operator's choice."""

    model_config = ConfigDict(extra="forbid", strict=True)

    method: str
    n_views: int | None
    lr: float | None
    seed: int
    top_k: int
    deadline_ms: int
    explain: bool


def options_model(served: ServedModel) -> type[RequestOptions]:
    """RequestOptions with the limits of this service."""
    settings, methods = served.settings, list(served.methods)

    def known(name: str) -> str:
        if name not in methods:
            raise ValueError(f"expected one of {', '.join(methods)}")
        return name

    fields: dict[str, Any] = {
        "method": (
            Annotated[str, AfterValidator(known)],
            Field(settings.method, description="How to adapt.", json_schema_extra={"enum": [*methods]}),
        ),
        "n_views": (int | None, _field(None, "n_views", settings.max_views)),
        "lr": (float | None, _field(None, "lr", MAX_LR, allow_inf_nan=False)),
        "seed": (int, _field(0, "seed", MAX_SEED)),
        "top_k": (int, Field(5, ge=1, le=MAX_TOP, description="Classes listed, if there are so many.")),
        "deadline_ms": (
            int,
            Field(
                settings.deadline_ms,
                ge=1,
                le=settings.deadline_ms,
                description="Counts from the arrival of the whole request; without time to adapt, the answer "
                'is the source\'s, with status "deadline".',
            ),
        ),
        "explain": (
            bool,
            Field(False, description="Whether to list the views, of methods that look at views."),
        ),
    }
    return create_model("RequestOptions", __base__=RequestOptions, **fields)


def _field(default: Any, name: str, most: float, **others: Any) -> Any:
    """An option as the methods declare it, up to what a request may ask for."""
    declared = declarations(MemoOptions)[name]
    assert isinstance(declared.values, Number)
    low = int(declared.values.low) if declared.values.whole else declared.values.low
    least = {"ge" if declared.values.includes_low else "gt": low}
    about = f"{declared.meaning[0].upper()}{declared.meaning[1:]}."
    return Field(default, le=most, description=about, **least, **others)


def body_model(options: type[RequestOptions]) -> type[RequestOptions]:
    """The options with an image, as JSON carries it."""
    image = Field(
        description="An image file, base64.",
        examples=[EXAMPLE_PNG],
        json_schema_extra={"contentEncoding": "base64"},
    )
    return create_model("PredictJson", __base__=options, image=(str, image))


class Scored(BaseModel):
    label: str = Field(description="A class.", examples=["airplane"])
    score: float = Field(ge=0, le=1, description="Its probability.", examples=[0.71])


class PredictionSummary(BaseModel):
    label: str = Field(description="The predicted class.", examples=["airplane"])
    index: int = Field(ge=0, description="Its index.", examples=[0])
    score: float = Field(ge=0, le=1, description="Its probability.", examples=[0.71])
    entropy: float = Field(ge=0, description="Of the probabilities, in nats.", examples=[0.93])
    top: list[Scored] = Field(description="The likeliest classes, descending.")


class View(BaseModel):
    thumbnail: str = Field(
        description="A PNG picture as a data: URL.", examples=["data:image/png;base64,iVBORw0…"]
    )
    before: Scored = Field(description="What the model said of it before it adapted.")
    after: Scored = Field(description="What it says after.")


class Timings(BaseModel):
    """Milliseconds."""

    queue_ms: float = Field(description="Waiting for a replica.", examples=[0.4])
    decode_ms: float = Field(description="Decoding and resizing the image.", examples=[0.6])
    source_ms: float = Field(description="The prediction before adaptation.", examples=[14.1])
    views_ms: float = Field(description="Making the views.", examples=[22.0])
    model_ms: float = Field(description="Forward, backward and the update.", examples=[131.0])
    predict_ms: float = Field(description="The prediction after adaptation.", examples=[13.2])
    total_ms: float = Field(
        description="From the arrival of the whole request to the answer.", examples=[182.0]
    )


class PredictResponse(PredictionSummary):
    source: PredictionSummary = Field(description="The same, before adaptation.")
    adapted: bool = Field(description="Whether the model was adapted.", examples=[True])
    status: Status = Field(description="How the answer came about.", examples=["adapted"])
    reason: str | None = Field(description="If it was not adapted, why, in words.", examples=[None])
    marginal_entropy: float | None = Field(
        description="Of the views' average prediction before the step, in nats.", examples=[1.12]
    )
    method: str = Field(description="The method that was used.", examples=["memo"])
    n_views: int | None = Field(
        description="Views that were asked for; null if it draws none.", examples=[32]
    )
    seed: int = Field(description="Of the views.", examples=[0])
    timings: Timings
    views: list[View] | None = Field(
        description="With explain: the views, where it adapted to them or averaged them.",
        examples=[None],
    )


class Limits(BaseModel):
    max_views: int = Field(examples=[128])
    deadline_ms: int = Field(examples=[2000])
    max_body_bytes: int = Field(examples=[10485760])
    max_pixels: int = Field(examples=[25000000])
    formats: list[str] = Field(description="Image formats that are read.", examples=[["PNG", "JPEG"]])


class ModelResponse(BaseModel):
    model: str = Field(description="The model's name.", examples=["resnet26"])
    fingerprint: str = Field(description="Of its weights.", examples=["3f8a0d6cbb4e0f9e2b1c7d5a6e4f3210"])
    parameters: int = Field(examples=[2426314])
    input_size: int = Field(description="Pixels a side of what it sees.", examples=[32])
    labels: list[str] | None = Field(
        description="Its classes, by index; null if they have no names.",
        examples=[["airplane", "automobile"]],
    )
    method: str = Field(description="The default method.", examples=["memo"])
    methods: dict[str, dict[str, int | float]] = Field(
        description="What may be asked for, with the defaults of n_views and lr where they apply.",
        examples=[{"memo": {"n_views": 32, "lr": 0.005}, "source": {}}],
    )
    replicas: int = Field(examples=[2])
    limits: Limits


class Health(BaseModel):
    status: str = Field(examples=["ok"])


class ErrorResponse(BaseModel):
    error: str = Field(description="Its name, for programs.", examples=["busy"])
    message: str = Field(description="What happened and what to do.", examples=["The queue is full."])
