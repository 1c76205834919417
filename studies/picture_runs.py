"""Run the experiments of docs/pictures.md; a second start resumes: python -m studies.picture_runs --help."""

from collections.abc import Iterator
from pathlib import Path

from memo_tta.data.corruptions.severity import VALIDATION
from studies.reproduction_runs import Step, steps_command

NETWORKS = ("efficientnet_lite0", "mobilenet_v2", "resnet50-v1")
FORWARD = "source,tta,bn1,restore"
MEMO = "source,restore,memo"
# MEMO as it was for every network: the paper's views and statistics, no gate.
PAPER = tuple(
    word
    for option in ("augment=augmix", "prior_strength=16", "skip_margin=none")
    for word in ("--option", f"memo.{option}")
)
# MEMO without the gate, which can be applied afterwards: kinds of views, and prior strengths N.
TRIALS = {
    f"{augment}-{n}": (augment, n)
    for augment, n in (("augmix", 16), ("augmix-mild", 16), ("augmix-mild", 64))
}


class Pictures:
    """The experiments with one network on a folder of pictures."""

    def __init__(self, network: str, pictures: Path):
        self._network, self._pictures = network, pictures

    def evaluate(self, run: str, methods: str, *words: str) -> Step:
        """Return an evaluation with further words of the command line."""
        model = ("evaluate", str(self._pictures), "--model", self._network)
        return Step(f"224/{self._network}/{run}", (*model, "--methods", methods, *words))

    def trials(self) -> Iterator[Step]:
        """Yield MEMO on clean pictures and on the validation corruptions, with several settings."""
        for name, (augment, n) in TRIALS.items():
            options = ("--option", f"memo.augment={augment}", "--option", f"memo.prior_strength={n}")
            options += ("--option", "memo.n_views=16", "--option", "memo.skip_margin=none")
            yield self.evaluate(f"{name}-clean", "source,memo", *options, "--limit", "100")
            shifts = ("--corruptions", ",".join(VALIDATION), "--severities", "3,5", "--limit", "40")
            yield self.evaluate(f"{name}-validation", "source,memo", *options, *shifts)

    def forward(self) -> Iterator[Step]:
        """Yield the methods without a gradient on clean pictures and on the test corruptions."""
        yield self.evaluate("clean", FORWARD, "--option", "tta.n_views=16")
        words = ("--severities", "3,5", "--limit", "100")
        yield self.evaluate("corrupted", FORWARD, "--option", "tta.n_views=16", *words)

    def memo(self) -> Iterator[Step]:
        """Yield MEMO with its defaults and with the paper's settings."""
        for name, options in (("memo", ()), ("paper", PAPER)):
            words = ("--option", "memo.n_views=16", *options)
            yield self.evaluate(f"{name}-clean", MEMO, *words, "--limit", "200")
            yield self.evaluate(f"{name}-corrupted", MEMO, *words, "--severities", "5", "--limit", "40")


def steps(_out: Path, _authors: Path | None, pictures: Path | None) -> Iterator[Step]:
    """Yield all experiments; there are none without pictures."""
    if pictures is not None:
        networks = [Pictures(network, pictures) for network in NETWORKS]
        for kind in (Pictures.trials, Pictures.forward, Pictures.memo):
            for network in networks:
                yield from kind(network)


main = steps_command(steps, __doc__)

if __name__ == "__main__":
    main()
