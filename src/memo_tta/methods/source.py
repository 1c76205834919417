"""The source model, without adaptation."""

from memo_tta.methods.method import Batch, Method, Outcome
from memo_tta.methods.prediction import Status
from memo_tta.methods.shared_passes import SharedPassOptions


class Source(Method[SharedPassOptions]):
    """Predict with the model as it is."""

    options_type = SharedPassOptions

    @property
    def batch_points(self) -> int:
        return self.options.points_with(1, self.classifier)

    def run(self, batch: Batch) -> list[Outcome]:
        return [
            Outcome(Status.SOURCE, row, reason="source adapts nothing") for row in self.source_logits(batch)
        ]
