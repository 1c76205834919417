import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from scipy import stats

from memo_tta.data.dataset import Dataset
from memo_tta.errors import CheckpointError, ConfigError, DataError, MemoError
from memo_tta.models.networks.cct2 import CCT2
from memo_tta.models.networks.resnet26 import ResNet26
from memo_tta.models.networks.resnet26_joint import turn
from memo_tta.models.zoo import load
from memo_tta.seeding import sample_rng
from memo_tta.training import loop
from memo_tta.training.loop import (
    NETWORKS,
    RECIPES,
    STATE,
    Recipe,
    TrainingState,
    batches,
    crop_and_flip,
    one_cycle,
    train,
)
from memo_tta.training.result import METRICS, WEIGHTS, error_percent, finish
from tests.conftest import times

SMALL: dict[str, Any] = {"epochs": 2, "batch_size": 8}


def images(n: int = 24) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (n, 32, 32, 3), dtype=np.uint8), rng.integers(0, 10, n).astype(np.uint8)


def ignore(_):
    pass


class Stop(Exception):
    pass


def stop_at(step):
    def report(now):
        if now.step == step:
            raise Stop

    return report


@pytest.mark.parametrize("model", RECIPES)
@pytest.mark.parametrize("step", [2, 4, 5])
def test_a_run_that_was_stopped_ends_with_the_same_weights(tmp_path, model, step):
    recipe = replace(RECIPES[model], **SMALL)
    unbroken = train(*images(), tmp_path / "a", recipe, ignore)
    with pytest.raises(Stop):
        train(*images(), tmp_path / "b", recipe, stop_at(step))
    resumed = train(*images(), tmp_path / "b", recipe, ignore)
    for name, value in unbroken.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name
    assert type(resumed) is NETWORKS[model]


KILLED = """
import sys, numpy as np, torch
from pathlib import Path
from dataclasses import replace
from memo_tta.training.loop import RECIPES, train
torch.set_num_threads(1)
data = np.load(sys.argv[1])
recipe = replace(RECIPES[sys.argv[3]], epochs=3, batch_size=8)
train(data["x"], data["y"], Path(sys.argv[2]), recipe, lambda now: print(now.step, flush=True))
"""


def run_killed(data, out, model: str, after_step: int) -> None:
    words = [sys.executable, "-c", KILLED, str(data), str(out), model]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) == after_step:
                process.send_signal(signal.SIGKILL)


@pytest.mark.parametrize("model", RECIPES)
def test_sigkill_in_the_middle_of_an_epoch(tmp_path, model):
    x, y = images()
    np.savez(tmp_path / "data.npz", x=x, y=y)
    recipe = replace(RECIPES[model], epochs=3, batch_size=8)
    unbroken = train(x, y, tmp_path / "a", recipe, ignore)
    for step in (5, 8, 2)[: times(1, 3)]:  # an epoch has three steps
        run_killed(tmp_path / "data.npz", tmp_path / "b", model, step)
        assert [p.name for p in (tmp_path / "b").glob("*")] in ([], [STATE])
    assert load_file(tmp_path / "b" / STATE)
    resumed = train(x, y, tmp_path / "b", recipe, ignore)
    for name, value in unbroken.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name


def test_training_learns(tmp_path):
    y = np.arange(16, dtype=np.uint8) % 2
    x = np.broadcast_to((40 + 180 * y)[:, None, None, None], (16, 32, 32, 3)).copy()  # dark and bright
    seen = []
    train(x, y, tmp_path, Recipe(epochs=25, batch_size=16, lr=0.05), seen.append)
    assert seen[0].loss > 1.5 and seen[-1].loss < 0.1 and seen[-1].accuracy == 1
    assert seen[-1].step == seen[-1].steps == 25


def test_one_slow_step_does_not_change_the_rate(tmp_path, monkeypatch):
    seconds, rates = iter([0, 2, 4, *range(100, 200, 2)]), []
    monkeypatch.setattr(loop, "perf_counter", lambda: next(seconds))
    train(*images(40), tmp_path, Recipe(**SMALL), lambda now: rates.append(now.images_per_second))
    assert rates == [8 / 2] * 10


def test_a_run_of_another_recipe_is_not_continued(tmp_path):
    train(*images(), tmp_path, Recipe(**SMALL), ignore)
    with pytest.raises(ConfigError, match=r"expected the recipe .*, got .*: use the same options to resume"):
        train(*images(), tmp_path, Recipe(**SMALL, seed=1), ignore)


def damage_state(path, seed):
    """Damage the file at random; return whether that changed anything."""
    rng, content = np.random.default_rng(seed), bytearray(path.read_bytes())
    place = int(rng.integers(len(content))) if rng.random() < 0.5 else int(rng.integers(4000))
    kind = rng.choice(["cut", "flip", "zero", "text", "empty"])
    if kind == "flip":
        content[place] ^= 1 << int(rng.integers(8))
    else:
        others = {"cut": content[:place], "text": b"<html>", "empty": b""}
        content = others.get(kind, content[:place] + bytes(64) + content[place + 64 :])
    was, now = path.read_bytes(), bytes(content)
    path.write_bytes(now)
    return was != now


