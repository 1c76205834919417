"""Test-time training (Sun et al., 2020): adapt on predicting the rotation of rotated views."""

from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from memo_tta.errors import ConfigError
from memo_tta.methods.episode import episode
from memo_tta.methods.gradient import NOT_FINITE, ForwardPass
from memo_tta.methods.method import Batch, Outcome, SeenViews
from memo_tta.methods.options import with_default
from memo_tta.methods.parameters import choose_parameters
from memo_tta.methods.precision import in_precision
from memo_tta.methods.prediction import Status
from memo_tta.methods.update import UpdateOptions
from memo_tta.methods.view_method import ViewMethod
from memo_tta.methods.view_source import ViewOptions, Views
from memo_tta.models.batch_norm import mixed_statistics
from memo_tta.models.classifier import Classifier
from memo_tta.models.networks.resnet26_joint import TURNS, turn
from memo_tta.objectives import log_probabilities
from memo_tta.views import Augmentation


@dataclass(frozen=True, kw_only=True)
class TTTOptions(UpdateOptions, ViewOptions):
    """Settings of the published code: cropped and flipped views, one step, no batch-norm mixing."""

    lr: float = with_default(UpdateOptions, "lr", 0.001)
    prior_strength: float | None = with_default(UpdateOptions, "prior_strength", None)
    n_views: int = with_default(ViewOptions, "n_views", 32)
    augment: str | Augmentation = with_default(ViewOptions, "augment", "standard")


class TTT(ViewMethod[TTTOptions]):
    """Minimise the rotation loss of a jointly trained second head, `module.rotation_logits(x)`.

    The classification head is never adapted: the rotation loss does not depend on it.
    """

    options_type = TTTOptions
    needs_gradients = True

    def __init__(self, classifier: Classifier, **options: Any):
        super().__init__(classifier, **options)
        rotation_logits = getattr(classifier.module, "rotation_logits", None)
        if rotation_logits is None:
            raise ConfigError(
                f"ttt: {classifier.name} has no rotation head (a method rotation_logits): "
                "train a model with `memo train --joint`, or use another method"
            )
        if isinstance(classifier.size, tuple):
            height, width = classifier.size
            raise ConfigError(
                f"ttt: turns views by 90 degrees, but those of {width} x {height} pixels change their shape: "
                "use another method, such as memo"
            )
        self._rotation_logits = rotation_logits
        self._parameters = choose_parameters(classifier.module, self.options.params)

    def run_point(self, batch: Batch, views: Views) -> Outcome:
        options, module, seen = self.options, self.classifier.module, None
        rule = options.update_rule()
        with episode(module, self._parameters), mixed_statistics(module, options.prior_strength) as mixed:
            for _ in range(options.steps):
                drawn = views.draw()
                self.fix_statistics(mixed, batch.x, drawn)
                if batch.explain:
                    before = self.view_logits(drawn)
                    seen = SeenViews(drawn, before, before)
                turns = torch.as_tensor(batch.rngs[0].integers(TURNS, size=len(drawn)))
                forward = ForwardPass(self._rotation_forward, turn(drawn, turns), options.micro_batch)
                loss = F.nll_loss(log_probabilities(forward.logits), turns.to(forward.logits.device))
                if not forward.descend(loss, self._parameters, rule):
                    return Outcome(Status.NOT_FINITE, reason=NOT_FINITE)
            mixed.release()
            with batch.work.stage("predict"), torch.no_grad():
                logits = self.forward(batch.x)[0]
            if seen is not None:
                self.fix_statistics(mixed, batch.x, seen.views)
                seen = replace(seen, after=self.view_logits(seen.views))
        return Outcome(Status.ADAPTED, logits, seen=seen)

    def _rotation_forward(self, x: Tensor) -> Tensor:
        """Return the rotation head's logits, computed in the precision of the options."""
        with in_precision(self.options.precision, self.classifier.device.type):
            return self._rotation_logits(self.classifier.prepare_input(x))
