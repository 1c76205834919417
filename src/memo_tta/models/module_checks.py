"""Refuse modules that cannot be adapted and restored, before a method meets them."""

from torch import nn
from torch.fx import GraphModule
from torch.jit import ScriptModule

from memo_tta.errors import ConfigError, ModelError

AS_FUNCTION = (
    "pass the module that it was made from; as it is, methods that adapt nothing can use it by "
    "Classifier.from_function(module, takes='tensor', ...)"
)


def check_module(module: nn.Module) -> None:
    """Raise an error about a module that cannot be set to eval mode and restored, or that has no classes."""
    if not isinstance(module, nn.Module):
        raise ConfigError(
            f"module: expected a torch.nn.Module, got {type(module).__name__}: "
            "a function is used by Classifier.from_function"
        )
    name = type(module).__name__
    if hasattr(module, "get_image_features") and hasattr(module, "get_text_features"):
        raise ModelError(
            f"{name}: compares images with texts, and has no classes of its own: "
            "load it by load('clip:NAME', labels=[...])"
        )
    for layer in module.modules():
        if isinstance(layer, ScriptModule):
            raise ModelError(f"{name}: holds TorchScript, which cannot be restored exactly: {AS_FUNCTION}")
        if isinstance(layer, GraphModule) and "eval" in vars(layer):  # that of an export raises an error
            raise ModelError(
                f"{name}: holds an exported program, which cannot be set to eval mode: {AS_FUNCTION}"
            )
