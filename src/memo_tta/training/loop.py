"""Train ResNet-26 on small images: one cycle of SGD, resumable to the bit."""

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

from memo_tta.errors import ConfigError, DataError
from memo_tta.files import atomic_file
from memo_tta.models.checkpoint import load_weights
from memo_tta.models.networks.resnet26 import ResNet26
from memo_tta.models.networks.resnet26_joint import JointResNet26
from memo_tta.seeding import sample_rng
from memo_tta.training.rotation_task import joint_loss, with_turned
from memo_tta.training.sharded_gradients import set_gradients, shard_threads

PADDING = 4
STATE = "state.safetensors"
WARM_UP = 0.15  # share of the steps in which the rate rises


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """All that decides the result, besides the data."""

    joint: bool = False
    epochs: int = 30
    batch_size: int = 128
    lr: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    seed: int = 0
    init: str | None = None  # weights of a plain ResNet-26 to start from

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch_size < 1 or self.lr <= 0:
            raise ConfigError("train: epochs and batch size must be at least 1, and the rate more than 0")


@dataclass(frozen=True)
class Progress:
    """Where training stands after a step."""

    epoch: int
    step: int
    steps: int  # in all epochs together
    loss: float
    accuracy: float  # on the training images of this epoch so far
    images_per_second: float


def train(
    x: np.ndarray, y: np.ndarray, out: Path, recipe: Recipe, report: Callable[[Progress], None]
) -> nn.Module:
    """Train on uint8 images (n, 32, 32, 3); an interrupted run in `out` goes on after its last epoch."""
    if len(x) < recipe.batch_size:
        raise DataError(f"train: {len(x)} images do not fill one batch of {recipe.batch_size}")
    model = _start(recipe)
    rule = torch.optim.SGD(
        model.parameters(), recipe.lr, recipe.momentum, weight_decay=recipe.weight_decay, nesterov=True
    )
    state = TrainingState(out / STATE, model, rule, recipe)
    steps_per_epoch = len(x) // recipe.batch_size
    steps = steps_per_epoch * recipe.epochs
    with shard_threads() as threads:
        for epoch in range(state.load(), recipe.epochs):
            rng = sample_rng(recipe.seed, f"epoch {epoch}")
            began, right, seen = perf_counter(), 0, 0
            for index, batch in enumerate(batches(x, y, recipe.batch_size, rng)):
                step = epoch * steps_per_epoch + index
                rule.param_groups[0]["lr"] = recipe.lr * one_cycle(step / steps)
                if recipe.joint:
                    loss, correct = set_gradients(model, joint_loss, with_turned(*batch, rng), threads)
                else:
                    loss, correct = set_gradients(model, class_loss, batch, threads)
                rule.step()
                right, seen = right + correct, seen + recipe.batch_size
                rate = seen / (perf_counter() - began)
                report(Progress(epoch, step + 1, steps, loss, right / seen, rate))
            state.save(epoch + 1)
    return model.eval()


def _start(recipe: Recipe) -> nn.Module:
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


def class_loss(model: nn.Module, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    logits = model(images)
    return F.cross_entropy(logits, labels), (logits.argmax(1) == labels).sum()


def one_cycle(done: float) -> float:
    """Share of the largest rate: up in a line, down in a line to 0."""
    return done / WARM_UP if done < WARM_UP else (1 - done) / (1 - WARM_UP)


def _channels_last(tensor: Tensor) -> Tensor:
    return tensor.contiguous(memory_format=torch.channels_last) if tensor.ndim == 4 else tensor


def batches(
    x: np.ndarray, y: np.ndarray, size: int, rng: np.random.Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    """One epoch of shuffled, cropped and mirrored batches, normalised to -1..1."""
    order = rng.permutation(len(x))
    for start in range(0, len(x) - size + 1, size):
        chosen = np.sort(order[start : start + size])  # the order within a batch does not matter
        images = torch.from_numpy(crop_and_flip(x[chosen], rng)).permute(0, 3, 1, 2)
        yield (images.float() / 127.5 - 1), torch.from_numpy(y[chosen].astype(np.int64))


def crop_and_flip(images: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A random crop of each zero-padded image, mirrored half of the time, all at once."""
    n, side = images.shape[:2]
    rim = ((0, 0), (PADDING, PADDING), (PADDING, PADDING), (0, 0))
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(images, rim), (side, side), axis=(1, 2))
    top, left = rng.integers(0, 2 * PADDING + 1, size=(2, n))
    crops = windows[np.arange(n), top, left].transpose(0, 2, 3, 1)
    flip = rng.random(n) < 0.5
    return np.where(flip[:, None, None, None], crops[:, :, ::-1], crops)


class TrainingState:
    """Weights, momentum and the number of finished epochs, in one file that is always whole."""

    def __init__(self, path: Path, model: nn.Module, rule: torch.optim.SGD, recipe: Recipe):
        self.path, self.model, self.rule = path, model, rule
        self.recipe = json.dumps(asdict(recipe))

    def save(self, epochs: int) -> None:
        tensors = {f"weight.{name}": p for name, p in self.model.state_dict().items()}
        for name, parameter in self.model.named_parameters():
            tensors[f"momentum.{name}"] = self.rule.state[parameter]["momentum_buffer"]
        with atomic_file(self.path) as part:
            contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
            save_file(contiguous, part, {"epochs": str(epochs), "recipe": self.recipe})

    def load(self) -> int:
        """Go back to the saved state, if there is one; how many epochs it has behind it."""
        if not self.path.exists():
            return 0
        with safe_open(self.path, framework="pt") as file:
            facts: dict[str, Any] = file.metadata()
            if facts["recipe"] != self.recipe:
                raise ConfigError(
                    f"{self.path}: is of another recipe, {facts['recipe']}: use it, or another --out"
                )
            names = self.model.state_dict()
            self.model.load_state_dict({name: file.get_tensor(f"weight.{name}") for name in names})
            for name, parameter in self.model.named_parameters():
                momentum = _channels_last(file.get_tensor(f"momentum.{name}"))
                self.rule.state[parameter]["momentum_buffer"] = momentum
        return int(facts["epochs"])
