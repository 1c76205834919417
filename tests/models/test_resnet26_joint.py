import numpy as np
import torch

from memo_tta.models.networks.resnet26 import ResNet26
from memo_tta.models.networks.resnet26_joint import JointResNet26


def test_both_logits_are_those_of_each_head_alone():
    model, x, turned = JointResNet26().eval(), torch.randn(3, 3, 32, 32), torch.randn(3, 3, 32, 32)
    with torch.no_grad():
        classes, turns = model.both_logits(x, turned)
        np.testing.assert_allclose(classes, model(x), atol=1e-5)
        np.testing.assert_allclose(turns, model.rotation_logits(turned), atol=1e-5)
    assert turns.shape == (3, 4)


def test_the_plain_model_is_part_of_the_joint_one():
    plain, joint = (set(build().state_dict()) for build in (ResNet26, JointResNet26))
    assert plain < joint and all(key.startswith("rotation.") for key in joint - plain)
    assert {key.removeprefix("rotation.") for key in joint - plain} == {
        key for key in plain if key.startswith(("layer3.", "bn.", "fc."))
    }
