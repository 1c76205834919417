"""Image classifiers of transformers: pixels and logits are compared with the library's own."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

import memo_tta as mt
from memo_tta.bench.torchvision_import import import_torchvision
from memo_tta.errors import CheckpointError, MissingExtra, ModelError
from memo_tta.image import read_image
from memo_tta.models.huggingface import from_huggingface
from memo_tta.models.pretrained import import_transformers
from memo_tta.models.zoo import ZOO
from tests.nets import everything

# Before transformers looks for it: without it, the fast processors are skipped.
HAS_TORCHVISION = import_torchvision() is not None
transformers: Any = pytest.importorskip("transformers") and import_transformers()
BACKENDS = ("pil", "torchvision") if HAS_TORCHVISION else ("pil",)

TRANSFORMER = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
PATCHES = {**TRANSFORMER, "image_size": 224, "patch_size": 32}
SWIN = {"embed_dim": 8, "depths": [1, 1], "num_heads": [1, 2], "window_size": 7}
SMALL = {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2}
# By name: the configuration, and the processor with its arguments.
ARCHITECTURES: dict[str, tuple[str, dict[str, Any], str, dict[str, Any]]] = {
    "vit": ("ViT", PATCHES, "ViT", {}),
    "deit": ("DeiT", PATCHES, "DeiT", {}),
    "swin": ("Swin", {**SWIN, "image_size": 224}, "ViT", {"resample": 3}),
    "convnext": ("ConvNext", SMALL, "ConvNext", {"size": {"shortest_edge": 224}, "crop_pct": 0.875}),
    "convnext-384": ("ConvNext", SMALL, "ConvNext", {"size": {"shortest_edge": 384}}),
    "resnet": (
        "ResNet",
        {"embedding_size": 8, **SMALL},
        "ConvNext",
        {"size": {"shortest_edge": 224}, "crop_pct": 0.95},
    ),
    "mobilenet_v2": ("MobileNetV2", {"depth_multiplier": 0.25}, "MobileNetV2", {}),
    "beit": ("Beit", PATCHES, "Beit", {"do_center_crop": True, "size": {"height": 256, "width": 256}}),
    "siglip": ("Siglip", {"vision_config": PATCHES}, "Siglip", {}),
    "dinov2": ("Dinov2", PATCHES, "Bit", {"size": {"shortest_edge": 256}}),
}
SHAPES = ((375, 500), (500, 333), (224, 224), (231, 301), (97, 61))  # height, width


def build_folder(
    folder: Path, name: str, labels: tuple[str, ...] = ("ant", "bee", "cow"), **processor: Any
) -> str:
    """Save a model with small random weights, none of them zero, and its own processor."""
    model, config, kind, arguments = ARCHITECTURES[name]
    options = {
        **config,
        "id2label": dict(enumerate(labels)),
        "label2id": {n: i for i, n in enumerate(labels)},
    }
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = getattr(transformers, f"{model}ForImageClassification")(
            getattr(transformers, f"{model}Config")(**options)
        )
        for parameter in module.parameters():
            parameter.data += 0.02 * torch.randn_like(parameter)
    module.save_pretrained(folder)
    getattr(transformers, f"{kind}ImageProcessorPil")(**{**arguments, **processor}).save_pretrained(folder)
    return str(folder)


@pytest.fixture(autouse=True, scope="module")
def quiet_library():
    """Silence what the library prints when the tests themselves use it."""
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A function that returns the folder of an architecture."""
    made: dict[str, str] = {}

    def folder(name: str) -> str:
        if name not in made:
            made[name] = build_folder(tmp_path_factory.mktemp(name), name)
        return made[name]

    return folder


def generated(shape: tuple[int, int]) -> np.ndarray:
    """Return noise over smooth colours."""
    rng = np.random.default_rng(sum(shape))
    smooth = Image.fromarray(rng.integers(0, 256, (6, 7, 3), dtype=np.uint8)).resize((shape[1], shape[0]))
    return np.clip(np.asarray(smooth) + rng.normal(0, 25, (*shape, 3)), 0, 255).astype(np.uint8)


