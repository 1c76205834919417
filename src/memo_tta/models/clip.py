"""Zero-shot classifiers: CLIP, SigLIP and their relatives compare an image with the names of the classes."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from memo_tta.errors import ConfigError, ModelError
from memo_tta.models.classifier import Classifier
from memo_tta.models.image_processors import classifier_of, image_processor, preprocessing_of
from memo_tta.models.labels import Labels, read_labels
from memo_tta.models.pretrained import import_transformers, load_from, pretrained_module

DEFAULT_TEMPLATES = (
    "a photo of a {}.",
    "a photo of the {}.",
    "a good photo of a {}.",
    "a bad photo of a {}.",
    "a close-up photo of a {}.",
    "a cropped photo of a {}.",
    "a bright photo of a {}.",
    "a dark photo of a {}.",
)
SLOT = "{}"
TEXT_BATCH = 256  # texts encoded at once
# What no image passes through; the scale would otherwise be adapted, and could lower any entropy alone.
NOT_FOR_IMAGES = ("text_model", "text_projection", "logit_scale", "logit_bias")
PARTS = ("get_image_features", "get_text_features", "logit_scale")
TOLERANCE = 1e-3  # of logits


class ZeroShot(nn.Module):
    """The scaled similarity of images with the text features of each class, as logits."""

    text_features: Tensor
    scale: Tensor
    bias: Tensor

    def __init__(self, model: nn.Module, text_features: Tensor, scale: Tensor, bias: Tensor):
        super().__init__()
        self.model = model
        self.register_buffer("text_features", text_features)  # [classes, features], of length 1
        self.register_buffer("scale", scale)
        self.register_buffer("bias", bias)

    def forward(self, x: Tensor) -> Tensor:
        model: Any = self.model
        features = normalize(_pooled(model.get_image_features(pixel_values=x)), dim=-1)
        return features @ self.text_features.T * self.scale + self.bias


def from_clip(
    name: str, labels: Labels | None = None, templates: Sequence[str] = DEFAULT_TEMPLATES
) -> Classifier:
    """Return a zero-shot classifier of a folder or of the hub: its classes are the labels.

    Each label is put into each template, and the features of a label's texts are averaged.
    """
    spec = f"clip:{name}"
    if labels is None:
        raise ConfigError(f"{spec}: needs the names of the classes: give labels=[...], or --labels names.txt")
    names = read_labels(labels)
    _check_texts(spec, names, templates)
    model, tokenizer, processor = load_from(name, spec, lambda folder: _parts(folder, spec, names))
    preprocessing = preprocessing_of(processor, spec)
    _check_logits(model, tokenizer, preprocessing.shape, spec)
    module = zero_shot(model, label_features(model, tokenizer, names, templates))
    for part in NOT_FOR_IMAGES:
        if hasattr(model, part):
            delattr(model, part)
    return classifier_of(module, preprocessing, labels=names)


def zero_shot(model: Any, features: Tensor) -> ZeroShot:
    """Return the classifier of these text features, with the model's scale and, if it has one, its bias."""
    scale = model.logit_scale.detach().exp()
    bias = getattr(model, "logit_bias", torch.zeros_like(scale)).detach().clone()
    return ZeroShot(model, features, scale, bias)


def label_features(model: Any, tokenizer: Any, labels: Sequence[str], templates: Sequence[str]) -> Tensor:
    """Return the features of each label, averaged over templates: (labels, features), of length 1."""
    by_template = [
        _text_features(model, tokenizer, [template.replace(SLOT, label) for label in labels])
        for template in templates
    ]
    return normalize(torch.stack(by_template).mean(dim=0), dim=-1)


def _text_features(model: Any, tokenizer: Any, texts: Sequence[str]) -> Tensor:
    """Return the features of each text: (texts, features), of length 1."""
    batches = [texts[start : start + TEXT_BATCH] for start in range(0, len(texts), TEXT_BATCH)]
    with torch.no_grad():
        encoded = [
            _pooled(model.get_text_features(**_tokens(model.config, tokenizer, batch))) for batch in batches
        ]
    return normalize(torch.cat(encoded), dim=-1)


def _tokens(config: Any, tokenizer: Any, texts: Sequence[str]) -> Any:
    """Return the tokens of texts, padded as the model was trained: SigLIP's attends to the padding, too."""
    padding = "max_length" if "siglip" in config.model_type else True
    longest = config.text_config.max_position_embeddings
    return tokenizer(list(texts), padding=padding, truncation=True, max_length=longest, return_tensors="pt")


def _pooled(output: Any) -> Tensor:
    return getattr(output, "pooler_output", output)


def _parts(folder: str, spec: str, labels: Sequence[str]) -> tuple[nn.Module, Any, Any]:
    """Return the model, the tokenizer and the image processor of a folder."""
    transformers = import_transformers()
    model = pretrained_module(transformers.AutoModel, folder, spec)
    if not all(hasattr(model, part) for part in PARTS):
        raise ModelError(
            f"{spec}: expected a model of images and texts like CLIP or SigLIP, got {type(model).__name__}: "
            f"if it is an image classifier, load it as hf:{spec.removeprefix('clip:')}"
        )
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    _check_tokens(model, tokenizer, labels, spec)
    return model, tokenizer, image_processor(folder)


def _check_tokens(model: Any, tokenizer: Any, labels: Sequence[str], spec: str) -> None:
    """Raise ModelError if two labels have the same tokens, as all have without the tokenizer's files."""
    seen: dict[tuple[int, ...], str] = {}
    tokens = _tokens(model.config, tokenizer, labels)["input_ids"].tolist()
    for label, row in zip(labels, map(tuple, tokens), strict=True):
        if row in seen:
            raise ModelError(
                f"{spec}: its tokenizer cannot tell the labels {seen[row]!r} and {label!r} apart: "
                "give others, or, if they differ, add the tokenizer's files to the folder (tokenizer.json)"
            )
        seen[row] = label


def _check_texts(spec: str, labels: Sequence[str], templates: Sequence[str]) -> None:
    if len(labels) < 2 or not all(labels):
        raise ConfigError(f"{spec}: expected at least 2 labels, none of them empty, got {list(labels)[:8]}")
    if isinstance(templates, str) or not templates:
        raise ConfigError(f"{spec}: expected templates as a list, as in {list(DEFAULT_TEMPLATES[:2])}")
    for template in templates:
        if SLOT not in template:
            raise ConfigError(f"{spec}: expected {SLOT} in each template, for the label, got {template!r}")


def _check_logits(model: Any, tokenizer: Any, shape: tuple[int, int, int], spec: str) -> None:
    """Raise ModelError unless the model's own logits are scaled similarities of images and texts."""
    image, texts = torch.linspace(-1, 1, math.prod(shape)).view(1, *shape), DEFAULT_TEMPLATES[:2]
    try:
        with torch.no_grad():
            theirs = model(pixel_values=image, **_tokens(model.config, tokenizer, texts)).logits_per_image
            ours = zero_shot(model, _text_features(model, tokenizer, texts))(image)
        is_alike = torch.allclose(ours, theirs, atol=TOLERANCE, rtol=TOLERANCE)
    except MemoryError:
        raise
    except Exception:  # of models that take other inputs, or give other outputs
        is_alike = False
    if not is_alike:
        raise ModelError(
            f"{spec}: expected logits that are scaled similarities of images and texts, but those of "
            f"{type(model).__name__} are not: only models that work like CLIP and SigLIP can be used"
        )
