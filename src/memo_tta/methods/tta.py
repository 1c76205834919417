"""Test-time augmentation: predict the view-averaged distribution, adapt nothing."""

import torch
from torch import Tensor

from memo_tta.methods.episode import episode
from memo_tta.methods.gradient import forward_in_chunks
from memo_tta.methods.method import Batch, Outcome
from memo_tta.methods.viewing import NOTHING_ADAPTED, DrawViews, ViewMethod, ViewOptions
from memo_tta.objectives import entropy, marginal_log_probabilities


class TTA(ViewMethod[ViewOptions]):
    """Averages probabilities (eq. 1), not logits; its logits are the logarithm of that average."""

    options_type = ViewOptions
    from_settings = frozenset({"n_views"})

    def run_point(self, batch: Batch, draw: DrawViews) -> Outcome:
        views = draw()

        def forward() -> Tensor:
            with episode(self.classifier.module), torch.no_grad(), self.computing():
                return forward_in_chunks(self.classifier, views, self.options.micro_batch)

        marginal = marginal_log_probabilities(batch.ledger.once(("logits", self.first_views), forward))
        return Outcome(
            marginal,
            reason=NOTHING_ADAPTED,
            marginal_entropy=float(entropy(marginal)),
        )