def pixel_differences(
    folder: str, backend: str, images: Iterable[np.ndarray], classifier: mt.Classifier
) -> torch.Tensor:
    """Return the differences from the processor's pixels, in steps of 1/255 before mean and std."""
    processor = transformers.AutoImageProcessor.from_pretrained(folder, backend=backend)
    assert processor.backend == backend and classifier.preprocessing is not None
    std, found = torch.tensor(classifier.preprocessing.std).view(3, 1, 1), []
    for image in images:
        theirs = processor(images=[Image.fromarray(image)], return_tensors="pt")["pixel_values"][0]
        ours = classifier.point(image).x
        assert ours.shape == theirs.shape
        found.append(((ours - theirs).abs() * std * 255).flatten())
    return torch.cat(found)


def check_pixels(folder: str, backend: str, images: Iterable[np.ndarray], classifier: mt.Classifier) -> None:
    """Check for equality with Pillow, and up to one step with torchvision.

    Where a bicubic filter overshoots, torchvision itself is a few steps away from Pillow, in few pixels.
    """
    found = pixel_differences(folder, backend, images, classifier)
    if backend == "pil":
        assert found.max() < 1e-3
    else:
        assert found.mean() < 0.2 and (found > 1.001).float().mean() < 3e-3 and found.max() < 10


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_pixels_are_those_of_the_processor(folders, name, backend):
    folder = folders(name)
    check_pixels(folder, backend, map(generated, SHAPES), from_huggingface(folder, None, None))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_pixels_of_photographs_are_those_of_the_processor(folders, reference, name, backend):
    folder, photos = folders(name), sorted((reference / "imagenet").glob("*.jpg"))[::50]
    assert len(photos) >= 10
    check_pixels(folder, backend, map(read_image, photos), from_huggingface(folder, None, None))


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_logits_and_labels_are_those_of_the_pipeline(folders, name):
    folder, image = folders(name), generated(SHAPES[0])
    processor = transformers.AutoImageProcessor.from_pretrained(folder, backend="pil")
    pipe = transformers.pipeline("image-classification", folder, image_processor=processor)
    theirs = pipe.forward(pipe.preprocess(Image.fromarray(image)))["logits"]
    classifier = from_huggingface(folder, None, None)
    with torch.no_grad():
        ours = classifier(classifier.point(image).x[None])
    assert theirs.std() > 0.01
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-4)
    prediction = mt.method("source", classifier).predict(image)
    answers = pipe(Image.fromarray(image))
    assert [row["label"] for row in prediction.top(3)] == [row["label"] for row in answers]


CROPPED = {"do_center_crop": True, "crop_size": {"height": 160, "width": 96}}
SWITCHES: dict[str, dict[str, Any]] = {
    "other sides": {"size": {"height": 96, "width": 160}},
    "a high crop": {"size": {"height": 161, "width": 191}, **CROPPED},
    "shortest edge": {"size": {"shortest_edge": 163}, **CROPPED},
    "no normalisation": {"do_normalize": False},
    "no scaling": {"do_rescale": False},
    "another scale": {"rescale_factor": 1 / 127.5},
    "neither": {"do_rescale": False, "do_normalize": False},
    "mean and std": {"image_mean": [0.1, 0.4, 0.7], "image_std": [0.2, 0.3, 0.9]},
    **{f"resample {filtering}": {"resample": filtering} for filtering in range(6)},
}


