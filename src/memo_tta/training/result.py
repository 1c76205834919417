"""The files of a finished run: the weights, and their recipe and test error."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn

from memo_tta.data.dataset import Dataset
from memo_tta.files import atomic_file

WEIGHTS, METRICS = "weights.safetensors", "metrics.json"


def finish(model: nn.Module, test: Dataset, out: Path, recipe: dict[str, Any]) -> dict[str, Any]:
    """Write the weights, and a JSON file with the recipe and the test error; return its content."""
    facts = {
        "test_error": round(error_percent(model, test), 2),
        "test_images": len(test),
        "parameters": sum(p.numel() for p in model.parameters()),
        "recipe": recipe,
        "torch": torch.__version__,
        "date": datetime.now(UTC).date().isoformat(),
    }
    with atomic_file(out / WEIGHTS) as part:
        save_file({name: tensor.contiguous() for name, tensor in model.state_dict().items()}, part)
    with atomic_file(out / METRICS) as part:
        part.write_text(json.dumps(facts, indent=2) + "\n")
    return facts


@torch.no_grad()
def error_percent(model: nn.Module, data: Dataset, batch_size: int = 500) -> float:
    """Return the error in % on a data set of 32 x 32 images."""
    wrong = 0
    for start in range(0, len(data), batch_size):
        samples = [data[position] for position in range(start, min(start + batch_size, len(data)))]
        pixels = torch.from_numpy(np.stack([sample.image for sample in samples])).permute(0, 3, 1, 2)
        targets = torch.tensor([sample.target for sample in samples])
        wrong += int((model(pixels.float() / 127.5 - 1).argmax(1) != targets).sum())
    return 100 * wrong / len(data)
