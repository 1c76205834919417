"""Options that go together."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from memo_tta.registry import Registry

PRESETS: Registry[dict[str, Any]] = Registry(
    "preset",
    {
        "paper": {},
        # Chosen on validation corruptions and clean images by benchmarks.choose_restorations, choose_step.
        "best": {
            "augment": "restore",
            "n_views": 16,
            "early_views": 2,
            "early_confidence": 0.95,
            "steps": 0,
            "predict": "marginal",
            "prior_strength": None,
        },
    },
)

# "fast" is for streams that are mostly easy: most points keep the source prediction.
BUDGETS: Registry[dict[str, Any]] = Registry(
    "budget",
    {
        "full": {},
        "fast": {"skip_confidence": 0.98, "early_views": 4, "early_confidence": 0.95},
    },
)


def expanded(given: Mapping[str, Any], settings: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
    """Options with what the presets among them and the settings stand for; what is given goes before."""
    said = {**settings, **given}
    return {**PRESETS[said.get("preset", "paper")], **BUDGETS[said.get("budget", "full")], **given}
