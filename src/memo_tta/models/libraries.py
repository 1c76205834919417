"""The table of model names with a prefix: models of other libraries, and files."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

from memo_tta.errors import ConfigError
from memo_tta.models.classifier import Classifier
from memo_tta.registry import Registry

PREPROCESSING = ("size", "mean", "std", "resize", "interpolation", "channels")
OF_NETWORKS = frozenset({"weights", "num_classes", "labels", *PREPROCESSING})


@dataclass(frozen=True)
class Library:
    """How the names of a library's models are written, and the function that loads one of them."""

    form: str
    about: str
    load: Callable[..., Classifier]  # takes the name, and by keyword those of `arguments` that are given
    arguments: frozenset[str]

    def __call__(self, spec: str, name: str, given: dict[str, Any]) -> Classifier:
        """Load the model of this name; raise an error about arguments that the library does not take."""
        for argument in given:
            if argument not in self.arguments:
                raise ConfigError(
                    f"{spec}: takes no {argument}: {self.form} takes {', '.join(sorted(self.arguments))}"
                )
        return self.load(name, **given)


def _from_module(file: str, function: str, name: str, **given: Any) -> Classifier:
    """Call a function of this package whose file is only imported now, with what it needs."""
    return getattr(import_module(f"memo_tta.models.{file}"), function)(name, **given)


def _from_huggingface(
    name: str, weights: Any = None, num_classes: int | None = None, **given: Any
) -> Classifier:
    return _from_module(
        "huggingface", "from_huggingface", name, weights=weights, num_classes=num_classes, **given
    )


LIBRARIES = Registry(
    "prefix",
    {
        "timm": Library(
            "timm:NAME", "a model of timm", partial(_from_module, "external", "from_timm"), OF_NETWORKS
        ),
        "torchvision": Library(
            "torchvision:NAME",
            "a model of torchvision",
            partial(_from_module, "external", "from_torchvision"),
            OF_NETWORKS,
        ),
        "hf": Library(
            "hf:NAME",
            "an image classifier of the Hugging Face Hub, or in a folder",
            _from_huggingface,
            OF_NETWORKS,
        ),
        "clip": Library(
            "clip:NAME",
            "a model that compares images with texts: its classes are the labels that you give",
            partial(_from_module, "clip", "from_clip"),
            frozenset({"labels", "templates"}),
        ),
        "onnx": Library(
            "onnx:FILE",
            "an ONNX file, for methods that adapt nothing",
            partial(_from_module, "onnx_file", "from_onnx"),
            frozenset({"labels", *PREPROCESSING}),
        ),
    },
)
USER_FILE = Library(
    "path/to/file.py:build",
    "a function of your file that returns a Classifier",
    partial(_from_module, "external", "from_file"),
    frozenset({"weights", "labels"}),
)
