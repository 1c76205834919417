"""Views of your own for MEMO: how they are made, what the model sees in them, and whether they help.

Install and run:

    pip install 'memo-tta[fast,corruptions]'
    python examples/custom_augmentation.py
    python examples/custom_augmentation.py --data photos/ --limit 200
"""

import argparse
from collections import Counter

import numpy as np
from PIL import Image, ImageEnhance

import memo_tta as mt
from memo_tta.methods import METHODS, MethodEntry

N_VIEWS = 16


@mt.per_view
def light(image: np.ndarray, rng: np.random.Generator) -> Image.Image:
    """Make one view: other brightness and contrast, moved by up to three pixels, perhaps mirrored.

    All randomness comes from `rng`, so the same image gets the same views in every run.
    """
    view = Image.fromarray(image)
    view = ImageEnhance.Brightness(view).enhance(rng.uniform(0.6, 1.4))
    view = ImageEnhance.Contrast(view).enhance(rng.uniform(0.6, 1.4))
    right, down = rng.integers(-3, 4, size=2)
    view = view.transform(view.size, Image.Transform.AFFINE, (1, 0, right, 0, 1, down))
    return view.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if rng.random() < 0.5 else view


# An evaluation stores its options, and a function cannot be stored: give the method a name of its own.
METHODS["memo-light"] = MethodEntry(
    "memo on views in another light", mt.Memo, {"augment": light, "n_views": N_VIEWS}
)


def main() -> None:
    """Show what the model predicts on the views of one image; compare `light` with AugMix on several."""
    parser = argparse.ArgumentParser(description="MEMO with an augmentation of your own.")
    parser.add_argument("--data", default="sample", help="labelled images: a name or a path")
    parser.add_argument("--model", default="resnet26")
    parser.add_argument("--limit", type=int, default=40, help="images, clean and of each corruption")
    arguments = parser.parse_args()
    classifier = mt.load(arguments.model)

    image = mt.corrupt(mt.load_dataset(arguments.data)[0].image, "contrast", severity=5)
    seen = mt.Memo(classifier, augment=light, n_views=N_VIEWS).explain(image)
    print(seen.prediction)
    for when, predictions in (("before", seen.before), ("after", seen.after)):
        counts = Counter(p.label for p in predictions).most_common()
        print(f"views {when}:", ", ".join(f"{count} {label}" for label, count in counts))

    data = arguments.data
    results = mt.evaluate(
        [data, f"{data}+contrast:4", f"{data}+brightness:4"],
        classifier,
        methods=["source", "memo", "memo-light"],
        options={"memo": {"n_views": N_VIEWS}},  # as many as the other, for a fair comparison
        limit=arguments.limit,
        quiet=True,
    )
    print(results.table())
    print(results.compare("memo-light", "memo"))


if __name__ == "__main__":
    main()
