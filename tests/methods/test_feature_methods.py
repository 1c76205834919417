"""Methods that use the last layer's features, compared with their papers' equations in numpy."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from scipy.spatial.distance import cdist
from scipy.special import softmax, xlogy
from torch import nn

import memo_tta as mt
from memo_tta.data.dataset import balanced
from memo_tta.data.sample_images import load_sample
from memo_tta.errors import ConfigError, DataError, MemoError, ModelError
from memo_tta.methods import METHODS, Method
from memo_tta.methods.shared_work import SharedWork
from tests.nets import build_classifier, everything, last_linear, pictures

SEQUENTIAL = ("t3a", "recenter")  # those that remember features
ROWS = (*SEQUENTIAL, "lame")


def last_layer(classifier: mt.Classifier, x: torch.Tensor) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features (n, width), weights (classes, width) and bias of the last layer, in float64."""
    *body, head = copy.deepcopy(classifier.module).eval().children()
    with torch.no_grad():
        features = nn.Sequential(*body)(x)
    assert isinstance(head, nn.Linear)
    weight, bias = head.weight.detach(), head.bias.detach()
    return features.double().numpy(), weight.double().numpy(), bias.double().numpy()


def inputs(n: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, 3, 8, 8, generator=torch.Generator().manual_seed(seed))


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def entropy(logits: np.ndarray) -> float:
    p = softmax(logits)
    return float(-xlogy(p, p).sum())


def plain_t3a(z: np.ndarray, w: np.ndarray, b: np.ndarray, most: int, batch: int) -> np.ndarray:
    """Return T3A's logits: the supports of each class are a list, from which the unsure ones are dropped."""
    supports = {k: [(entropy(w @ w[k] + b), unit(w[k]))] for k in range(len(w))}
    answers = []
    for start in range(0, len(z), batch):
        for one in z[start : start + batch]:
            logits = w @ one + b
            supports[int(logits.argmax())].append((entropy(logits), unit(one)))
        for label, found in supports.items():
            supports[label] = sorted(found, key=lambda support: support[0])[:most]
        centres = np.stack([np.mean([f for _, f in supports[k]], axis=0) for k in range(len(w))])
        answers += [unit(centres) @ one for one in z[start : start + batch]]
    return np.array(answers)


@pytest.mark.parametrize("net", ["group-norm", "batch-norm", "no-norm"])
@pytest.mark.parametrize(("most", "batch"), [(1, 1), (2, 1), (3, 5), (20, 1), (100, 20)])
def test_t3a_equals_its_definition(net, most, batch):
    classifier, x = build_classifier(net), inputs(20)
    ours = mt.method("t3a", classifier, supports=most, batch_size=batch)(x)
    expected = plain_t3a(*last_layer(classifier, x), most, batch)
    np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5)


def plain_lame(z: np.ndarray, w: np.ndarray, b: np.ndarray, kind: str, k: int) -> np.ndarray:
    """Return LAME's probabilities after so many iterations that they no longer change."""
    z, p, n = unit(z), softmax(z @ w.T + b, axis=1) + 1e-10, len(z)
    distances = cdist(z, z)
    if kind == "knn":
        affinity = np.zeros((n, n))
        for i in range(n):
            others = sorted((j for j in range(n) if j != i), key=lambda j: distances[i, j])
            affinity[i, others[:k]] = 1
    elif kind == "rbf":
        affinity = np.exp(-(distances**2) / (2 * np.sort(distances, axis=1)[:, min(k, n) - 1].mean() ** 2))
    else:
        affinity = z @ z.T
    answer = p / p.sum(axis=1, keepdims=True)
    for _ in range(1000):
        moved = p * np.exp(affinity @ answer)
        answer = moved / moved.sum(axis=1, keepdims=True)
    return answer


