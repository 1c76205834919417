"""Train a small network on CIFAR-10 with a one-cycle schedule; interrupted runs resume bit for bit."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from zlib import crc32

import numpy as np
import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from memo_tta.durations import RecentDurations
from memo_tta.errors import ConfigError, DataError
from memo_tta.files import atomic_file, remove_partial_files
from memo_tta.models.checkpoint import load_weights
from memo_tta.models.networks.cct2 import CCT2
from memo_tta.models.networks.resnet20_bn import ResNet20
from memo_tta.models.networks.resnet26 import ResNet26
from memo_tta.models.networks.resnet26_joint import JointResNet26
from memo_tta.registry import Registry
from memo_tta.seeding import sample_rng
from memo_tta.training.rotation_task import joint_loss, with_turned
from memo_tta.training.sharded_gradients import ShardedModel, shard_threads

PADDING = 4  # pixels on every side, before random crops
STATE = "state.safetensors"
WEIGHT = "weight"  # before the names of weights in the state file; others have that of the optimizer's value
WARM_UP = 0.15  # fraction of the steps in which the learning rate rises


MOMENTUM = 0.9  # of SGD, Nesterov's

NETWORKS: Registry[Callable[[], nn.Module]] = Registry(
    "model to train",
    {"resnet26": ResNet26, "resnet26-joint": JointResNet26, "resnet20-bn": ResNet20, "cct2": CCT2},
)
OPTIMIZERS: Registry[Callable[..., torch.optim.Optimizer]] = Registry(
    "optimizer",
    {"sgd": partial(torch.optim.SGD, momentum=MOMENTUM, nesterov=True), "adamw": torch.optim.AdamW},
)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything besides the data that determines the result."""

    model: str = "resnet26"
    epochs: int = 30
    batch_size: int = 128
    optimizer: str = "sgd"
    lr: float = 0.1
    weight_decay: float = 5e-4
    label_smoothing: float = 0.0
    seed: int = 0
    init: str | None = None  # path of weights to start from; a joint model starts from the plain one's

    def __post_init__(self) -> None:
        _ = NETWORKS[self.model], OPTIMIZERS[self.optimizer]
        if self.epochs < 1 or self.batch_size < 1 or self.lr <= 0:
            raise ConfigError(
                "train: expected epochs and batch_size of at least 1 and lr above 0, "
                f"got epochs={self.epochs}, batch_size={self.batch_size}, lr={self.lr}"
            )

    @property
    def is_joint(self) -> bool:
        """Whether the model also learns to predict rotations."""
        return self.model.endswith("-joint")


