"""A method of your own in one file: average the image with copies of it that are moved by a few pixels.

Install and run:

    pip install 'memo-tta[corruptions]'
    python examples/custom_method.py
    python examples/custom_method.py --data photos/ --limit 200
"""

import argparse
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

import memo_tta as mt
from memo_tta.methods import METHODS, MethodEntry
from memo_tta.methods.episode import episode
from memo_tta.methods.method import Batch, Method, Outcome
from memo_tta.methods.options import Number, Options, option

DIRECTIONS = ((0, 0), (0, 1), (0, -1), (1, 0), (-1, 0))  # down, right


@dataclass(frozen=True, kw_only=True)
class MovedOptions(Options):
    """How far the copies are moved. Checks and help are made from this declaration."""

    distance: int = option(2, Number("[1, 8]", whole=True), "pixels by which each copy is moved")


class Moved(Method[MovedOptions]):
    """Averages the probabilities of the image and of four moved copies."""

    options_type = MovedOptions

    def run(self, batch: Batch) -> list[Outcome]:
        """Return one outcome per image. No label is known here, and the model is as it was trained."""
        copies = torch.cat([moved(batch.x, self.options.distance, *where) for where in DIRECTIONS])
        with episode(self.classifier.module), torch.no_grad():  # evaluation mode; everything is restored
            probabilities = self.classifier(copies).softmax(dim=1)
        average = probabilities.unflatten(0, (len(DIRECTIONS), -1)).mean(dim=0)
        return [Outcome(mt.Status.AVERAGED, row.log()) for row in average]


def moved(x: Tensor, distance: int, down: int, right: int) -> Tensor:
    """Return images (n, channels, height, width) moved by a distance; the border pixels are repeated."""
    height, width = x.shape[-2:]
    top, left = distance * (1 - down), distance * (1 - right)
    return pad(x, [distance] * 4, mode="replicate")[..., top : top + height, left : left + width]


# A row of the table gives the method its name, and may replace defaults of its options.
METHODS["moved"] = MethodEntry("average the image and four moved copies", Moved)
METHODS["moved-4"] = MethodEntry("the same, moved by 4 pixels", Moved, {"distance": 4})


def main() -> None:
    """Predict one image, then evaluate the method beside the model as it is."""
    parser = argparse.ArgumentParser(description="A method of your own.")
    parser.add_argument("--data", default="sample", help="labelled images: a name or a path")
    parser.add_argument("--model", default="resnet26")
    parser.add_argument("--limit", type=int, default=100, help="images, clean and corrupted")
    arguments = parser.parse_args()
    classifier = mt.load(arguments.model)

    image = mt.load_dataset(arguments.data)[0].image
    print(mt.method("moved", classifier, distance=1).predict(image))

    results = mt.evaluate(
        [arguments.data, f"{arguments.data}+gaussian_noise:3"],
        classifier,
        methods=["source", "moved", "moved-4"],
        limit=arguments.limit,
        quiet=True,
    )
    print(results.table())
    print(results.compare("moved", "source"))


if __name__ == "__main__":
    main()
