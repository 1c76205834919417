"""Find the state dict in the content of a file, and explain in one line why it does not fit a module."""

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches

from torch import Tensor

StateDict = Mapping[str, Tensor]

# Keys under which training scripts save the state dict; the first one that holds tensors is used.
WRAPPERS = (
    *("state_dict", "model_state_dict", "model", "net", "model_state", "module", "params", "weights"),
    *("model_ema", "ema_state_dict"),
)
MAX_DEPTH = 3  # {"model": {"state_dict": {...}}}
# Prefixes that DataParallel, torch.compile and training scripts add to every key.
PREFIXES = ("module.", "_orig_mod.", "model.", "net.", "backbone.")
BATCH_COUNT = "num_batches_tracked"
MAX_LISTED = 3
MAX_SHOWN = 200  # characters of a name


def find_state_dict(content: object, depth: int = MAX_DEPTH) -> dict[str, Tensor]:
    """Return the tensors by name, from the top level or a wrapper; EMA weights only without others."""
    if not isinstance(content, dict) or depth == 0:
        return {}
    for name in WRAPPERS:
        if state := find_state_dict(content.get(name), depth - 1):
            return state
    return {
        key: value.detach()
        for key, value in content.items()
        if isinstance(key, str) and isinstance(value, Tensor)
    }


def strip_prefixes(state: StateDict, expected: StateDict) -> StateDict:
    """Remove prefixes that all keys share, as far as that makes more keys match the expected ones."""

    def matches(candidate: StateDict) -> int:
        return len(candidate.keys() & expected.keys())

    best = state
    while prefix := _shared_prefix(state):
        state = {key.removeprefix(prefix): value for key, value in state.items()}
        best = max(best, state, key=matches)
    return best


def _shared_prefix(state: StateDict) -> str:
    keys = [
        key for key, value in state.items() if value.ndim
    ]  # without n_averaged, which an averaged model keeps outside
    return next((prefix for prefix in PREFIXES if keys and all(key.startswith(prefix) for key in keys)), "")


def explain_mismatch(state: StateDict, expected: StateDict, name: str) -> str:
    """Return why the tensors do not fit the module of that name, or an empty string if they do."""
    # Counters do not affect predictions: n_averaged, and num_batches_tracked, which old files lack.
    missing = [key for key in expected if key not in state and not key.endswith(BATCH_COUNT)]
    unexpected = {key: value for key, value in state.items() if key not in expected and value.ndim}
    misshaped = [key for key in expected if key in state and expected[key].shape != state[key].shape]
    common = len(expected.keys() & state.keys())
    if (missing or misshaped) and 2 * common < max(len(expected), len(state)):
        return (
            f"weights of a different architecture: the file has {common} of the {len(expected)} keys "
            f"of {name}, and {len(unexpected)} keys that {name} does not have"
        )
    if not missing and not unexpected and _is_head(misshaped, state, expected):
        found, built = len(state[misshaped[0]]), len(expected[misshaped[0]])
        return f"the file's head has {found} classes, the model {built}: pass num_classes={found}"

    def with_shapes(key: str) -> str:
        return f"{key} (expected {tuple(expected[key].shape)}, got {tuple(state[key].shape)})"

    problems = {
        "missing": first_few(missing, lambda key: _with_hint(key, expected[key], unexpected)),
        "unexpected": first_few(unexpected),
        "wrong shape": first_few(misshaped, with_shapes),
    }
    listed = "; ".join(f"{kind}: {keys}" for kind, keys in problems.items() if keys)
    return f"does not fit {name}: {listed}" if listed else ""


def _is_head(keys: list[str], state: StateDict, expected: StateDict) -> bool:
    """Return whether the keys are one output layer, and differ in the number of classes only."""
    layers = {key.rpartition(".")[0] for key in keys}
    matrices = [key for key in keys if expected[key].ndim > 1]
    only_classes_differ = all(
        state[key].ndim == expected[key].ndim and state[key].shape[1:] == expected[key].shape[1:]
        for key in keys
    )
    # A matrix without a bias may be an embedding, unless it is the last tensor.
    is_output = len(keys) == 2 or keys == list(expected)[-1:]
    return len(layers) == len(matrices) == 1 and only_classes_differ and is_output


def _with_hint(key: str, value: Tensor, unexpected: StateDict) -> str:
    """Return the key, with the most similar unexpected key of the same shape, if there is one."""
    candidates = [other for other, tensor in unexpected.items() if tensor.shape == value.shape]
    similar = get_close_matches(key, candidates, n=1, cutoff=0.5)
    return f"{key} (the file has {similar[0]})" if similar else key


def first_few(names: Iterable[str], show: Callable[[str], str] = str) -> str:
    """Return the first names of a list, and how many more there are."""
    names = list(names)
    # A name in a file may hold control characters, and the message must stay on one line.
    texts = [show(name)[:MAX_SHOWN] for name in names[:MAX_LISTED]]
    shown = [text if text.isprintable() else repr(text) for text in texts]
    more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    return ", ".join(shown) + more
