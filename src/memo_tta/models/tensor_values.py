"""Check the values of tensors before a weights file is loaded, and those of a module that was built."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from memo_tta.models.state_dict import BATCH_COUNT

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
RUNNING = ("running_mean", "running_var")  # ends of the names of running statistics
DAMAGED = "the file is damaged, or training diverged: use another copy or an earlier checkpoint"


def converted_values(
    state: Mapping[str, Tensor], expected: Mapping[str, Tensor], parameters: frozenset[str]
) -> dict[str, Tensor]:
    """Return the tensors in the module's types; raise ValueError about the first with unusable values."""
    return {
        key: _converted(key, state[key], value, key in parameters)
        for key, value in expected.items()
        if key in state
    }


def _converted(key: str, found: Tensor, expected: Tensor, is_parameter: bool) -> Tensor:
    if problem := _wrong_type(key, found, expected.dtype):
        raise ValueError(f"{key}: {problem}")
    values = found.to(expected.dtype)
    if not expected.is_floating_point():
        if values.dtype != found.dtype and not torch.equal(values.to(found.dtype), found):
            raise ValueError(
                f"{key}: expected values of {_name(expected.dtype)}, got {_name(found.dtype)}: {DAMAGED}"
            )
        return values
    if problem := unusable(values, must_be_finite=is_parameter or key.endswith(RUNNING)):
        raise ValueError(f"{key}: {problem}: {DAMAGED}")
    if key.endswith("running_var") and (negative := int((values < 0).sum())):
        raise ValueError(
            f"{key}: expected variances of at least 0, got {negative} of {values.numel()} below it: {DAMAGED}"
        )
    return values


def not_plain(tensor: Tensor) -> str:
    """Return why a tensor has no plain values in memory, or an empty string if it has them."""
    if tensor.is_quantized:
        found = f"a quantised tensor ({_name(tensor.dtype)})"
        return f"expected floating-point values, got {found}: use the weights before quantisation"
    if tensor.is_nested or tensor.layout != torch.strided:
        layout = "nested" if tensor.is_nested else _name(tensor.layout)
        return f"expected a dense tensor, got one of layout {layout}: save it as tensor.to_dense()"
    if tensor.is_meta:
        return "expected values, got a tensor on the meta device: save the weights after they are loaded"
    return ""


def _wrong_type(key: str, found: Tensor, expected: torch.dtype) -> str:
    """Return why values of the file's type cannot stand for those of the module's, or an empty string."""
    if expected.is_floating_point:
        if found.dtype in FLOATS:
            return ""
        is_quantised = found.is_floating_point() or found.dtype in (torch.int8, torch.uint8)
        advice = (
            "is this a quantised file? use the weights before quantisation"
            if is_quantised
            else "save it as float32"
        )
        return f"expected floating-point values, got {_name(found.dtype)}: {advice}"
    if expected == torch.bool or found.dtype == torch.bool or found.is_complex():
        matches = found.dtype == expected
    else:
        # Scripts that convert a whole state dict make floats of the counts, too.
        matches = not found.is_floating_point() or (key.endswith(BATCH_COUNT) and found.dtype in FLOATS)
    return (
        ""
        if matches
        else f"expected {_name(expected)} values, got {_name(found.dtype)}: save it as {_name(expected)}"
    )


def unusable(values: Tensor, must_be_finite: bool) -> str:
    """Return how many values are NaN, or infinite where they must be finite; else an empty string."""
    if values.isfinite().all():
        return ""
    for count, kind in ((int(values.isnan().sum()), "NaN"), (int(values.isinf().sum()), "infinite")):
        if count and (kind == "NaN" or must_be_finite):
            verb = "is" if count == 1 else "are"
            return f"{count} of {values.numel()} values {verb} {kind} as {_name(values.dtype)}"
    return ""


def unusable_parameter(module: nn.Module) -> str:
    """Return the first parameter or running statistic that is not finite, and why; else an empty string."""
    statistics = ((name, value) for name, value in module.named_buffers() if name.endswith(RUNNING))
    for name, value in (*module.named_parameters(), *statistics):
        is_checked = not nn.parameter.is_lazy(value) and value.dtype in FLOATS and not not_plain(value)
        if is_checked and (problem := unusable(value.detach(), must_be_finite=True)):
            return f"{name}: {problem}"
    return ""


def _name(kind: torch.dtype | torch.layout) -> str:
    return str(kind).removeprefix("torch.")
