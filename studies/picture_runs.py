"""Run the experiments of docs/pictures.md; a second start resumes: python -m studies.picture_runs --help."""

from collections.abc import Iterator
from pathlib import Path

from memo_tta.data.corruptions.severity import VALIDATION
from studies.reproduction_runs import Step, steps_command

NETWORKS = ("efficientnet_lite0", "mobilenet_v2", "resnet50-v1")
FORWARD = "source,tta,bn1,restore"
MEMO = "source,restore,memo"
# MEMO without gates, by kind of views.
TRIALS = ("augmix", "augmix-mild")
TRIED = NETWORKS[:2]
PAPER = ("prior_strength=16", "skip_margin=none", "clean_strength=none", "predict=point")


def memo_options(*options: str) -> tuple[str, ...]:
    """Return the words that set options of MEMO."""
    return tuple(word for option in options for word in ("--option", f"memo.{option}"))


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
        for augment in TRIALS:
            options = memo_options("n_views=16", f"augment={augment}", *PAPER)
            yield self.evaluate(f"{augment}-clean", "source,memo", *options, "--limit", "100")
            shifts = ("--corruptions", ",".join(VALIDATION), "--severities", "3,5", "--limit", "40")
            yield self.evaluate(f"{augment}-validation", "source,memo", *options, *shifts)

    def forward(self) -> Iterator[Step]:
        """Yield the methods without a gradient on clean pictures and on the test corruptions."""
        yield self.evaluate("clean", FORWARD, "--option", "tta.n_views=16")
        words = ("--severities", "3,5", "--limit", "100")
        yield self.evaluate("corrupted", FORWARD, "--option", "tta.n_views=16", *words)

    def memo(self) -> Iterator[Step]:
        """Yield MEMO with its defaults and with the paper's settings."""
        paper = ("augment=augmix", *PAPER)
        for name, options in (("memo", ()), ("paper", paper)):
            words = memo_options("n_views=16", *options)
            yield self.evaluate(f"{name}-clean", MEMO, *words, "--limit", "200")
            yield self.evaluate(f"{name}-corrupted", MEMO, *words, "--severities", "5", "--limit", "40")


def steps(pictures: Path | None) -> Iterator[Step]:
    """Yield all experiments; there are none without pictures."""
    if pictures is not None:
        for network in TRIED:
            yield from Pictures(network, pictures).trials()
        for network in NETWORKS:
            yield from Pictures(network, pictures).forward()
        for network in NETWORKS:
            yield from Pictures(network, pictures).memo()


main = steps_command(steps, __doc__, "--pictures", "Folder with a sub-folder per ImageNet class.")

if __name__ == "__main__":
    main()
