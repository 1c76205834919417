"""The source model, without adaptation."""

from memo_tta.methods.method import Batch, Method, Outcome
from memo_tta.methods.options import Options
from memo_tta.methods.prediction import Status


class Source(Method[Options]):
    """Predict with the model as it is."""

    options_type = Options

    def run(self, batch: Batch) -> list[Outcome]:
        return [
            Outcome(Status.SOURCE, row, reason="source adapts nothing") for row in self.source_logits(batch)
        ]