@pytest.mark.parametrize("net", ["group-norm", "no-norm"])
@pytest.mark.parametrize("kind", ["knn", "rbf", "linear"])
@pytest.mark.parametrize("size", [12, 3, 2])
def test_lame_equals_its_definition(net, kind, size):
    classifier, x = build_classifier(net), inputs(size)
    ours = mt.method("lame", classifier, affinity=kind)(x).softmax(dim=1)
    expected = plain_lame(*last_layer(classifier, x), kind, 5)
    np.testing.assert_allclose(ours, expected, atol=1e-3)


def test_lame_predicts_similar_points_alike():
    """Points around two directions; the few of each that are wrong are drawn to their neighbours."""
    module = nn.Sequential(nn.Flatten(), nn.Linear(2, 2, bias=False))
    module[1].weight.data = torch.eye(2)
    classifier = mt.Classifier(module)
    angles = torch.tensor([0.1, 0.15, 0.2, 0.25, 0.82, 1.5, 1.45, 1.4, 1.35, 1.3])
    x = torch.stack([angles.cos(), angles.sin()], dim=1)
    right = torch.tensor([0] * 5 + [1] * 5)
    assert (classifier(x).argmax(dim=1) != right).sum() == 1
    assert torch.equal(mt.method("lame", classifier, neighbours=3)(x).argmax(dim=1)[:4], right[:4])
    assert torch.equal(mt.method("lame", classifier, neighbours=3)(x[[0, 1, 2, 4]]).argmax(1), right[:4])


def test_lame_leaves_a_point_alone_that_has_no_neighbours():
    classifier, x = build_classifier("group-norm"), inputs(1)
    ours, source = (mt.method(name, classifier)(x).softmax(dim=1) for name in ("lame", "source"))
    torch.testing.assert_close(ours, source)


