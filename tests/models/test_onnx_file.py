"""ONNX files: the answers of the network that they were exported from, and one line for what is wrong."""

import json
import pickle
import shutil
import sys
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import memo_tta as mt
from memo_tta.errors import CheckpointError, ConfigError, MemoError, MissingExtra, ModelError, UnknownName
from memo_tta.models.fingerprint import fingerprint
from memo_tta.models.onnx_file import SETTINGS
from tests.conftest import ROOT

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
HALF: Any = {"mean": 0.5, "std": 0.5}
LETTERS = list("abcde")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """ResNet-26 exported for batches of any size, and changed to one for four images and for one."""
    folder, shapes = tmp_path_factory.mktemp("onnx"), ({0: torch.export.Dim("batch")},)
    paths = {name: folder / f"{name}.onnx" for name in ("any", "four", "one")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x = torch.zeros(2, 3, 32, 32)
        module = mt.load("resnet26").module
        torch.onnx.export(module, (x,), paths["any"], dynamic_shapes=shapes, verbose=False)
    for name, size in (("four", 4), ("one", 1)):
        model = onnx.load(paths["any"])
        for value in (model.graph.input[0], model.graph.output[0]):
            value.type.tensor_type.shape.dim[0].dim_value = size
        onnx.save(model, paths[name])
    return paths


@pytest.fixture(scope="module")
def photos():
    sample = mt.load_dataset("sample")
    return [sample[position].image for position in (0, 7, 120)]


@pytest.mark.parametrize("batch", ["any", "four", "one"])
@pytest.mark.parametrize("method", ["source", "tta", "restore"])
def test_a_file_predicts_what_its_network_predicts(files, photos, batch, method):
    source = mt.load("resnet26")
    classifier = mt.load(f"onnx:{files[batch]}", labels=source.labels, **HALF)
    assert classifier.size == 32  # from the file
    few = {"n_views": 6} if method == "tta" else {}
    if method == "restore":
        few = {"early_views": None}
    found, expected = (mt.method(method, c, **few).predict(photos) for c in (classifier, source))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.logits, other.logits, rtol=0, atol=1e-4)
        assert one.label == other.label


def test_threads_follow_torch(files, monkeypatch):
    classifier = mt.load(f"onnx:{files['any']}", **HALF)
    module: Any = classifier.module
    x, made = torch.randn(3, 3, 32, 32), []
    expected = classifier(x)
    for threads in (1, 2, 2, 1):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        torch.testing.assert_close(classifier(x), expected, rtol=1e-4, atol=1e-5)
        (session,) = module._sessions.values()
        made.append(session.get_session_options().intra_op_num_threads)
    assert made == [1, 2, 2, 1]


