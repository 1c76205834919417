"""Memory that predictions take, against sums by hand."""

import torch
from torch import nn

import memo_tta as mt
from memo_tta.methods.footprint import COPIES, LAYERS_AT_ONCE, measure_footprint

SIZE = 16
FLOAT = 4  # bytes
IMAGE, HIDDEN = 3 * SIZE * SIZE * FLOAT, 8 * SIZE * SIZE * FLOAT


def classifier() -> mt.Classifier:
    network = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(8 * SIZE * SIZE, 5),
    )
    return mt.Classifier(network.eval(), size=SIZE, mean=(0.5,) * 3, std=(0.5,) * 3)


def parameter_bytes(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters()) * FLOAT


def test_backward_needs_the_inputs_of_all_layers():
    model = classifier()
    found = measure_footprint(mt.Memo(model, n_views=6), points=1)
    # Saved: the image, and the output of each ReLU, which is also the input of the next layer.
    assert found.view == IMAGE + 3 * HIDDEN + 2 * HIDDEN  # and the largest layer's input and output
    assert found.model == (1 + COPIES) * parameter_bytes(model.module)
    assert found.total == found.model + 6 * found.view


def test_the_last_blocks_need_only_their_own_inputs():
    model = classifier()
    found = measure_footprint(mt.Memo(model, n_views=6, params="head"), points=1)
    # Saved: the head's input; but the forward pass through the layers before it needs more than that.
    assert found.view == int(LAYERS_AT_ONCE * 2 * HIDDEN)
    assert found.model == parameter_bytes(model.module) + COPIES * parameter_bytes(
        model.module.get_submodule("7")
    )


def test_without_a_gradient_nothing_is_kept():
    model = classifier()
    found = measure_footprint(mt.method("tta", model, n_views=64), points=1)
    assert (found.view, found.views) == (int(LAYERS_AT_ONCE * 2 * HIDDEN), 64)
    assert found.model == parameter_bytes(model.module)


def test_micro_batches_limit_the_views_at_once():
    assert measure_footprint(mt.Memo(classifier(), n_views=64, micro_batch=8), points=1).views == 8


def test_as_many_views_fit_as_the_limit_says():
    found = measure_footprint(mt.Memo(classifier()), points=1)
    assert found.fitting_views(found.model + 5 * found.view + 1) == 5
    assert found.fitting_views(0) == 1


def test_measuring_leaves_the_model_alone():
    model = classifier()
    before = {name: value.clone() for name, value in model.module.state_dict().items()}
    measure_footprint(mt.Memo(model), points=1)
    assert all(torch.equal(value, before[name]) for name, value in model.module.state_dict().items())
    assert not any(layer._forward_hooks for layer in model.module.modules())
    assert all(p.requires_grad and p.grad is None for p in model.module.parameters())


def test_tensors_of_any_shape_are_counted_by_parameters_alone():
    model = mt.Classifier(nn.Linear(4, 2))
    found = measure_footprint(mt.method("source", model), points=1)
    assert found.total == parameter_bytes(model.module)