@pytest.mark.parametrize("switch", SWITCHES)
def test_switches_of_the_processor_are_obeyed(tmp_path, switch):
    """A processor of the class of BEiT has all of them; its model takes images of any size only in name."""
    folder = build_folder(tmp_path, "beit", **{"do_center_crop": False, **SWITCHES[switch]})
    classifier = from_huggingface(folder, None, None)
    assert pixel_differences(folder, "pil", map(generated, SHAPES), classifier).max() < 1e-3


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "flipped channels": (
        {"image_processor_type": "MobileViTImageProcessor"},
        "has do_flip_channel_order switched on",
    ),
    "padding": ({"do_pad": True}, "has do_pad switched on"),
    "the image's size": (
        {"do_resize": False},
        "has do_resize switched off, so that its outputs differ in size",
    ),
    "an edge": ({"size": {"shortest_edge": 224}}, "resizes the shortest edge without a crop"),
    "two edges": (
        {"size": {"shortest_edge": 224, "longest_edge": 300}},
        "has size .*longest_edge.*expected height",
    ),
    "a large crop": (
        {"do_center_crop": True, "crop_size": {"height": 288, "width": 288}},
        r"does what a classifier cannot: resize: expected at least size \(288\)",
    ),
    "no filter": ({"resample": None}, r"lacks a size, filter, mean or std \(.*\)"),
    "a second normalisation": (
        {"image_processor_type": "EfficientNetImageProcessor", "rescale_offset": True},
        "does more than resize, crop, rescale and normalise",
    ),
    "sizes of its own": (
        {"image_processor_type": "LevitImageProcessor", "size": {"shortest_edge": 224}, **CROPPED},
        "does more than resize, crop, rescale and normalise",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_processor_that_does_more_is_refused(tmp_path, kind):
    folder = build_folder(tmp_path, "beit", do_center_crop=False)
    changes, message = REFUSED[kind]
    path = tmp_path / "preprocessor_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    with pytest.raises(ModelError, match=rf"^hf:{folder}: its processor \(\w+\) {message}.*: wrap the model"):
        from_huggingface(folder, None, None)


def test_settings_are_those_of_the_zoo(folders, tmp_path):
    assert from_huggingface(folders("vit"), None, None).settings == ZOO["rvt_small_plus"].settings
    assert from_huggingface(folders("deit"), None, None).settings == ZOO["rvt_small_plus"].settings
    assert from_huggingface(folders("resnet"), None, None).settings == ZOO["resnet50"].settings
    for name in ("swin", "convnext", "mobilenet_v2", "beit", "siglip", "dinov2"):
        assert from_huggingface(folders(name), None, None).settings == {}


def test_given_arguments_come_first(folders):
    given = {"size": 192, "resize": 200, "labels": ["x", "y", "z"], "mean": 0.3, "settings": {"lr": 0.1}}
    classifier = from_huggingface(folders("mobilenet_v2"), None, None, **given)
    assert classifier.labels == ("x", "y", "z") and classifier.settings == {"lr": 0.1}
    preprocessing = classifier.preprocessing
    assert preprocessing is not None
    assert (preprocessing.size, preprocessing.resize, preprocessing.mean) == (192, 200, (0.3,) * 3)
    assert preprocessing.std == (0.5,) * 3 and classifier.point(generated(SHAPES[0])).x.shape == (3, 192, 192)


@pytest.mark.parametrize("name", ["vit", "resnet", "swin"])
def test_memo_adapts_and_restores(folders, name):
    classifier = from_huggingface(folders(name), None, None)
    before = everything(classifier.module)
    prediction = mt.Memo(classifier, n_views=2, lr=1e-3).predict(generated(SHAPES[1]))
    assert prediction.adapted and prediction.label in ("ant", "bee", "cow")
    assert everything(classifier.module) == before


def test_a_copy_of_what_was_downloaded_is_used(tmp_path, monkeypatch):
    """In the layout of the hub's cache; nothing is asked of the hub."""
    folder = tmp_path / "models--some--bees"
    build_folder(folder / "snapshots" / ("0" * 40), "vit")
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("0" * 40)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: pytest.fail("asked for an address"))
    assert from_huggingface("some/bees", None, None).labels == ("ant", "bee", "cow")


@pytest.fixture
def hub(folders, monkeypatch):
    """A hub that has one model; the list of what is downloaded from it."""
    names = [
        "config.json",
        "model.safetensors",
        "pytorch_model.bin",
        "vocab.txt",
        "README.md",
        "onnx/model.onnx",
    ]
    downloads: list[list[str]] = []

    def download(name: str, local_files_only: bool = False, allow_patterns: list[str] | None = None) -> str:
        if local_files_only:
            raise huggingface_hub.errors.LocalEntryNotFoundError("not here")
        downloads.append(allow_patterns or [])
        return folders("vit")

    info = SimpleNamespace(siblings=[SimpleNamespace(rfilename=name) for name in names])
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda *_, **__: info)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    return downloads


