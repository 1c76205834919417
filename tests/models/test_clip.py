"""Zero-shot classifiers: logits and preprocessing are compared with transformers' own pipeline."""

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import memo_tta as mt
from memo_tta.bench.torchvision_import import import_torchvision
from memo_tta.errors import CheckpointError, ConfigError, MemoError, ModelError
from memo_tta.models.clip import DEFAULT_TEMPLATES, from_clip
from memo_tta.models.pretrained import import_transformers
from tests.nets import everything

import_torchvision()  # before transformers looks for it
transformers: Any = pytest.importorskip("transformers") and import_transformers()
tokenizers: Any = pytest.importorskip("tokenizers")

LABELS = ("cat", "sea horse", "photo of a dog")
TOWER = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
IMAGES = {**TOWER, "image_size": 64, "patch_size": 16}
SPECIAL = ("<pad>", "<start>", "<end>")
TEXTS = {**TOWER, "vocab_size": 100, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
# By name: the configuration, and the size that its processor is given.
MODELS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "clip": (
        "CLIP",
        {"projection_dim": 12, "text_config": {**TEXTS, "eos_token_id": 99, "max_position_embeddings": 77}},
        {"size": {"shortest_edge": 64}, "crop_size": {"height": 64, "width": 64}},
    ),
    "siglip": (
        "Siglip",
        {"text_config": {**TEXTS, "projection_size": 16, "max_position_embeddings": 64}},
        {"size": {"height": 64, "width": 64}},
    ),
}


def save_tokenizer(folder: Path) -> None:
    """Save a tokenizer of letters: start, one token for each letter, end."""
    letters = "abcdefghijklmnopqrstuvwxyz .-"
    words = {token: index for index, token in enumerate((*SPECIAL, *letters))}
    words["<end>"] = 99
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="."))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="<start> $A <end>", special_tokens=[("<start>", 1), ("<end>", 99)]
    )
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<start>", eos_token="<end>", unk_token="."
    ).save_pretrained(folder)


def build_folder(folder: Path, name: str) -> str:
    """Save a model with random weights, a tokenizer and an image processor."""
    kind, config, size = MODELS[name]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        options = getattr(transformers, f"{kind}Config")(**config, vision_config=IMAGES)
        model = getattr(transformers, f"{kind}Model")(options)
        for parameter in model.parameters():
            parameter.data += 0.2 * torch.randn_like(parameter)
        model.logit_scale.data.fill_(4)  # trained models have about 4.6
    model.save_pretrained(folder)
    getattr(transformers, f"{kind}ImageProcessorPil")(**size).save_pretrained(folder)
    save_tokenizer(folder)
    return str(folder)


@pytest.fixture(autouse=True, scope="module")
def quiet_library():
    """Silence what the library prints when the tests themselves use it."""
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()


@pytest.fixture(scope="module", params=MODELS)
def folder(request, tmp_path_factory):
    return build_folder(tmp_path_factory.mktemp(request.param), request.param)


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    return build_folder(tmp_path_factory.mktemp("clip"), "clip")


@pytest.fixture
def photo():
    return np.random.default_rng(0).integers(0, 256, (80, 103, 3), dtype=np.uint8)


def pipeline(folder: str) -> Any:
    processor = transformers.AutoImageProcessor.from_pretrained(folder, backend="pil")
    return transformers.pipeline("zero-shot-image-classification", folder, image_processor=processor)


def pipeline_logits(folder: str, photo: np.ndarray, template: str) -> torch.Tensor:
    """Return the logits from which the library's pipeline makes its scores."""
    pipe = pipeline(folder)
    inputs = pipe.preprocess(Image.fromarray(photo), list(LABELS), hypothesis_template=template)
    return pipe.forward(inputs)["logits"]


def logits_of(classifier: mt.Classifier, photo: np.ndarray) -> torch.Tensor:
    with torch.no_grad():
        return classifier(classifier.point(photo).x[None])


@pytest.mark.parametrize("template", ["a photo of a {}.", "{}"])
def test_logits_of_one_template_are_those_of_the_pipeline(folder, photo, template):
    ours, theirs = (
        logits_of(from_clip(folder, LABELS, [template]), photo),
        pipeline_logits(folder, photo, template),
    )
    assert theirs.std() > 0.1  # the labels differ by far more than the tolerance
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-4)