@pytest.mark.parametrize("model", ["resnet20-bn", "cct2"])
def test_a_damaged_state_is_told_and_changes_nothing(tmp_path, model):
    recipe = replace(RECIPES[model], epochs=1, batch_size=24)
    train(*images(), tmp_path, recipe, ignore)
    content = (tmp_path / STATE).read_bytes()
    network = NETWORKS[model]()
    optimizer = loop.OPTIMIZERS[recipe.optimizer](network.parameters(), lr=0.1)
    state = TrainingState(tmp_path / STATE, network, optimizer, recipe)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    for seed in range(times(40, 400)):
        (tmp_path / STATE).write_bytes(content)
        if damage_state(tmp_path / STATE, seed):
            with pytest.raises(
                MemoError, match=r"damaged \(.*\): delete it to start over|expected the recipe"
            ):
                state.load()
            assert not optimizer.state
    for name, value in network.state_dict().items():
        assert torch.equal(value, before[name])
    (tmp_path / STATE).write_bytes(content)
    assert state.load() == 1 and optimizer.state


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda tensors, facts: facts.pop("recipe"), "the recipe or the number of epochs is missing"),
        (lambda tensors, facts: facts.update(epochs="many"), "the recipe or the number of epochs is missing"),
        (lambda tensors, facts: facts.update(epochs="3"), "the recipe or the number of epochs is missing"),
        (lambda tensors, facts: facts.clear(), "the recipe or the number of epochs is missing"),
        (lambda tensors, facts: tensors.clear(), "tensors are missing"),
        (lambda tensors, facts: tensors.pop("weight.fc.bias"), "tensors are missing"),
        (lambda tensors, facts: tensors.pop("momentum_buffer.fc.bias"), "tensors are missing"),
        (lambda tensors, facts: tensors["weight.fc.bias"].fill_(torch.nan), "weight.fc.bias is not finite"),
        (lambda tensors, facts: tensors.update({"weight.fc.bias": torch.zeros(3)}), r"of shape \(3,\)"),
        (lambda tensors, facts: tensors.update({"weight.fc.bias": torch.zeros(())}), r"of shape \(\)"),
        (lambda tensors, facts: tensors.update({"what": torch.zeros(3)}), r"what of shape \(3,\)"),
    ],
)
def test_a_state_that_does_not_fit_is_told(tmp_path, change, problem):
    """Even if its checksum is right."""
    recipe = Recipe(**SMALL)
    train(*images(), tmp_path, recipe, ignore)
    tensors = load_file(tmp_path / STATE)
    with safe_open(tmp_path / STATE, framework="pt") as file:
        facts = dict(file.metadata())
    change(tensors, facts)
    save_file(tensors, tmp_path / STATE, {**facts, "checksum": loop._checksum(tensors)})
    with pytest.raises(DataError, match=rf"{STATE}: damaged \(.*{problem}.*\): delete it to start over"):
        train(*images(), tmp_path, recipe, ignore)


def test_what_a_killed_process_left_is_deleted(tmp_path):
    (tmp_path / f".{STATE}.{2**22 + 1}.part").write_bytes(b"half")  # no process has so large an id
    train(*images(), tmp_path, Recipe(**SMALL), ignore)
    assert [path.name for path in tmp_path.iterdir()] == [STATE]


@pytest.mark.parametrize("options", [{"epochs": 0}, {"batch_size": 0}, {"lr": 0}])
def test_recipes_that_cannot_work(options):
    with pytest.raises(ConfigError, match="expected epochs and batch_size of at least 1 and lr above 0, got"):
        Recipe(**options)


def test_too_few_images(tmp_path):
    with pytest.raises(DataError, match="expected at least one batch of 8 images, got 4 images"):
        train(*images(4), tmp_path, Recipe(**SMALL), ignore)


def test_the_rate_rises_and_falls_to_zero():
    rates = [one_cycle(done / 1000) for done in range(1001)]
    assert rates[0] == 0 and rates[-1] == 0 and max(rates) == pytest.approx(1, abs=0.01)
    assert np.diff(np.sign(np.diff(rates))).nonzero()[0].size == 1


def test_crops_are_windows_of_the_padded_image_or_its_mirror():
    x, _ = images(200)
    for image, crop in zip(x, crop_and_flip(x, sample_rng(0, "crops")), strict=True):
        padded = np.zeros((40, 40, 3), np.uint8)
        padded[4:36, 4:36] = image
        windows = np.lib.stride_tricks.sliding_window_view(padded, (32, 32), axis=(0, 1))
        wanted = {crop.tobytes(), crop[:, ::-1].tobytes()}
        assert any(windows[i, j].transpose(1, 2, 0).tobytes() in wanted for i in range(9) for j in range(9))