def test_only_the_files_of_one_format_are_downloaded(hub):
    assert from_huggingface("some/bees", None, None).labels == ("ant", "bee", "cow")
    assert hub == [["config.json", "vocab.txt", "model.safetensors"]]


def test_a_download_that_was_cut_short_is_completed(tmp_path, monkeypatch):
    """Of the weights of a model whose configuration is here; here, the hub is out of reach."""
    folder = tmp_path / "models--some--bees"
    build_folder(folder / "snapshots" / ("0" * 40), "vit")
    (folder / "snapshots" / ("0" * 40) / "model.safetensors").unlink()
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("0" * 40)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(CheckpointError, match="HF_HUB_OFFLINE forbids downloading"):
        from_huggingface("some/bees", None, None)


@pytest.fixture
def silent_hub(monkeypatch):
    """A hub that accepts connections and never answers."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        monkeypatch.setattr(
            huggingface_hub.constants, "ENDPOINT", f"http://127.0.0.1:{server.getsockname()[1]}"
        )
        yield


@pytest.mark.usefixtures("silent_hub")
def test_a_hub_that_does_not_answer_is_one_line_within_seconds():
    start = time.monotonic()
    with pytest.raises(CheckpointError) as refused:
        from_huggingface("some/bees", None, None)
    assert time.monotonic() - start < 5
    assert "\n" not in str(refused.value)
    assert str(refused.value).startswith(
        "hf:some/bees: no such folder, not downloaded before, and the hub cannot be reached (timed out): "
    )


OFFLINE = """
import sys
from memo_tta.errors import MemoError
from memo_tta.models.huggingface import from_huggingface
assert from_huggingface(sys.argv[1], None, None).labels == ("ant", "bee", "cow")
try:
    from_huggingface("some/bees", None, None)
except MemoError as error:
    print(error)
