"""Values that a weights file, or a module that was built, must not hold."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

import memo_tta as mt
from memo_tta.errors import ModelError
from memo_tta.models import libraries
from tests.models.checkpoints import SAVERS, Net, assert_equal, complaint, loaded, trained

FORMATS = ["weights.pth", "weights.safetensors", "weights.npz"]
DAMAGED = "the file is damaged, or training diverged: use another copy or an earlier checkpoint"


def with_values(key: str, *values: float, dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    """Return trained weights in which one tensor begins with these values."""
    state = trained()
    state[key] = state[key].to(dtype)
    state[key].view(-1)[: len(values)] = torch.tensor(values, dtype=dtype)
    return state


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    ("key", "values", "problem"),
    [
        ("conv.weight", [NAN, 1, NAN], "2 of 6 values are NaN as float32"),
        ("conv.weight", [NAN, INF], "1 of 6 values is NaN as float32"),
        ("norm.running_mean", [NAN], "1 of 3 values is NaN as float32"),
        ("head.bias", [INF, -INF], "2 of 4 values are infinite as float32"),
        ("norm.running_var", [INF], "1 of 3 values is infinite as float32"),
        ("norm.running_var", [-1e-9, -3], "expected variances of at least 0, got 2 of 3 below it"),
    ],
)
def test_values_that_cannot_be_weights_are_counted(tmp_path, name, key, values, problem):
    SAVERS[name](with_values(key, *values), tmp_path / name)
    assert complaint(tmp_path / name) == f"{key}: {problem}: {DAMAGED}"


@pytest.mark.parametrize("name", FORMATS)
def test_a_value_that_is_too_large_for_the_module_is_infinite(tmp_path, name):
    SAVERS[name](with_values("conv.weight", 1e300, dtype=torch.float64), tmp_path / name)
    assert complaint(tmp_path / name).startswith("conv.weight: 1 of 6 values is infinite as float32: ")
    SAVERS[name](with_values("conv.weight", 1e6), tmp_path / name)
    assert complaint(tmp_path / name, Net().half()).startswith(
        "conv.weight: 1 of 6 values is infinite as float16"
    )


class Masked(nn.Module):
    """A module with a mask that blocks positions, as attention does."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2))
        self.register_buffer("mask", torch.zeros(2, 2))
        self.register_buffer("index", torch.zeros(2, dtype=torch.int32))
        self.register_buffer("is_used", torch.zeros(2, dtype=torch.bool))


def masked(**changes: torch.Tensor) -> dict[str, torch.Tensor]:
    mask = torch.tensor([[0, -INF], [0, 0]])
    return {
        "weight": torch.ones(2),
        "mask": mask,
        "index": torch.tensor([3, 4], dtype=torch.int32),
        "is_used": torch.tensor([True, False]),
        **changes,
    }


def test_a_mask_may_be_infinite_but_not_nan(tmp_path):
    torch.save(masked(), tmp_path / "weights.pth")
    assert_equal(loaded(tmp_path / "weights.pth", Masked()), masked())
    torch.save(masked(mask=torch.full((2, 2), NAN)), tmp_path / "weights.pth")
    assert (
        complaint(tmp_path / "weights.pth", Masked()) == f"mask: 4 of 4 values are NaN as float32: {DAMAGED}"
    )


QUANTISED = "is this a quantised file? use the weights before quantisation"


@pytest.mark.parametrize(
    ("dtype", "advice"),
    [
        *((dtype, QUANTISED) for dtype in (torch.int8, torch.uint8, torch.float8_e4m3fn, torch.float8_e5m2)),
        *((dtype, "save it as float32") for dtype in (torch.bool, torch.int64, torch.complex64)),
    ],
)
def test_other_types_are_not_taken_for_floats(tmp_path, dtype, advice):
    torch.save(trained() | {"head.bias": torch.zeros(4).to(dtype)}, tmp_path / "weights.pth")
    found = str(dtype).removeprefix("torch.")
    expected = f"head.bias: expected floating-point values, got {found}: {advice}"
    assert complaint(tmp_path / "weights.pth") == expected