def test_lame_answers_identical_points():
    classifier, x = build_classifier("group-norm"), inputs(1).expand(6, -1, -1, -1)
    for kind in ("knn", "rbf", "linear"):
        logits = mt.method("lame", classifier, affinity=kind)(x)
        assert logits.isfinite().all()
        torch.testing.assert_close(logits, logits[:1].expand(6, -1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("prior", [0, 4, 16])
@pytest.mark.parametrize("batch", [1, 5])
def test_recenter_equals_its_definition(prior, batch, tmp_path):
    classifier, x = build_classifier("group-norm"), inputs(20)
    features, weight, bias = last_layer(classifier, x)
    for source in (np.zeros(features.shape[1]), np.linspace(-1, 2, features.shape[1])):
        options = {"batch_size": batch, "prior_strength": prior}
        if source.any():
            save_file({"mean": torch.from_numpy(source)}, tmp_path / "mean.safetensors")
            options["source_data"] = str(tmp_path / "mean.safetensors")
        ours = mt.method("recenter", classifier, **options)(x)
        for i in range(20):
            seen = features[: (i // batch + 1) * batch]
            mean = (prior * source + seen.sum(axis=0)) / (prior + len(seen))
            expected = weight @ (features[i] - mean + source) + bias
            np.testing.assert_allclose(ours[i], expected, rtol=1e-4, atol=1e-4)


def test_a_strong_prior_leaves_the_source_s_predictions():
    classifier, x = build_classifier("group-norm"), inputs(6)
    ours, source = mt.method("recenter", classifier, prior_strength=1e9), mt.method("source", classifier)
    torch.testing.assert_close(ours(x), source(x))


def test_the_source_s_mean_is_that_of_its_images(tmp_path):
    classifier = mt.load("resnet20-bn")
    before = everything(classifier.module)
    robust: Any = mt.method("recenter", classifier, source_data="sample")
    assert everything(classifier.module) == before
    images = balanced(load_sample(), 256)
    with torch.no_grad():
        body = copy.deepcopy(classifier.module).eval()
        body.fc = nn.Identity()
        features = body(torch.stack([classifier.point(one.image).x for one in images]))
    torch.testing.assert_close(robust.source_mean, features.mean(dim=0), rtol=1e-4, atol=1e-5)
    save_file({"mean": robust.source_mean}, tmp_path / "mean.safetensors")
    stored = mt.method("recenter", classifier, source_data=str(tmp_path / "mean.safetensors"))
    # The mean of the source itself moves nothing much.
    some = [one.image for one in images][:3]
    for ours, wanted in zip(stored.predict(some), robust.predict(some), strict=True):
        assert torch.equal(ours.logits, wanted.logits)


def test_the_mean_of_other_weights_is_not_reused():
    first, second = mt.load("resnet20-bn"), mt.load("resnet20-bn")
    with torch.no_grad():
        next(second.module.parameters()).mul_(2)
    means: list[Any] = [mt.method("recenter", c, source_data="sample") for c in (first, second, first)]
    assert torch.equal(means[0].source_mean, means[2].source_mean)
    assert not torch.allclose(means[0].source_mean, means[1].source_mean)


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        (
            {"weight": torch.zeros(72)},
            ConfigError,
            "expected a tensor 'mean' of one dimension, got .'weight'",
        ),
        ({"mean": torch.zeros(2, 3)}, ConfigError, "expected a tensor 'mean' of one dimension"),
        ({"mean": torch.zeros(3)}, ConfigError, r"expected a mean of 72 features, got \[3\]"),
        (b"not a file of tensors", MemoError, "mean.safetensors"),
        (None, MemoError, "mean.safetensors"),
    ],
)
def test_a_file_that_has_no_mean_is_an_error_in_one_line(content, error, message, tmp_path):
    path = tmp_path / "mean.safetensors"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        save_file(content, path)
    with pytest.raises(error, match=message) as refused:
        mt.method("recenter", build_classifier("group-norm"), source_data=str(path)).predict(pictures(1)[0])
    assert "\n" not in str(refused.value)


def test_source_data_that_is_not_there_is_an_error_when_the_method_is_built():
    with pytest.raises(DataError, match="no/such/folder: no such file or folder"):
        mt.method("recenter", build_classifier("group-norm"), source_data="no/such/folder")


def stream(name: str, classifier: mt.Classifier, **options: Any) -> Method[Any]:
    return mt.method(name, classifier, **options)


@pytest.mark.parametrize("name", SEQUENTIAL)
def test_one_at_a_time_is_the_same_as_a_list_and_goes_on_after_pickling(name):
    classifier, images = build_classifier("group-norm"), pictures(9)
    together = stream(name, classifier).predict(images)
    robust, one_by_one = stream(name, classifier), []
    for image in images:
        one_by_one.append(robust.predict(image))
        robust = pickle.loads(pickle.dumps(robust))
    for ours, wanted in zip(one_by_one, together, strict=True):
        assert torch.equal(ours.logits, wanted.logits)


@pytest.mark.parametrize("name", SEQUENTIAL)
def test_what_is_remembered_matters_and_reset_forgets_it(name):
    robust, images = stream(name, build_classifier("group-norm")), pictures(9)
    first = robust.predict(images[0]).logits
    robust.predict(images[1:])
    assert not torch.allclose(robust.predict(images[0]).logits, first, atol=1e-4)
    robust.reset()
    assert torch.equal(robust.predict(images[0]).logits, first)
    if name == "recenter":
        with pytest.raises(ConfigError, match="online: expected true, as the mean is that of a stream"):
            stream(name, robust.classifier, online=False)
        return
    forgetful = stream(name, build_classifier("group-norm"), online=False)
    assert not forgetful.online and robust.online
    forgetful.predict(images)
    assert torch.equal(forgetful.predict(images[0]).logits, first)


@pytest.mark.parametrize("name", ROWS)
def test_one_pass_serves_the_source_s_prediction_too(name):
    classifier = build_classifier("group-norm")
    calls: list[int] = []
    classifier.module.register_forward_pre_hook(lambda _, given: calls.append(len(given[0])))
    robust = stream(name, classifier, batch_size=4)
    predictions = robust.predict(pictures(4))
    assert calls == [4]
    source = mt.method("source", classifier).predict(pictures(4))
    for ours, wanted in zip(predictions, source, strict=True):
        torch.testing.assert_close(ours.source.logits, wanted.logits)


@pytest.mark.parametrize("name", ROWS)
def test_a_source_s_pass_of_another_method_changes_nothing(name):
    classifier = build_classifier("group-norm")
    points = [classifier.point(image) for image in pictures(3)]
    works, ids = [SharedWork() for _ in points], [0, 1, 2]
    mt.method("source", classifier).predict_points(points, ids, works)
    shared = stream(name, classifier, batch_size=3).predict_points(points, ids, works)
    alone = stream(name, classifier, batch_size=3).predict_points(points, ids, [SharedWork() for _ in points])
    for ours, wanted in zip(shared, alone, strict=True):
        torch.testing.assert_close(ours.logits, wanted.logits)


@pytest.mark.parametrize("name", ROWS)
def test_a_subset_of_the_classes_has_their_weights_alone(name):
    classifier, x = build_classifier("group-norm"), inputs(6)
    chosen = [3, 0, 4]
    head = last_linear(classifier)
    alone = nn.Linear(head.in_features, 3)
    alone.weight.data, alone.bias.data = head.weight.data[chosen], head.bias.data[chosen]
    small = mt.Classifier(nn.Sequential(*list(classifier.module.children())[:-1], alone).eval())
    ours = stream(name, classifier.subset(chosen), batch_size=6)(x)
    torch.testing.assert_close(ours, stream(name, small, batch_size=6)(x))


@pytest.mark.parametrize("name", SEQUENTIAL)
def test_a_point_that_is_not_finite_is_not_remembered(name):
    classifier, x = build_classifier("group-norm"), inputs(6)
    broken = x.clone()
    broken[2] = torch.nan
    expected = stream(name, classifier)(x[[0, 1, 3, 4, 5]])
    robust = stream(name, classifier)
    ours = torch.cat([robust(broken[:3]), robust(broken[3:])])
    assert ours[2].isnan().all()
    assert torch.equal(ours[[0, 1, 3, 4, 5]], expected)


class Scaled(nn.Sequential):
    """A network whose logits are not the output of its linear layer."""

    def __init__(self) -> None:
        super().__init__(nn.Flatten(), nn.Linear(192, 5))

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return super().forward(input) / 2


@pytest.mark.parametrize("name", ROWS)
def test_a_model_without_a_linear_last_layer_is_refused_in_one_line(name):
    convolution = nn.Sequential(nn.Conv2d(3, 5, 8), nn.Flatten())
    with pytest.raises(ModelError, match="Sequential: has no linear layer that makes its logits: use a me"):
        stream(name, mt.Classifier(convolution, size=8, mean=0.5, std=0.5))
    scaled = mt.Classifier(Scaled(), size=8, mean=0.5, std=0.5)
    narrow = nn.Sequential(nn.Flatten(), nn.Linear(192, 2), nn.Unflatten(1, (2, 1)), nn.Conv1d(2, 5, 1))
    narrow = mt.Classifier(nn.Sequential(narrow, nn.Flatten()), size=8, mean=0.5, std=0.5)
    for classifier in (scaled, narrow, narrow.subset([0, 4])):
        with pytest.raises(ModelError, match="its logits are not the output of its last linear layer: use a"):
            stream(name, classifier).predict(pictures(1)[0])


def test_defaults_are_the_papers():
    assert METHODS["lame"].declarations["affinity"].default == "knn"
    lame = mt.method("lame", build_classifier("group-norm"))
    assert (lame.points, lame.options.neighbours, lame.online) == (64, 5, False)
    t3a = mt.method("t3a", build_classifier("group-norm"))
    assert (t3a.points, t3a.online, t3a.needs_gradients) == (1, True, False)