def test_the_answer_is_that_of_the_pipeline(folder, photo):
    answers = pipeline(folder)(Image.fromarray(photo), list(LABELS), hypothesis_template="a {}.")
    prediction = mt.method("source", from_clip(folder, LABELS, ["a {}."])).predict(photo)
    assert [row["label"] for row in prediction.top(3)] == [row["label"] for row in answers]
    if "siglip" not in folder:
        assert prediction.score == pytest.approx(answers[0]["score"], abs=1e-5)


def test_templates_are_averaged_as_in_the_paper_of_clip(folder):
    """Features of length 1, their mean, again of length 1; here with one text at a time."""
    model = transformers.AutoModel.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    padding = {"padding": "max_length", "max_length": 64} if "siglip" in folder else {}

    def feature(text: str) -> torch.Tensor:
        found = model.get_text_features(**tokenizer(text, return_tensors="pt", **padding)).pooler_output[0]
        return found / found.norm()

    with torch.no_grad():
        by_label = [[feature(text.replace("{}", label)) for text in DEFAULT_TEMPLATES] for label in LABELS]
        means = [sum(features[1:], features[0]) / len(features) for features in by_label]
    expected = torch.stack([mean / mean.norm() for mean in means])
    found = from_clip(folder, LABELS).module.get_buffer("text_features")
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_many_labels_are_encoded_in_parts(clip, monkeypatch):
    names = [f"{first}{second}" for first in "abcd" for second in "efgh"]
    whole = from_clip(clip, names).module.get_buffer("text_features")
    monkeypatch.setattr("memo_tta.models.clip.TEXT_BATCH", 5)
    torch.testing.assert_close(from_clip(clip, names).module.get_buffer("text_features"), whole)


def test_a_long_label_is_cut_to_what_the_model_can_read(folder, photo):
    classifier = from_clip(folder, [*LABELS, "long " * 40])
    assert logits_of(classifier, photo).isfinite().all()


def test_the_image_tower_is_adapted_and_nothing_else(folder, photo):
    classifier = from_clip(folder, LABELS)
    names = {name for name, _ in classifier.module.named_parameters()}
    assert names and all(
        name.startswith(("model.vision_model.", "model.visual_projection.")) for name in names
    )
    buffers = dict(classifier.module.named_buffers())
    assert buffers["text_features"].shape[0] == 3 and {"scale", "bias"} <= set(buffers)
    before, source = everything(classifier.module), logits_of(classifier, photo)[0]
    prediction = mt.Memo(classifier, n_views=4, lr=1e-2, augment="augmix").predict(photo)
    assert prediction.adapted and prediction.label in LABELS
    assert (prediction.logits - source).abs().max() > 1e-4
    assert everything(classifier.module) == before
    torch.testing.assert_close(logits_of(classifier, photo)[0], source, rtol=0, atol=1e-5)


@pytest.mark.parametrize("params", ["norm", "last:1"])
def test_parts_of_the_image_tower_can_be_adapted(clip, photo, params):
    assert mt.Memo(from_clip(clip, LABELS), n_views=2, params=params, lr=1e-3).predict(photo).adapted


@pytest.mark.parametrize("name", ["source", "tta", "restore"])
def test_methods_of_forward_passes_work_as_they_are(clip, photo, name):
    assert mt.method(name, from_clip(clip, LABELS)).predict(photo).label in LABELS


def test_it_can_be_copied_and_pickled(folder, photo):
    classifier = from_clip(folder, LABELS)
    expected = logits_of(classifier, photo)
    for other in (copy.deepcopy(classifier), pickle.loads(pickle.dumps(classifier))):
        assert other.labels == LABELS
        torch.testing.assert_close(logits_of(other, photo), expected, rtol=0, atol=1e-4)
        next(other.module.parameters()).data.zero_()
    torch.testing.assert_close(logits_of(classifier, photo), expected, rtol=0, atol=1e-4)


def test_without_labels_one_line_says_how_to_give_them(clip):
    with pytest.raises(ConfigError) as refused:
        from_clip(clip)
    assert str(refused.value) == (
        f"clip:{clip}: needs the names of the classes: give labels=[...], or --labels names.txt"
    )