def test_copies_are_independent_and_recognised(files, tmp_path):
    classifier = mt.load(f"onnx:{files['any']}", **HALF)
    x, digest = torch.randn(3, 3, 32, 32), fingerprint(classifier.module)
    for copied in (classifier.independent(), pickle.loads(pickle.dumps(classifier))):
        assert copied.module is not classifier.module and fingerprint(copied.module) == digest
        assert torch.equal(copied(x), classifier(x))
    assert digest != fingerprint(mt.load(f"onnx:{files['four']}", **HALF).module)
    # The weights are in a file of their own.
    for path in files["any"].parent.glob("any.onnx*"):
        shutil.copy(path, tmp_path)
    weights = tmp_path / "any.onnx.data"
    content = bytearray(weights.read_bytes())
    content[len(content) // 2] ^= 1
    weights.write_bytes(content)
    assert fingerprint(mt.load(f"onnx:{tmp_path}/any.onnx", **HALF).module) != digest


def linear(path, *, shape=("n", 3, 8, 8), kind=1, axes=None, outputs=("logits",), classes=5, seed=0):
    """Write a graph of one matrix product, (N, shape) to (N, classes), for each output."""
    helper, count = onnx.helper, int(np.prod([side if isinstance(side, int) else 8 for side in shape[1:]]))
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind)
    inner = dtype if dtype.kind == "f" else np.dtype(np.float32)
    weights = np.random.default_rng(seed).standard_normal((count, classes)).astype(inner) / 10
    nodes, name = [], "images"
    if dtype != inner:
        nodes.append(helper.make_node("Cast", [name], ["floats"], to=onnx.TensorProto.FLOAT))
        name = "floats"
    if axes:
        nodes.append(helper.make_node("Transpose", [name], ["turned"], perm=axes))
        name = "turned"
    nodes.append(helper.make_node("Flatten", [name], ["flat"]))
    nodes += [helper.make_node("MatMul", ["flat", "weights"], [output]) for output in outputs]
    to = helper.np_dtype_to_tensor_dtype(inner)
    graph = helper.make_graph(
        nodes,
        "linear",
        [helper.make_tensor_value_info("images", kind, shape)],
        [helper.make_tensor_value_info(output, to, [shape[0], classes]) for output in outputs],
        [onnx.numpy_helper.from_array(weights, "weights")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return weights.astype(np.float64)


KINDS = {"float32": 1, "float16": 10, "float64": 11, "uint8": 2}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("channels", [1, 3])
def test_every_layout_and_type(tmp_path, kind, layout, channels):
    path = tmp_path / "m.onnx"
    shape, axes = (("n", channels, 6, 8), None) if layout == "NCHW" else (("n", 6, 8, channels), (0, 3, 1, 2))
    weights = linear(path, shape=shape, kind=KINDS[kind], axes=axes)
    settings = {} if kind == "uint8" else HALF
    classifier = mt.load(f"onnx:{path}", **settings)
    assert classifier.size == (6, 8)
    image = np.random.default_rng(1).integers(0, 256, (6, 8, channels), dtype=np.uint8)
    pixels = image.transpose(2, 0, 1).ravel()
    values = pixels if kind == "uint8" else (pixels / 255 - 0.5) / 0.5
    found = mt.method("source", classifier).predict(image).logits
    tolerance = {"float16": 0.02, "uint8": 0.01}.get(kind, 1e-4)
    np.testing.assert_allclose(found, values @ weights, atol=tolerance, rtol=1e-3)
    assert mt.method("restore", classifier).predict(image).probabilities.sum() == pytest.approx(1)


def test_tensors_of_other_shapes_are_passed_as_they_are(tmp_path):
    weights = linear(tmp_path / "m.onnx", shape=("n", 12))
    classifier = mt.load(f"onnx:{tmp_path}/m.onnx")
    x = torch.randn(7, 12)
    np.testing.assert_allclose(mt.method("source", classifier)(x), x.double().numpy() @ weights, atol=1e-4)
    with pytest.raises(ModelError, match=r"takes inputs of shape \[any, 12\], got the settings of images"):
        mt.load(f"onnx:{tmp_path}/m.onnx", size=8, **HALF)


def test_settings_are_read_beside_the_file_and_replaced_by_those_given(tmp_path):
    path = tmp_path / "m.onnx"
    linear(path, shape=("n", 3, "height", "width"))
    settings = {"size": 8, "mean": [0.4, 0.5, 0.6], "std": 0.25, "resize": 12, "interpolation": "bicubic"}
    (tmp_path / "m.json").write_text(json.dumps({**settings, "labels": dict(enumerate(LETTERS))}))
    classifier = mt.load(f"onnx:{path}")
    assert classifier.preprocessing is not None and classifier.labels == tuple(LETTERS)
    expected = mt.Classifier(nn.Flatten(), **settings).point(np.zeros((20, 30, 3), np.uint8)).x
    assert torch.equal(classifier.point(np.zeros((20, 30, 3), np.uint8)).x, expected)
    other = mt.load(f"onnx:{path}", mean=0.1, labels=list("vwxyz"))
    assert other.preprocessing is not None
    assert other.preprocessing.mean == (0.1,) * 3 and other.preprocessing.std == (0.25,) * 3
    assert other.labels == tuple("vwxyz")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", r"m\.json: not a JSON file"),
        ("[1]", r"m\.json: expected an object with size, mean, std, .*, got list"),
        ('{"sizes": 8}', r"unknown setting in .*m\.json 'sizes'.*did you mean 'size'"),
    ],
)
def test_settings_that_cannot_be_read(tmp_path, content, message):
    linear(tmp_path / "m.onnx")
    (tmp_path / "m.json").write_text(content)
    with pytest.raises((ConfigError, UnknownName), match=message):
        mt.load(f"onnx:{tmp_path}/m.onnx")


def test_the_logits_are_found_among_several_outputs(tmp_path):
    path, helper = tmp_path / "m.onnx", onnx.helper
    weights = linear(path)
    model = onnx.load(path)
    model.graph.node.append(helper.make_node("Identity", ["images"], ["features"]))
    model.graph.output.insert(0, helper.make_tensor_value_info("features", 1, ["n", 3, 8, 8]))
    onnx.save(model, path)
    x = torch.randn(2, 3, 8, 8)
    found = mt.load(f"onnx:{path}", **HALF)(x)
    np.testing.assert_allclose(found, x.flatten(1).double().numpy() @ weights, atol=1e-4)
    linear(path, outputs=("logits", "others"))
    with pytest.raises(
        ModelError, match=r"expected one output of shape \(N, K\), got logits \['n', 5\], others"
    ):
        mt.load(f"onnx:{path}", **HALF)


