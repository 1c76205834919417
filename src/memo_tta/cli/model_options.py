"""Options that choose a model, and the choice that they make."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

if TYPE_CHECKING:
    from memo_tta.models.classifier import Classifier

SPECS = "timm:NAME, torchvision:NAME, hf:NAME, clip:NAME, onnx:FILE or path/to/file.py:build"


class Numbers(click.ParamType):  # pyright: ignore[reportMissingTypeArgument]  # older ones take none
    """One number, or several between commas."""

    name = "number"

    def __init__(self, kind: type[int] | type[float]):
        self._kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a number or a tuple of numbers; a config file may hold either."""
        is_many = isinstance(value, list | tuple)
        parts = cast("Sequence[Any]", value) if is_many else str(value).split(",")
        try:
            numbers = tuple(self._kind(part) for part in parts)
        except (TypeError, ValueError):
            self.fail(f"expected numbers like 224 or 64,96, got {value!r}", param, ctx)
        return numbers[0] if len(numbers) == 1 else numbers


class LabelNames(click.ParamType):  # pyright: ignore[reportMissingTypeArgument]  # older ones take none
    """Class names: a text file with one per line, or the names themselves between commas."""

    name = "labels"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Return the names; a config file may hold a list of them."""
        from memo_tta.models.labels import read_labels

        if isinstance(value, str) and "," in value and not Path(value).is_file():
            value = [name.strip() for name in value.split(",")]
        return read_labels(value)


@dataclass(frozen=True)
class ModelChoice:
    """A model's name, and the arguments of `memo_tta.load` that the command line gives."""

    model: str
    weights: Path | None = None
    num_classes: int | None = None
    size: int | tuple[int, int] | None = None
    mean: float | tuple[float, ...] | None = None
    std: float | tuple[float, ...] | None = None
    labels: tuple[str, ...] | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        """The other arguments of `memo_tta.load`, as values that JSON has; those not given are left out."""
        given = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "model"}
        if self.weights is not None:
            given["weights"] = str(self.weights.resolve())
        return {name: value for name, value in given.items() if value is not None}

    def load(self) -> "Classifier":
        """Load the model."""
        from memo_tta.models.zoo import load

        return load(self.model, **self.arguments)

    def __str__(self) -> str:
        """Return the options that make this choice."""
        words = ["--model", self.model]
        for name in (one.name for one in fields(self) if one.name != "model"):
            value: Any = getattr(self, name)
            if value is not None:
                parts = cast("tuple[object, ...]", value) if isinstance(value, tuple) else (value,)
                text = ",".join(map(str, parts))
                words += [f"--{name.replace('_', '-')}", text]
        return shlex.join(words)


def loading_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of how a model is loaded."""
    for option in (
        click.option(
            "--std",
            type=Numbers(float),
            metavar="NUMBERS",
            help="Standard deviation of pixels in 0..1, as --mean.",
        ),
        click.option(
            "--mean",
            type=Numbers(float),
            metavar="NUMBERS",
            help="Mean of training pixels in 0..1: one number, or one per channel, as 0.49,0.46,0.41.",
        ),
        click.option(
            "--size", type=Numbers(int), metavar="NUMBERS", help="Input size in pixels: 224, or HEIGHT,WIDTH."
        ),
        click.option(
            "--labels",
            type=LabelNames(),
            metavar="FILE",
            help="Class names: a text file with one per line, or the names with commas between them.",
        ),
        click.option(
            "--num-classes",
            type=click.IntRange(2),
            help="Size of the head, if not that of the model's own weights.",
        ),
        click.option("--weights", type=click.Path(path_type=Path), help="A .safetensors, .pth or .npz file."),
    ):
        command = option(command)
    return command


def model_options(*, default: str | None = None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the options that choose a model; the command gets its choice as `model`."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def with_choice(*args: Any, **values: Any) -> Any:
            choice = ModelChoice(**{one.name: values.pop(one.name) for one in fields(ModelChoice)})
            return command(*args, model=choice, **values)

        help_text = f"A name from `memo models`, {SPECS}."
        named = click.option(
            "--model",
            default=default,
            required=default is None,
            show_default=default is not None,
            help=help_text,
        )
        return named(loading_options(with_choice))

    return decorate