RECIPES = Registry(
    "model to train",
    {
        "resnet26": Recipe(),
        "resnet26-joint": Recipe(model="resnet26-joint"),
        "resnet20-bn": Recipe(model="resnet20-bn", epochs=75, lr=0.2),
        "cct2": Recipe(
            model="cct2", epochs=75, optimizer="adamw", lr=2e-3, weight_decay=0.05, label_smoothing=0.1
        ),
    },
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
    build = OPTIMIZERS[recipe.optimizer]
    optimizer = build(model.parameters(), lr=recipe.lr, weight_decay=recipe.weight_decay)
    loss_function = partial(
        joint_loss if recipe.is_joint else class_loss, label_smoothing=recipe.label_smoothing
    )
    sharded = ShardedModel(model, recipe.batch_size)
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
                tensors = with_turned(*batch, rng) if recipe.is_joint else batch
                loss, batch_correct = sharded.set_gradients(loss_function, tensors, threads)
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
        model = NETWORKS[recipe.model]()
    if recipe.init is not None:
        plain = NETWORKS[recipe.model.removesuffix("-joint")]()
        load_weights(plain, recipe.init)
        model.load_state_dict(plain.state_dict(), strict=False)
    for parameter in model.parameters():
        parameter.data = _channels_last(parameter.data)
    return model.train()


def class_loss(
    model: nn.Module, images: Tensor, targets: Tensor, label_smoothing: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Return the mean cross-entropy and the number of correct predictions."""
    logits = model(images)
    loss = F.cross_entropy(logits, targets, label_smoothing=label_smoothing)
    return loss, (logits.argmax(1) == targets).sum()


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
    """A file with weights, buffers, optimizer state and finished epochs, replaced atomically."""

    def __init__(self, path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, recipe: Recipe):
        self.path, self.model, self.optimizer = path, model, optimizer
        self.recipe = json.dumps(asdict(recipe))
        self.epochs = recipe.epochs

    def save(self, epochs: int) -> None:
        """Write the state after this many epochs."""
        tensors = {f"{WEIGHT}.{name}": value for name, value in self.model.state_dict().items()}
        for name, parameter in self.model.named_parameters():
            for key, value in self.optimizer.state[parameter].items():
                tensors[f"{key}.{name}"] = value
        with atomic_file(self.path) as part:
            contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
            facts = {"epochs": str(epochs), "recipe": self.recipe, "checksum": _checksum(contiguous)}
            save_file(contiguous, part, facts)

    def load(self) -> int:
        """Restore the saved state, if there is one; return its number of finished epochs.

        Raise and leave the model unchanged if the file is damaged or of another recipe.
        """
        remove_partial_files(self.path.parent)
        if not self.path.exists():
            return 0
        metadata, tensors = self._read()
        recipe, epochs = metadata.get("recipe"), metadata.get("epochs", "")
        if recipe is not None and recipe != self.recipe:
            raise ConfigError(
                f"{self.path}: expected the recipe {self.recipe}, got {recipe}: "
                "use the same options to resume, or another --out"
            )
        if recipe is None or not epochs.isdecimal() or not 1 <= int(epochs) <= self.epochs:
            raise self._damaged("the recipe or the number of epochs is missing")
        if metadata.get("checksum") != _checksum(tensors):
            raise self._damaged("its checksum is not that of its tensors")
        self._restore(tensors)
        return int(epochs)

    def _read(self) -> tuple[dict[str, str], dict[str, Tensor]]:
        """Return the metadata and the tensors of the file."""
        try:
            with safe_open(self.path, framework="pt") as file:
                tensors = {entry: file.get_tensor(entry) for entry in file.keys()}  # noqa: SIM118, not a dict
                return file.metadata() or {}, tensors
        except OSError as error:
            raise DataError(f"{self.path}: cannot be read ({error.strerror or error})") from None
        except Exception as error:  # decoders raise all kinds of exceptions on damaged files
            raise self._damaged(str(error)) from None

    def _restore(self, tensors: dict[str, Tensor]) -> None:
        """Put the tensors into model and optimizer; raise before any is put if they do not fit."""
        parameters, expected = dict(self.model.named_parameters()), self.model.state_dict()
        weights, states = dict[str, Tensor](), dict[str, dict[str, Tensor]]()
        for entry, tensor in tensors.items():
            key, _, name = entry.partition(".")
            if tensor.is_floating_point() and not tensor.isfinite().all():
                raise self._damaged(f"{entry} is not finite")
            is_count = key != WEIGHT and tensor.ndim == 0  # of the optimizer's steps
            if name not in expected or not (is_count or tensor.shape == expected[name].shape):
                raise self._damaged(f"{entry} of shape {tuple(tensor.shape)} does not fit the model")
            if key == WEIGHT:
                weights[name] = tensor
            else:
                states.setdefault(name, {})[key] = tensor
        if weights.keys() != expected.keys() or states.keys() != parameters.keys():
            raise self._damaged("tensors are missing")
        self.model.load_state_dict(weights)
        for name, state in states.items():
            self.optimizer.state[parameters[name]] = {
                key: _channels_last(value) for key, value in state.items()
            }

    def _damaged(self, problem: str) -> DataError:
        return DataError(f"{self.path}: damaged ({problem}): delete it to start over")


def _checksum(tensors: Mapping[str, Tensor]) -> str:
    """Return a number that differs if a name, type, shape or value of the tensors does."""
    checksum = 0
    for name, tensor in sorted(tensors.items()):
        checksum = crc32(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode(), checksum)
        checksum = crc32(tensor.flatten().view(torch.uint8).numpy().tobytes(), checksum)
    return str(checksum)