@pytest.mark.parametrize("dtype", [np.int8, np.bool_, np.complex64])
def test_other_types_in_an_npz_are_not_taken_for_floats(tmp_path, dtype):
    arrays = {name: value.numpy() for name, value in trained().items()}
    np.savez(tmp_path / "weights.npz", **{**arrays, "head.bias": np.zeros(4, dtype)})
    assert complaint(tmp_path / "weights.npz").startswith("head.bias: expected floating-point values, got ")


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_a_quantised_tensor_is_named(tmp_path):
    tensor = torch.quantize_per_tensor(torch.zeros(4), 0.1, 0, torch.qint8)
    torch.save(trained() | {"head.bias": tensor}, tmp_path / "weights.pth")
    assert complaint(tmp_path / "weights.pth") == (
        "head.bias: expected floating-point values, got a quantised tensor (qint8): "
        "use the weights before quantisation"
    )


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("index", torch.zeros(2), "index: expected int32 values, got float32: save it as int32"),
        (
            "index",
            torch.zeros(2, dtype=torch.bool),
            "index: expected int32 values, got bool: save it as int32",
        ),
        ("index", torch.tensor([0, 2**40]), f"index: expected values of int32, got int64: {DAMAGED}"),
        ("is_used", torch.zeros(2), "is_used: expected bool values, got float32: save it as bool"),
        (
            "is_used",
            torch.zeros(2, dtype=torch.int64),
            "is_used: expected bool values, got int64: save it as bool",
        ),
    ],
)
def test_integers_stay_integers(tmp_path, name, value, problem):
    torch.save(masked(**{name: value}), tmp_path / "weights.pth")
    assert complaint(tmp_path / "weights.pth", Masked()) == problem
    torch.save(masked(index=torch.tensor([3, 4])), tmp_path / "weights.pth")
    assert_equal(loaded(tmp_path / "weights.pth", Masked()), masked())


def test_a_count_may_be_a_whole_number_of_floating_point(tmp_path):
    key = "norm.num_batches_tracked"
    torch.save(trained() | {key: torch.tensor(2.0)}, tmp_path / "weights.pth")
    assert_equal(loaded(tmp_path / "weights.pth"), trained() | {key: torch.tensor(2)})
    for count in (2.5, NAN, INF):
        torch.save(trained() | {key: torch.tensor(count)}, tmp_path / "weights.pth")
        assert (
            complaint(tmp_path / "weights.pth") == f"{key}: expected values of int64, got float32: {DAMAGED}"
        )


def test_a_tensor_that_repeats_its_values_is_loaded(tmp_path):
    torch.save(trained() | {"head.bias": torch.tensor([0.5]).expand(4)}, tmp_path / "weights.pth")
    assert_equal(loaded(tmp_path / "weights.pth"), trained() | {"head.bias": torch.full((4,), 0.5)})


# Modules that are built elsewhere

OWN = """
import torch
from torch import nn
import memo_tta as mt

def build():
    module = nn.Sequential(nn.Flatten(), nn.Linear(192, 4), nn.BatchNorm1d(4))
    with torch.no_grad():
        module.{name}[:2] = float("{value}")
    return mt.Classifier(module.eval(), size=8, mean=(0.5,) * 3, std=(0.5,) * 3)
"""


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("get_parameter('1.bias')", "nan", "1.bias: 2 of 4 values are NaN as float32"),
        ("get_parameter('2.weight')", "-inf", "2.weight: 2 of 4 values are infinite as float32"),
        ("get_buffer('2.running_mean')", "nan", "2.running_mean: 2 of 4 values are NaN as float32"),
    ],
)
def test_a_module_of_ones_own_must_be_finite(tmp_path, name, value, problem):
    (tmp_path / "own.py").write_text(OWN.format(name=name, value=value))
    spec = f"{tmp_path}/own.py:build"
    with pytest.raises(ModelError) as error:
        mt.load(spec)
    advice = "its predictions would mean nothing, build it with other weights"
    assert str(error.value) == f"{spec}: {problem}: {advice}"


def test_a_module_of_a_library_must_be_finite(monkeypatch):
    module = nn.Linear(2, 2)
    nn.init.constant_(module.bias, NAN)
    monkeypatch.setitem(libraries.LIBRARIES, "timm", lambda *_: SimpleNamespace(module=module))
    with pytest.raises(ModelError, match="timm:net: bias: 2 of 2 values are NaN"):
        mt.load("timm:net")


def test_parameters_without_plain_values_are_not_looked_at(tmp_path):
    (tmp_path / "own.py").write_text(
        OWN.format(name="get_parameter('1.bias')", value="0").replace(
            "nn.BatchNorm1d(4))", "nn.BatchNorm1d(4), nn.LazyLinear(3), nn.Linear(3, 3, device='meta'))"
        )
    )
    assert isinstance(mt.load(f"{tmp_path}/own.py:build"), mt.Classifier)
