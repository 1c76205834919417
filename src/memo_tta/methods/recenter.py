"""Re-centring of features, as in NEO (ICLR 2026) and in the shift of FOA (ICML 2024)."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from memo_tta.data.catalog import load_dataset
from memo_tta.data.dataset import balanced
from memo_tta.errors import ConfigError
from memo_tta.methods.bn import BatchNormOptions
from memo_tta.methods.episode import episode, run_exclusively
from memo_tta.methods.feature_method import FeatureMethod, OnlineFeatureOptions
from memo_tta.methods.options import Described, option, with_default
from memo_tta.models.checkpoint import read_state_dict
from memo_tta.models.classifier import Classifier
from memo_tta.models.fingerprint import fingerprint
from memo_tta.models.last_layer import LastLayer, LastLayerRecorder, recording_last_layer

SOURCE_IMAGES = 256  # of the source's data, as many of each class as there are
IMAGES_AT_ONCE = 32
MEAN = "mean"  # the tensor in a file of the mean


@dataclass(frozen=True, kw_only=True)
class RecenterOptions(OnlineFeatureOptions):
    """Where features are centred, and how soon."""

    prior_strength: float = with_default(
        BatchNormOptions,
        "prior_strength",
        16,
        meaning="weight of the source's mean in the running mean of the features, as a number of images",
    )
    source_data: str | None = option(
        None,
        Described("a data set's name or path, or a .safetensors file", lambda value: isinstance(value, str)),
        f"clean images, {SOURCE_IMAGES} of which give the source's mean features, or a .safetensors file of "
        "them as 'mean'; by default, features are centred at the origin",
    )
    online: bool = with_default(
        OnlineFeatureOptions,
        "online",
        True,
        values=Described("true, as the mean is that of a stream", lambda value: value is True),
    )


@dataclass(frozen=True)
class FeatureSum:
    """The sum (width,) of the features of `count` points, each minus the source's mean."""

    total: Tensor
    count: int


class Recenter(FeatureMethod[RecenterOptions]):
    """Classify features minus their running mean over the stream, plus the source's mean; one pass.

    `source_mean` (width,) can be stored in a .safetensors file as "mean", and given as `source_data`.
    """

    options_type = RecenterOptions

    def __init__(self, classifier: Classifier, **options: Any):
        super().__init__(classifier, **options)
        data = self.options.source_data
        self.source_mean: Tensor | None = None if data is None else source_mean(classifier, data)

    def answer(self, last: LastLayer, logits: Tensor, state: FeatureSum | None) -> tuple[Tensor, FeatureSum]:
        features, prior = last.features, self.options.prior_strength
        mean = torch.zeros_like(features[0]) if self.source_mean is None else self.source_mean.to(features)
        if mean.shape != features[0].shape:
            raise ConfigError(
                f"source_data: expected a mean of {len(features[0])} features, got {list(mean.shape)}: "
                "it is that of another model"
            )
        seen = FeatureSum(torch.zeros_like(mean), 0) if state is None else state
        seen = FeatureSum(seen.total + (features - mean).sum(dim=0), seen.count + len(features))
        return last.logits(features - seen.total / (prior + seen.count)), seen


_MEANS: dict[tuple[str, str, str], Tensor] = {}  # of this process, by weights, preprocessing and data


def source_mean(classifier: Classifier, data: str) -> Tensor:
    """Return the mean features (width,) of a data set, or those of a file."""
    if Path(data).suffix == ".safetensors":
        return _read_mean(Path(data))
    key = (fingerprint(classifier.module), repr(classifier.preprocessing), data)
    if key not in _MEANS:
        features = run_exclusively(classifier.module, partial(lambda: list(_features(classifier, data))))
        _MEANS[key] = torch.cat(features).mean(dim=0)
    return _MEANS[key]


def _features(classifier: Classifier, data: str) -> Iterator[Tensor]:
    images = balanced(load_dataset(data), SOURCE_IMAGES)
    recorder = LastLayerRecorder(classifier)
    with episode(classifier.module), torch.no_grad(), recording_last_layer(recorder):
        for start in range(0, len(images), IMAGES_AT_ONCE):
            part = range(start, min(start + IMAGES_AT_ONCE, len(images)))
            logits = classifier(torch.stack([classifier.point(images[at].image).x for at in part]))
            last = recorder.take(logits)
            assert last is not None
            yield last.features


def _read_mean(path: Path) -> Tensor:
    tensors = read_state_dict(path)
    if MEAN not in tensors or tensors[MEAN].ndim != 1:
        raise ConfigError(
            f"source_data: {path}: expected a tensor {MEAN!r} of one dimension, got {sorted(tensors)}: "
            "store the source_mean of a method that was built with a data set"
        )
    return tensors[MEAN]
