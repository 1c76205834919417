"""Test-time training (Sun et al., 2020): adapt on telling how far copies of the point were turned."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from memo_tta.errors import ConfigError
from memo_tta.methods.episode import episode
from memo_tta.methods.gradient import NOT_FINITE, ViewGradient
from memo_tta.methods.method import Batch, Outcome
from memo_tta.methods.options import UpdateOptions
from memo_tta.methods.parameters import choose_parameters
from memo_tta.methods.viewing import DrawViews, ViewMethod, ViewOptions
from memo_tta.models.batchnorm import mixed_statistics
from memo_tta.models.classifier import Classifier
from memo_tta.models.rotation import TURNS, turn
from memo_tta.views import Augmentation


@dataclass(frozen=True, kw_only=True)
class TTTOptions(UpdateOptions, ViewOptions):
    """Cropped and mirrored copies; the main head is untouched, as the rotation loss does not reach it."""

    lr: float = 0.001
    prior_strength: float | None = None
    n_views: int = 32
    augment: str | Augmentation = "standard"


class TTT(ViewMethod[TTTOptions]):
    """Needs a module with a second head, `rotation_logits(x)`, trained jointly with the first."""

    options_type = TTTOptions

    def __init__(self, classifier: Classifier, **options: Any):
        super().__init__(classifier, **options)
        rotation_logits = getattr(classifier.module, "rotation_logits", None)
        if rotation_logits is None:
            raise ConfigError(
                f"ttt: {classifier.name} has no rotation head (a method rotation_logits): "
                "train one with `memo train --joint`, or use another method"
            )
        self._rotation_logits = lambda x: rotation_logits(classifier.place(x))
        self._parameters = choose_parameters(classifier.module, self.options.params)

    def run_point(self, batch: Batch, draw: DrawViews) -> Outcome:
        module, rule = self.classifier.module, self.options.update_rule()
        with episode(module, self._parameters), mixed_statistics(module, self.options.prior_strength):
            for _ in range(self.options.steps):
                views = draw()
                turns = torch.from_numpy(batch.rngs[0].integers(TURNS, size=len(views)))
                turned = turn(views, turns)
                gradient = ViewGradient(self._rotation_logits, turned, self.options.micro_batch)
                loss = F.cross_entropy(gradient.logits, turns.to(gradient.logits.device))
                if not gradient.descend(loss, self._parameters, rule):
                    return Outcome(None, reason=NOT_FINITE)
            with torch.no_grad():
                return Outcome(self.classifier(batch.x)[0], adapted=True)