@pytest.mark.parametrize(
    ("labels", "templates", "message"),
    [
        (["cat"], ["{}"], r"expected at least 2 labels, none of them empty, got \['cat'\]"),
        (["cat", ""], ["{}"], "expected at least 2 labels, none of them empty"),
        (LABELS, "a {}", "expected templates as a list, as in"),
        (LABELS, [], "expected templates as a list, as in"),
        (LABELS, ["a {}", "a photo"], r"expected \{\} in each template, for the label, got 'a photo'"),
    ],
)
def test_labels_and_templates_that_cannot_be_used(clip, labels, templates, message):
    with pytest.raises(ConfigError, match=message):
        from_clip(clip, labels, templates)


def test_labels_come_from_a_file_too(clip, tmp_path):
    (tmp_path / "names.txt").write_text("cat\nsea horse\n")
    assert from_clip(clip, tmp_path / "names.txt").labels == ("cat", "sea horse")


def test_a_model_without_texts_is_refused(tmp_path):
    config = transformers.ViTConfig(**IMAGES)
    transformers.ViTModel(config).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=r"expected a model of images and texts .* got ViTModel: .* hf:"):
        from_clip(str(tmp_path), LABELS)


def test_a_model_with_other_logits_is_refused(clip, monkeypatch):
    """Some models limit the scale, or combine images and texts in other ways."""
    forward = transformers.CLIPModel.forward

    def limited(*inputs: Any, **options: Any) -> Any:
        output = forward(*inputs, **options)
        output.logits_per_image = output.logits_per_image.clamp(max=-0.5)
        return output

    monkeypatch.setattr(transformers.CLIPModel, "forward", limited)
    with pytest.raises(
        ModelError, match=r"expected logits that are scaled similarities .* CLIPModel are not"
    ):
        from_clip(clip, LABELS)


def test_a_model_with_other_inputs_is_refused(clip, monkeypatch):
    def needs_shapes(*inputs: Any, **options: Any) -> None:
        raise TypeError("missing spatial_shapes")

    monkeypatch.setattr(transformers.CLIPModel, "get_image_features", needs_shapes)
    with pytest.raises(
        ModelError, match=r"expected logits that are scaled similarities .* CLIPModel are not"
    ):
        from_clip(clip, LABELS)


def test_a_text_tower_without_weights_is_refused(tmp_path):
    """As of a folder that holds the image tower alone."""
    build_folder(tmp_path, "clip")
    model = transformers.CLIPVisionModel(transformers.CLIPVisionConfig(**IMAGES))
    config = (tmp_path / "config.json").read_text()
    model.save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(config)
    with pytest.raises(CheckpointError, match=r"has no weights of .* which CLIPModel needs"):
        from_clip(str(tmp_path), LABELS)


@pytest.mark.parametrize("missing", [("tokenizer.json", "tokenizer_config.json"), ("tokenizer_config.json",)])
def test_a_folder_without_its_tokenizer_is_refused(tmp_path, missing):
    """The library makes one up, for which all texts of CLIP are alike."""
    build_folder(tmp_path, "clip")
    for name in missing:
        (tmp_path / name).unlink()
    with pytest.raises(MemoError, match=rf"^clip:{tmp_path}: .*(tokenizer cannot tell|cannot be loaded)"):
        from_clip(str(tmp_path), LABELS)


@pytest.mark.parametrize("labels", [["cat", "dog", "cat"], ["long " * 40 + "a", "long " * 40 + "b"]])
def test_labels_that_the_model_cannot_tell_apart_are_refused(clip, labels):
    with pytest.raises(
        ModelError, match=r"its tokenizer cannot tell the labels '(cat|long .*)' and .* apart"
    ):
        from_clip(clip, labels)


def test_a_folder_without_an_image_processor_is_refused(tmp_path):
    build_folder(tmp_path, "clip")
    (tmp_path / "preprocessor_config.json").unlink()
    with pytest.raises(
        CheckpointError, match=r"image processor .*: expected a folder with config\.json, pre"
    ):
        from_clip(str(tmp_path), LABELS)
