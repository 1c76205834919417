"""The model as it is."""

from memo_tta.methods.method import Batch, Method, Outcome
from memo_tta.methods.options import Options


class Source(Method[Options]):
    options_type = Options

    def run(self, batch: Batch) -> list[Outcome]:
        return [Outcome(row, reason="source adapts nothing") for row in self.source_logits(batch)]
