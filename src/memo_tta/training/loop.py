"""Train ResNet-26 on small images by SGD with a one-cycle schedule; interrupted runs resume bit for bit."""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from memo_tta.durations import RecentDurations
from memo_tta.errors import ConfigError, DataError
from memo_tta.files import atomic_file
from memo_tta.models.checkpoint import load_weights
from memo_tta.models.networks.resnet26 import ResNet26
from memo_tta.models.networks.resnet26_joint import JointResNet26
from memo_tta.seeding import sample_rng
from memo_tta.training.rotation_task import joint_loss, with_turned
from memo_tta.training.sharded_gradients import set_gradients, shard_threads

PADDING = 4  # pixels on every side, before random crops
STATE = "state.safetensors"
WARM_UP = 0.15  # fraction of the steps in which the learning rate rises


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything besides the data that determines the result."""

    joint: bool = False
    epochs: int = 30
    batch_size: int = 128
    lr: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    seed: int = 0
    init: str | None = None  # path of plain ResNet-26 weights to start from

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch_size < 1 or self.lr <= 0:
            raise ConfigError(
                "train: expected epochs and batch_size of at least 1 and lr above 0, "
                f"got epochs={self.epochs}, batch_size={self.batch_size}, lr={self.lr}"
            )


@dataclass(frozen=True)
class TrainingProgress:
    """Progress of a run after a step."""

    epoch: int
    step: int  # counted from the first epoch
    steps: int  # of the whole run
    loss: float
    accuracy: float  # on the training images of this epoch so far
    images_per_second: float  # in recent steps


def train(
    x: np.ndarray, y: np.ndarray, out: Path, recipe: Recipe, report: Callable[[TrainingProgress], None]
) -> nn.Module:
    """Train on uint8 images (n, 32, 32, 3); resume an interrupted run in `out` after its last full epoch."""
    if len(x) < recipe.batch_size:
        raise DataError(
            f"train: expected at least one batch of {recipe.batch_size} images, got {len(x)} images"
        )
    model = _initial_model(recipe)
    optimizer = torch.optim.SGD(
        model.parameters(), recipe.lr, recipe.momentum, weight_decay=recipe.weight_decay, nesterov=True
    )
    state = TrainingState(out / STATE, model, optimizer, recipe)
    steps_per_epoch = len(x) // recipe.batch_size
    steps, durations = steps_per_epoch * recipe.epochs, RecentDurations()
    with shard_threads() as threads:
        for epoch in range(state.load(), recipe.epochs):
            rng = sample_rng(recipe.seed, f"epoch {epoch}")
            started, correct, seen = perf_counter(), 0, 0
            for index, batch in enumerate(batches(x, y, recipe.batch_size, rng)):
                step = epoch * steps_per_epoch + index
                optimizer.param_groups[0]["lr"] = recipe.lr * one_cycle(step / steps)
                if recipe.joint:
                    loss, batch_correct = set_gradients(model, joint_loss, with_turned(*batch, rng), threads)
                else:
                    loss, batch_correct = set_gradients(model, class_loss, batch, threads)
                optimizer.step()
                correct, seen = correct + batch_correct, seen + recipe.batch_size
                now = perf_counter()
                durations.add(now - started)
                started = now
                assert durations.typical is not None  # a duration was just added
                rate = recipe.batch_size / durations.typical
                report(TrainingProgress(epoch, step + 1, steps, loss, correct / seen, rate))
            state.save(epoch + 1)
    return model.eval()


def _initial_model(recipe: Recipe) -> nn.Module:
    """Return a model with random weights, or with those of `init`, in training mode."""
    with torch.random.fork_rng():
        torch.manual_seed(recipe.seed)
        model = (JointResNet26 if recipe.joint else ResNet26)()
    if recipe.init is not None:
        plain = ResNet26()
        load_weights(plain, recipe.init)
        model.load_state_dict(plain.state_dict(), strict=False)
    for parameter in model.parameters():
        parameter.data = _channels_last(parameter.data)
    return model.train()


def class_loss(model: nn.Module, images: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean cross-entropy and the number of correct predictions."""
    logits = model(images)
    return F.cross_entropy(logits, targets), (logits.argmax(1) == targets).sum()


def one_cycle(done: float) -> float:
    """Return the fraction of the largest learning rate: a linear rise, then a linear fall to 0.

    `done` is the fraction of the steps that are done.
    """
    return done / WARM_UP if done < WARM_UP else (1 - done) / (1 - WARM_UP)


def _channels_last(tensor: Tensor) -> Tensor:
    return tensor.contiguous(memory_format=torch.channels_last) if tensor.ndim == 4 else tensor


def batches(
    x: np.ndarray, y: np.ndarray, size: int, rng: np.random.Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield one epoch of shuffled, cropped and flipped batches, normalised to -1..1."""
    order = rng.permutation(len(x))
    for start in range(0, len(x) - size + 1, size):
        chosen = np.sort(order[start : start + size])  # the order within a batch does not matter
        images = torch.from_numpy(crop_and_flip(x[chosen], rng)).permute(0, 3, 1, 2)
        yield (images.float() / 127.5 - 1), torch.from_numpy(y[chosen].astype(np.int64))


def crop_and_flip(images: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return a random crop of each zero-padded image; half of them are flipped."""
    n, side = images.shape[:2]
    margins = ((0, 0), (PADDING, PADDING), (PADDING, PADDING), (0, 0))
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(images, margins), (side, side), axis=(1, 2))
    top, left = rng.integers(0, 2 * PADDING + 1, size=(2, n))
    crops = windows[np.arange(n), top, left].transpose(0, 2, 3, 1)
    flip = rng.random(n) < 0.5
    return np.where(flip[:, None, None, None], crops[:, :, ::-1], crops)


class TrainingState:
    """A file with weights, momentum and the number of finished epochs, replaced atomically."""

    def __init__(self, path: Path, model: nn.Module, optimizer: torch.optim.SGD, recipe: Recipe):
        self.path, self.model, self.optimizer = path, model, optimizer
        self.recipe = json.dumps(asdict(recipe))

    def save(self, epochs: int) -> None:
        """Write the state after this many epochs."""
        tensors = {f"weight.{name}": p for name, p in self.model.state_dict().items()}
        for name, parameter in self.model.named_parameters():
            tensors[f"momentum.{name}"] = self.optimizer.state[parameter]["momentum_buffer"]
        with atomic_file(self.path) as part:
            contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
            save_file(contiguous, part, {"epochs": str(epochs), "recipe": self.recipe})

    def load(self) -> int:
        """Restore the saved state, if there is one; return its number of finished epochs."""
        if not self.path.exists():
            return 0
        with safe_open(self.path, framework="pt") as file:
            metadata: dict[str, Any] = file.metadata()
            if metadata["recipe"] != self.recipe:
                raise ConfigError(
                    f"{self.path}: expected the recipe {self.recipe}, got {metadata['recipe']}: "
                    "use the same options to resume, or another --out"
                )
            names = self.model.state_dict()
            self.model.load_state_dict({name: file.get_tensor(f"weight.{name}") for name in names})
            for name, parameter in self.model.named_parameters():
                momentum = _channels_last(file.get_tensor(f"momentum.{name}"))
                self.optimizer.state[parameter]["momentum_buffer"] = momentum
        return int(metadata["epochs"])
