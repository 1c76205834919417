"""Shared by all tests: hypothesis profiles, reference vectors, and the command as a function."""

import json
import os
import signal
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import settings

from memo_tta.cli import main
from memo_tta.models.networks.resnet26 import ResNet26

ROOT = Path(__file__).parent.parent

settings.register_profile("default", deadline=None, max_examples=25)
settings.register_profile("soak", deadline=None, max_examples=300)
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "default")
settings.load_profile(PROFILE)

# A shell that starts the tests in the background makes them ignore SIGINT, which some of them raise.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Two test processes share two cores. Processes that tests start must compute the same, so they inherit this.
torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"


def times(short: int, full: int) -> int:
    """Return how often to repeat a random test: `full` in the soak profile, else `short`."""
    return full if PROFILE == "soak" else short


class Vectors:
    """Results of the published implementations, and the rules that generate their inputs."""

    def __init__(self, folder: Path):
        self.folder = folder

    def json(self, name: str) -> Any:
        """Return the content of a JSON file."""
        return json.loads((self.folder / f"{name}.json").read_text())

    def arrays(self, name: str) -> dict[str, np.ndarray]:
        """Return the arrays of an .npz file by name."""
        with np.load(self.folder / f"{name}.npz") as arrays:
            return {key: arrays[key] for key in arrays.files}

    def rule_input(self, name: str, shape: tuple[int, int, int, int]) -> torch.Tensor:
        """Return the input of that name: smooth noise, seeded by the name."""
        b, c, h, w = shape
        g = np.random.Generator(np.random.PCG64(zlib.crc32(f"input/{name}".encode())))
        q = 32 if h > 32 and h % 32 == 0 else 8
        coarse = g.standard_normal((b, c, h // q, w // q)).repeat(q, axis=2).repeat(q, axis=3)
        return torch.from_numpy((coarse + 0.25 * g.standard_normal(shape)).astype(np.float32))

    def rule_weights(self, module: torch.nn.Module) -> None:
        """Fill the module with noise that is seeded by the name of each tensor."""
        state = {key: _rule_tensor(key, tuple(value.shape)) for key, value in module.state_dict().items()}
        module.load_state_dict(state)


def _rule_tensor(key: str, shape: tuple[int, ...]) -> torch.Tensor:
    g = np.random.Generator(np.random.PCG64(zlib.crc32(key.encode())))
    last = key.rsplit(".", 1)[-1]
    if last == "num_batches_tracked":
        return torch.zeros(shape, dtype=torch.int64)
    if last == "running_mean":
        values = 0.1 * g.standard_normal(shape)
    elif last == "running_var":
        values = 0.5 + g.random(shape)
    elif last == "att_mask":
        values = g.standard_normal(shape)
    elif last == "bias":
        values = 0.05 * g.standard_normal(shape)
    elif len(shape) == 1:
        values = 1 + 0.1 * g.standard_normal(shape)
    else:
        values = g.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
    return torch.from_numpy(values.astype(np.float32))


@pytest.fixture(scope="session")
def golden() -> Vectors:
    """Reference vectors that are part of this repository."""
    return Vectors(ROOT / "tests" / "golden")


@pytest.fixture(scope="session")
def reference() -> Path:
    """Folder with the authors' weights and ImageNet images, which cannot be part of the repository."""
    root = Path(os.environ.get("MEMO_TEST_DATA", ROOT.parent / "shared" / "data"))
    if not root.is_dir():
        pytest.skip(
            "the authors' weights and ImageNet images are missing: set MEMO_TEST_DATA to their folder"
        )
    return root


@pytest.fixture(scope="session")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Path of a file with random weights of ResNet-26."""
    path = tmp_path_factory.mktemp("weights") / "random.npz"
    with torch.random.fork_rng():
        torch.manual_seed(0)
        np.savez(path, **{key: value.numpy() for key, value in ResNet26().state_dict().items()})
    return path


@pytest.fixture
def memo(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[Any, str, str]]:
    """A function that runs the command `memo` in this process and returns exit code, stdout and stderr."""

    def run(*words: object) -> tuple[Any, str, str]:
        with pytest.raises(SystemExit) as stopped:
            main([str(word) for word in words])
        captured = capsys.readouterr()
        return stopped.value.code, captured.out, captured.err

    return run
