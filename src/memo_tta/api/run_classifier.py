"""A run of a classifier that was built in Python continues with the same classifier only.

The run knows its weights by their fingerprint. What else decides its predictions is described in a file.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from memo_tta.errors import ConfigError
from memo_tta.files import atomic_file
from memo_tta.models.classifier import Classifier

FILE = "classifier.json"
SHOWN = 60  # characters of a value in a message


def check_same_classifier(run: Path, classifier: Classifier) -> None:
    """Raise ConfigError if the run was started with a classifier of another description."""
    try:
        known = json.loads((run / FILE).read_text("utf-8"))
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        raise ConfigError(f"{run / FILE}: cannot be read ({error}): use another out") from None
    now = describe(classifier)
    changes = [
        f"{name} was {_short(known.get(name))}, now {_short(value)}"
        for name, value in now.items()
        if known.get(name) != value
    ]
    if changes:
        raise ConfigError(f"{run}: is a run of another classifier ({'; '.join(changes)}): use another out")


def save_description(run: Path, classifier: Classifier) -> None:
    """Write the description of the classifier to the run, unless it is there."""
    if not (run / FILE).exists():
        with atomic_file(run / FILE) as temporary:
            temporary.write_text(json.dumps(describe(classifier), indent=1) + "\n", "utf-8")


def describe(classifier: Classifier) -> dict[str, Any]:
    """Return what decides a classifier's predictions beside its weights, as JSON gives it back."""
    preprocessing = {} if classifier.preprocessing is None else asdict(classifier.preprocessing)
    described = {
        "module": classifier.name,
        **preprocessing,
        "labels": classifier.labels,
        "settings": classifier.settings,
    }
    return json.loads(json.dumps(described, default=_named))


def _named(value: object) -> str:
    """Return the name of a function, which is the same in every process, or the text of another value."""
    return getattr(value, "__qualname__", None) or str(value)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
