"""MEMO on several points at once: the same predictions as one by one."""

import pytest
import torch

import memo_tta as mt
from memo_tta.errors import ConfigError
from tests.nets import build_classifier, pictures

CASES = [
    ("group-norm", {}),
    ("transformer", {}),
    ("no-norm", {"objective": "conditional_entropy"}),
    ("batch-norm", {"prior_strength": None}),
    ("batch-norm", {"prior_strength": None, "predict": "with_source", "clean_strength": 0.5}),
    ("group-norm", {"params": "head"}),
    ("group-norm", {"skip_confidence": 0.3}),
]


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # vmap has no rule for attention on CPUs
@pytest.mark.parametrize(("net", "options"), CASES)
def test_predictions_are_those_of_one_point_at_a_time(net, options):
    classifier, images, ids = build_classifier(net), pictures(5), list(range(5))
    before = {name: value.clone() for name, value in classifier.module.state_dict().items()}
    options = {"n_views": 4, "lr": 0.05, **options}
    together = mt.Memo(classifier, batch_points=5, **options).predict(images, sample_id=ids)
    alone = mt.Memo(classifier, **options).predict(images, sample_id=ids)
    for one, other in zip(together, alone, strict=True):
        torch.testing.assert_close(one.probabilities, other.probabilities, rtol=0, atol=1e-5)
        assert one.status == other.status
        assert one.marginal_entropy == pytest.approx(other.marginal_entropy, abs=1e-5)
    if "skip_confidence" in options:
        assert len({prediction.status for prediction in together}) == 2  # the gate tells the images apart
    assert all(torch.equal(value, before[name]) for name, value in classifier.module.state_dict().items())


def test_points_share_their_passes():
    classifier, rows = build_classifier("group-norm"), []
    classifier.module.register_forward_pre_hook(lambda _, inputs: rows.append(tuple(inputs[0].shape)))
    mt.Memo(classifier, n_views=4, lr=0.05, batch_points=3).predict(pictures(3))
    assert len(rows) == 3  # views, adapted points, and the source for what the predictions say of it


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"optimizer": "adamw"}, "needs optimizer='sgd'"),
        ({"steps": 2}, "needs steps=1"),
        ({"predict": "marginal"}, "needs predict='point' or 'with_source'"),
        ({"prior_strength": 16}, "cannot mix batch-norm statistics: set prior_strength=None"),
    ],
)
def test_what_cannot_be_done_at_once_says_so(options, message):
    with pytest.raises(ConfigError, match=message):
        mt.Memo(build_classifier("batch-norm"), batch_points=4, **{"prior_strength": None, **options})


def test_a_point_whose_step_is_not_finite_keeps_the_source():
    classifier, images = build_classifier("group-norm"), pictures(3)

    def objective(logits: torch.Tensor) -> torch.Tensor:
        return logits.sum() * torch.inf

    for prediction in mt.Memo(classifier, n_views=2, objective=objective, batch_points=3).predict(images):
        assert prediction.status == "not_finite"
        assert torch.equal(prediction.logits, prediction.source.logits)