def test_crops_and_flips_are_uniform():
    marked = np.zeros((4000, 32, 32, 3), np.uint8)
    marked[:, 15, 15], marked[:, 15, 18] = 1, 2
    crops = crop_and_flip(marked, sample_rng(0, "uniform"))[..., 0]
    rows, first = np.array([np.argwhere(crop == 1)[0] for crop in crops]).T
    _, second = np.array([np.argwhere(crop == 2)[0] for crop in crops]).T
    flipped = first > second
    columns = np.where(flipped, 31 - first, first)
    assert stats.chisquare(np.bincount(rows - 11, minlength=9)).pvalue > 1e-3
    assert stats.chisquare(np.bincount(columns - 11, minlength=9)).pvalue > 1e-3
    assert stats.binomtest(int(flipped.sum()), 4000).pvalue > 1e-3


def test_an_epoch_visits_every_image_once():
    x, y = images(24)
    x[:] = np.arange(24, dtype=np.uint8)[:, None, None, None]
    seen = torch.cat([((b + 1) * 127.5).amax(dim=(1, 2, 3)) for b, _ in batches(x, y, 8, sample_rng(0, 0))])
    assert sorted(seen.round().int().tolist()) == list(range(24))


def test_turns_are_right_angles_counter_clockwise():
    picture = torch.arange(4.0).reshape(1, 1, 2, 2).repeat(4, 3, 1, 1)
    turned = turn(picture, torch.arange(4))
    for count in range(4):
        np.testing.assert_array_equal(turned[count, 0], np.rot90(picture[0, 0].numpy(), count))


def test_the_result_is_written_whole_and_loads_by_name(tmp_path):
    x, y = images()
    model = train(x, y, tmp_path, Recipe(model="resnet26-joint", **SMALL), ignore)
    test = Dataset("test", x, y, list("abcdefghij"))
    facts = finish(model, test, tmp_path, {"joint": True})
    assert json.loads((tmp_path / METRICS).read_text()) == facts
    classifier = load("resnet26-joint", weights=tmp_path / WEIGHTS)
    with torch.no_grad():
        logits = classifier(torch.stack([classifier.point(image).x for image in x]))
    assert facts["test_error"] == round(100 * float((logits.argmax(1).numpy() != y).mean()), 2)
    assert facts["test_error"] == round(error_percent(model, test, batch_size=5), 2)
    assert time.strptime(facts["date"], "%Y-%m-%d")


def test_weights_to_start_from(tmp_path):
    torch.manual_seed(3)
    plain = ResNet26()
    save_file(plain.state_dict(), tmp_path / "plain.safetensors")
    still = Recipe(
        model="resnet26-joint", epochs=1, batch_size=24, lr=1e-30, init=str(tmp_path / "plain.safetensors")
    )
    model = train(*images(), tmp_path / "run", still, ignore)
    state = model.state_dict()
    for name, value in plain.state_dict().items():
        assert torch.equal(state[name], value), name
    assert any(name.startswith("rotation.") for name in state)


def test_weights_to_start_from_that_do_not_fit(tmp_path):
    save_file({"fc.weight": torch.zeros(10, 64)}, tmp_path / "other.safetensors")
    with pytest.raises(CheckpointError, match=r"other\.safetensors"):
        train(*images(), tmp_path, Recipe(init=str(tmp_path / "other.safetensors"), **SMALL), ignore)


def test_label_smoothing_is_that_of_torch(tmp_path):
    smooth = replace(RECIPES["cct2"], epochs=1, batch_size=24, lr=1e-30)
    losses = {}
    for smoothing in (0.0, 0.5):
        seen = []
        train(*images(), tmp_path / str(smoothing), replace(smooth, label_smoothing=smoothing), seen.append)
        losses[smoothing] = seen[0].loss
    torch.manual_seed(0)
    model = CCT2()
    (x, targets) = next(batches(*images(), 24, sample_rng(0, "epoch 0")))
    with torch.no_grad():
        log_p = model(x).log_softmax(1)
    hard, uniform = -log_p[range(24), targets].mean(), -log_p.mean()
    assert losses[0.0] == pytest.approx(float(hard), rel=1e-4)
    assert losses[0.5] == pytest.approx(float((hard + uniform) / 2), rel=1e-4)


def test_an_unknown_model_lists_the_choices(memo, tmp_path):
    code, _, err = memo("train", "--out", tmp_path, "--model", "resnet20")
    assert code == 1 and "unknown model to train 'resnet20': choose from resnet26" in err
    code, _, err = memo("train", "--out", tmp_path, "--model", "cct2", "--joint")
    assert code == 1 and "unknown model to train 'cct2-joint'" in err
