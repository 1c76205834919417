"""Find a module's tensors among those of a file, and say in one line why they do not fit."""

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches

from torch import Tensor

StateDict = Mapping[str, Tensor]

# Where training scripts put the state dict; the first that holds tensors counts.
WRAPPERS = (
    *("state_dict", "model_state_dict", "model", "net", "model_state", "module", "params", "weights"),
    *("model_ema", "ema_state_dict"),
)
MAX_DEPTH = 3  # {"model": {"state_dict": {...}}}
# What DataParallel, torch.compile and training scripts put before every key.
PREFIXES = ("module.", "_orig_mod.", "model.", "net.", "backbone.")
BATCH_COUNT = "num_batches_tracked"
MAX_LISTED = 3


def find_state_dict(content: object, depth: int = MAX_DEPTH) -> dict[str, Tensor]:
    """The tensors by name, at the top or in a wrapper; averaged (EMA) ones only if there are no others."""
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


def strip_prefixes(state: StateDict, own: StateDict) -> StateDict:
    """The state dict without prefixes that all its keys share, where the module's own keys lack them."""

    def matches(candidate: StateDict) -> int:
        return len(candidate.keys() & own.keys())

    best = state
    while prefix := _shared_prefix(state):
        state = {key.removeprefix(prefix): value for key, value in state.items()}
        best = max(best, state, key=matches)
    return best


def _shared_prefix(state: StateDict) -> str:
    keys = [key for key, value in state.items() if value.ndim]  # an averaged model keeps n_averaged outside
    return next((prefix for prefix in PREFIXES if keys and all(key.startswith(prefix) for key in keys)), "")


def misfit(state: StateDict, own: StateDict, name: str) -> str:
    """Why the tensors do not fit the module of that name, or nothing if they do."""
    # Counters do not enter a prediction: n_averaged, and num_batches_tracked, which old files lack.
    missing = [key for key in own if key not in state and not key.endswith(BATCH_COUNT)]
    unexpected = {key: value for key, value in state.items() if key not in own and value.ndim}
    misshaped = [key for key in own if key in state and own[key].shape != state[key].shape]
    common = len(own.keys() & state.keys())
    if (missing or misshaped) and 2 * common < max(len(own), len(state)):
        return (
            f"weights of another architecture: it has {common} of the {len(own)} keys of {name}, "
            f"and {len(unexpected)} that {name} does not have"
        )
    if not missing and not unexpected and _is_head(misshaped, state, own):
        there, here = len(state[misshaped[0]]), len(own[misshaped[0]])
        return f"the file's head has {there} classes, the model {here}: pass num_classes={there}"
    problems = {
        "missing": first_few(missing, lambda key: _with_hint(key, own[key], unexpected)),
        "unexpected": first_few(unexpected),
        "of another shape": first_few(
            misshaped, lambda key: f"{key} (expected {tuple(own[key].shape)}, got {tuple(state[key].shape)})"
        ),
    }
    listed = "; ".join(f"{kind}: {keys}" for kind, keys in problems.items() if keys)
    return f"does not fit {name}: {listed}" if listed else ""


def _is_head(keys: list[str], state: StateDict, own: StateDict) -> bool:
    """Whether the keys are those of one output layer, whose number of rows alone differs."""
    layers = {key.rpartition(".")[0] for key in keys}
    matrices = [key for key in keys if own[key].ndim > 1]
    rows_differ = all(
        state[key].ndim == own[key].ndim and state[key].shape[1:] == own[key].shape[1:] for key in keys
    )
    # Without a bias it may be a table of embeddings, unless it comes last.
    is_output = len(keys) == 2 or keys == list(own)[-1:]
    return len(layers) == len(matrices) == 1 and rows_differ and is_output


def _with_hint(key: str, value: Tensor, unexpected: StateDict) -> str:
    alike = [other for other, tensor in unexpected.items() if tensor.shape == value.shape]
    near = get_close_matches(key, alike, n=1, cutoff=0.5)
    return f"{key} (the file has {near[0]})" if near else key


def first_few(names: Iterable[str], show: Callable[[str], str] = str) -> str:
    """The first names of a list, and how many more there are."""
    names = list(names)
    # A name out of a file can hold anything, and the message must stay one line.
    shown = [text if (text := show(name)).isprintable() else repr(text) for name in names[:MAX_LISTED]]
    more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    return ", ".join(shown) + more