def test_labels_tell_outputs_apart(tmp_path):
    path = tmp_path / "m.onnx"
    linear(path)
    model = onnx.load(path)
    model.graph.node.append(onnx.helper.make_node("Concat", ["logits", "logits"], ["pairs"], axis=1))
    model.graph.output.insert(0, onnx.helper.make_tensor_value_info("pairs", 1, ["n", 10]))
    onnx.save(model, path)
    x = torch.randn(2, 3, 8, 8)
    five, ten = (mt.load(f"onnx:{path}", labels=names, **HALF)(x) for names in (LETTERS, list("abcdefghij")))
    assert torch.equal(torch.cat([five, five], dim=1), ten)


def test_a_quantised_file_is_close_to_its_source(tmp_path):
    from onnxruntime.quantization import quantize_dynamic

    linear(tmp_path / "m.onnx")
    quantize_dynamic(tmp_path / "m.onnx", tmp_path / "int8.onnx")
    operations = {node.op_type for node in onnx.load(tmp_path / "int8.onnx").graph.node}
    assert "MatMulInteger" in operations
    source, classifier = (mt.load(f"onnx:{tmp_path}/{name}.onnx", **HALF) for name in ("m", "int8"))
    for method in ("source", "restore"):
        image = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
        found, expected = (mt.method(method, c).predict(image).logits for c in (classifier, source))
        assert 0 < (found - expected).abs().max() < 0.05


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such file"),
        ("folder", "is a directory, expected an ONNX file"),
        (b"", r"is damaged, or not an ONNX file \(No graph was found"),
        (b"<html>not found</html>", "is damaged, or not an ONNX file"),
        (b"half", "is damaged, or not an ONNX file"),
    ],
)
def test_files_that_cannot_be_opened(tmp_path, content, message):
    path = tmp_path / "m.onnx"
    if content == "folder":
        path.mkdir()
    elif content == b"half":
        linear(path)
        path.write_bytes(path.read_bytes()[:200])
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(CheckpointError, match=rf"^onnx:.*m\.onnx: {message}") as refused:
        mt.load(f"onnx:{path}", **HALF)
    assert "\n" not in str(refused.value)


def test_missing_weights_are_one_line(files, tmp_path):
    shutil.copy(files["any"], tmp_path / "any.onnx")
    with pytest.raises(
        CheckpointError, match=r"is damaged, or not an ONNX file \(.*any\.onnx\.data"
    ) as refused:
        mt.load(f"onnx:{tmp_path}/any.onnx", **HALF)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "needs mean, std, as in training: give size=.*--size, --mean and --std.*one.json"),
        ({**HALF, "size": 64}, r"takes inputs of shape \[1, 3, 32, 32\], got .* 3 channels, 64 x 64"),
        ({**HALF, "channels": 1}, "got the settings of images with 1 channels"),
        ({**HALF, "weights": "w.pth"}, "takes no weights: onnx:FILE takes channels, interpolation, labels"),
        ({**HALF, "num_classes": 3}, "takes no num_classes"),
    ],
)
def test_settings_that_do_not_fit_the_file(files, given, message):
    with pytest.raises(MemoError, match=message):
        mt.load(f"onnx:{files['one']}", **given)


def test_more_than_one_input_and_other_types_are_refused(tmp_path):
    path = tmp_path / "m.onnx"
    linear(path)
    model = onnx.load(path)
    model.graph.input.append(onnx.helper.make_tensor_value_info("mask", 1, ["n"]))
    onnx.save(model, path)
    with pytest.raises(
        ModelError, match=r"expected one input of type .*, got images .*, mask \(tensor\(float\)\)"
    ):
        mt.load(f"onnx:{path}", **HALF)


def test_without_onnxruntime_the_extra_is_named(files, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingExtra, match=r"pip install 'memo-tta\[onnx\]'"):
        mt.load(f"onnx:{files['one']}", **HALF)


def test_the_page_names_every_setting():
    page = (ROOT / "docs/models.md").read_text("utf-8")
    assert all(f"`{name}`" in page or f'"{name}"' in page for name in SETTINGS)