"""


def test_a_folder_loads_offline_and_silently(folders):
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-W", "error", "-c", OFFLINE, folders("vit")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert (
        "hf:some/bees: no such folder" in done.stdout and "HF_HUB_OFFLINE forbids downloading" in done.stdout
    )


def test_what_the_library_prints_is_as_before(folders):
    logging = transformers.utils.logging
    logging.set_verbosity_info()
    logging.enable_progress_bar()
    from_huggingface(folders("vit"), None, None)
    assert logging.get_verbosity() == logging.INFO and logging.is_progress_bar_enabled()
    logging.set_verbosity_error()


@pytest.mark.parametrize("name", ["./nowhere/at/all", "no such name"])
def test_a_name_that_cannot_be_one_of_the_hub(name):
    with pytest.raises(CheckpointError, match=r"no such folder, .* the hub has no public model of that name"):
        from_huggingface(name, None, None)


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("model.safetensors", "no file named model.safetensors"),
        ("preprocessor_config.json", "preprocessor_config.json"),
        ("config.json", "config.json"),
    ],
)
def test_a_folder_without_a_file_names_it(tmp_path, missing, message):
    folder = build_folder(tmp_path, "vit")
    (tmp_path / missing).unlink()
    with pytest.raises(CheckpointError, match=message) as refused:
        from_huggingface(folder, None, None)
    assert str(refused.value).startswith(f"hf:{folder}: ") and "\n" not in str(refused.value)


def test_a_damaged_file_is_named(tmp_path):
    folder = build_folder(tmp_path, "vit")
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(CheckpointError, match=rf"^hf:{folder}: cannot be loaded \("):
        from_huggingface(folder, None, None)


def test_weights_of_half_precision_are_computed_with_in_float32(tmp_path):
    """A step of MEMO is too small for float16."""
    folder = build_folder(tmp_path, "vit")
    transformers.AutoModelForImageClassification.from_pretrained(folder).half().save_pretrained(folder)
    assert load_file(tmp_path / "model.safetensors")["classifier.weight"].dtype == torch.float16
    assert from_huggingface(folder, None, None).dtype == torch.float32


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused(tmp_path, value):
    folder = build_folder(tmp_path, "vit")
    state = load_file(tmp_path / "model.safetensors")
    state["classifier.weight"][1, 2] = value
    save_file(state, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(CheckpointError, match=r"classifier\.weight: 1 of 48 values is (NaN|infinite)"):
        from_huggingface(folder, None, None)


def test_a_model_without_a_trained_head_is_refused(tmp_path):
    folder = build_folder(tmp_path, "vit")
    state = {k: v for k, v in load_file(tmp_path / "model.safetensors").items() if "classifier" not in k}
    save_file(state, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(
        CheckpointError, match=r"has no weights of classifier\.bias.*trained for another task"
    ):
        from_huggingface(folder, None, None)


def test_weights_of_a_file_replace_those_of_the_folder(folders, tmp_path):
    other = build_folder(tmp_path, "vit", labels=("x", "y", "z", "w"))
    state = load_file(Path(other) / "model.safetensors")
    torch.save({"state_dict": {key: value + 0.5 for key, value in state.items()}}, tmp_path / "w.pth")
    classifier = from_huggingface(folders("vit"), tmp_path / "w.pth", 4)
    expected = state["classifier.weight"] + 0.5
    assert torch.equal(classifier.module.get_parameter("classifier.weight"), expected)
    assert len(mt.method("source", classifier).predict(generated(SHAPES[2])).logits) == 4
    with pytest.raises(CheckpointError, match=r"expected shape \(3,\) for .*, got \(4,\): .* num_classes"):
        from_huggingface(folders("vit"), tmp_path / "w.pth", None)


def test_another_number_of_classes_needs_its_weights(folders):
    with pytest.raises(CheckpointError, match=r"expected shape \(7,\) for .*, got \(3,\): .* num_classes"):
        from_huggingface(folders("vit"), None, 7)


class Harmful:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_pickled_weights_run_no_code(tmp_path):
    folder = build_folder(tmp_path, "vit")
    (tmp_path / "model.safetensors").unlink()
    torch.save({"classifier.weight": Harmful(tmp_path / "harm")}, tmp_path / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=rf"^hf:{folder}: cannot be loaded"):
        from_huggingface(folder, None, None)
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize("model_type", ["bees", "vit"])
def test_code_that_comes_with_a_model_is_not_run(tmp_path, model_type):
    folder = build_folder(tmp_path, "vit")
    code = f"from pathlib import Path\nPath({str(tmp_path / 'harm')!r}).touch()\nclass Bees: pass\n"
    (tmp_path / "bees.py").write_text(code)
    own = {"AutoConfig": "bees.Bees", "AutoModelForImageClassification": "bees.Bees"}
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "model_type": model_type, "auto_map": own}))
    if model_type == "bees":
        with pytest.raises(ModelError, match="comes with code of its own, which is not run"):
            from_huggingface(folder, None, None)
    else:
        assert from_huggingface(folder, None, None).labels == ("ant", "bee", "cow")
    assert not (tmp_path / "harm").exists()


def test_without_the_library_one_line_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    import_transformers.cache_clear()
    with pytest.raises(MissingExtra) as refused:
        from_huggingface("some/bees", None, None)
    assert str(refused.value) == "transformers is not installed: pip install 'memo-tta[hf]'"


UNUSABLE = """
import sys
sys.path.insert(0, sys.argv[2])
from memo_tta.models.huggingface import from_huggingface
assert from_huggingface(sys.argv[1], None, None).labels == ("ant", "bee", "cow")
assert "torchvision" not in sys.modules
"""


def test_a_torchvision_that_does_not_fit_is_left_aside(folders, tmp_path):
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision" / "__init__.py").write_text("raise RuntimeError('operator does not exist')")
    command = [sys.executable, "-c", UNUSABLE, folders("vit"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
