"""Image classifiers of the transformers library."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from memo_tta.models.checkpoint import read_state_dict
from memo_tta.models.classifier import Classifier
from memo_tta.models.image_processors import classifier_of, image_processor, preprocessing_of
from memo_tta.models.pretrained import import_transformers, load_from, pretrained_module

# The paper's (appendix B), as in the zoo: of ResNet-50, and of a vision transformer. Other networks were not
# tuned; without settings, MEMO is careful with them.
BOTTLENECKS = {"optimizer": "sgd", "lr": 0.00025, "n_views": 64, "prior_strength": 16}
TRANSFORMER = {"optimizer": "adamw", "lr": 1e-5, "weight_decay": 0.01, "n_views": 64, "prior_strength": 16}
# By the configuration's model_type and layer_type.
SETTINGS = {("resnet", "bottleneck"): BOTTLENECKS, ("vit", None): TRANSFORMER, ("deit", None): TRANSFORMER}


def from_huggingface(name: str, weights: Path | None, num_classes: int | None, **given: Any) -> Classifier:
    """Return an image classifier of a folder or of the hub, with the preprocessing of its own processor.

    `weights` is a file of other weights for the same architecture. `given` replaces arguments of Classifier.
    """
    spec = f"hf:{name}"
    module, processor = load_from(name, spec, lambda folder: _parts(folder, spec, weights, num_classes))
    config: Any = module.config
    settings = SETTINGS.get((config.model_type, getattr(config, "layer_type", None)), {})
    return classifier_of(module, preprocessing_of(processor, spec), **{"settings": settings, **given})


def _parts(folder: str, spec: str, weights: Path | None, num_classes: int | None) -> tuple[nn.Module, Any]:
    """Return the module and the image processor of a folder."""
    transformers = import_transformers()
    auto_class = transformers.AutoModelForImageClassification
    classes = {} if num_classes is None else {"num_labels": num_classes}
    config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=False, **classes)
    if weights is None:
        return pretrained_module(auto_class, folder, spec, config=config), image_processor(folder)
    with torch.device("meta"):  # its class is all that is needed
        kind = type(auto_class.from_config(config, trust_remote_code=False))
    state = read_state_dict(weights)
    return pretrained_module(kind, None, spec, config=config, state_dict=state), image_processor(folder)
