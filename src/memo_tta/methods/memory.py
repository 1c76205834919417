"""Memory: the weights and moments that one point passes on to the next, and how a collapse is prevented."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import Parameter

from memo_tta.errors import ConfigError
from memo_tta.methods.gradient import all_finite
from memo_tta.methods.options import Condition, Flag, Number, OneOf, Options, option, when
from memo_tta.methods.update import UpdateRule
from memo_tta.models.batch_norm import norm_layers

STEP_SHARE = 0.1  # share of a point's step that anchored weights keep
ENTROPY_LIMIT = 0.4  # share of log K: anchored weights learn from points of lower marginal entropy
DECAY = 0.99  # of the running label shares: they average over about 100 points
COLLAPSE_MARGIN = 0.15  # reset once a label's running share exceeds the source's by this much

NewRule = Callable[[], UpdateRule]


@dataclass(frozen=True, kw_only=True)
class MemoryOptions(Options):
    """Whether weights and moments are reset after every point."""

    reset: str = option(
        "always",
        OneOf("reset", ("always", "never", "anchor")),
        "when weights return to the source model: after every image, never, or (norm layers only) gradually",
    )
    pull: float = option(
        0.01,
        Number("(0, 1]"),
        "share of the way back to the source that anchored weights go after every image they learn from",
        needs=[when("reset", "anchor")],
    )
    carry_optimizer: bool = option(
        False,
        Flag(),
        "keep the optimizer's moments from image to image, as the authors' script does",
        needs=[
            (
                Condition("optimizer", "optimizer='adam'", lambda given: given != "sgd"),
                Condition("momentum", "momentum", bool),
            )
        ],
        off=False,
    )


@dataclass(frozen=True)
class AdaptedState:
    """Adapted weights, the update rule with its moments, and what else the method remembers."""

    weights: list[Tensor]
    rule: UpdateRule
    notes: Any = None


class Forgetful:
    """No memory: each point starts from the source model with a new update rule."""

    online = False

    def __init__(self, new_rule: NewRule):
        self._new_rule = new_rule

    @property
    def notes(self) -> Any:
        """What the method has remembered with the stored weights; None before the first point."""
        return None

    def forget(self) -> None:
        """Discard the stored state: the next point starts from the source model."""

    def recall(self) -> UpdateRule:
        """Load the stored weights into the module, inside an episode; return the update rule to use."""
        return self._new_rule()

    def capture(self, rule: UpdateRule, notes: Any = None) -> AdaptedState | None:
        """Return the state that could be stored, inside the same episode; None if nothing should be."""
        return None

    def store(self, state: AdaptedState) -> None:
        """Replace the stored state."""

    def learn(
        self, state: AdaptedState, logits: Tensor, source: Tensor, marginal_entropy: float | None
    ) -> None:
        """Store the captured state if this point is reliable.

        That is judged by its adapted and source logits, (classes,), and the marginal entropy of its views.
        """
        self.store(state)


class Carried(Forgetful):
    """Keep the adapted weights from point to point, and the moments if `carry_rule`."""

    online = True

    def __init__(self, new_rule: NewRule, parameters: Sequence[Parameter], carry_rule: bool):
        super().__init__(new_rule)
        self._parameters, self._carry_rule = parameters, carry_rule
        self.forget()

    @property
    def notes(self) -> Any:
        return None if self._state is None else self._state.notes

    def forget(self) -> None:
        self._state: AdaptedState | None = None

    def recall(self) -> UpdateRule:
        if self._state is None:
            return self._new_rule()
        for parameter, value in zip(self._parameters, self._state.weights, strict=True):
            parameter.data.copy_(value)
        return self._state.rule.copy() if self._carry_rule else self._new_rule()

    def capture(self, rule: UpdateRule, notes: Any = None) -> AdaptedState | None:
        weights = [p.detach().clone() for p in self._parameters]
        return AdaptedState(weights, rule, notes) if all_finite(weights) else None

    def store(self, state: AdaptedState) -> None:
        self._state = state


class Anchored(Carried):
    """Keep the adapted weights, but let them change slowly, stay near the source and reset on a collapse.

    After every confident point they take `STEP_SHARE` of its step, then go the share `pull` of the way back
    to the source weights.
    """

    def __init__(self, new_rule: NewRule, parameters: Sequence[Parameter], carry_rule: bool, pull: float):
        super().__init__(new_rule, parameters, carry_rule)
        self._pull = pull

    def forget(self) -> None:
        super().forget()
        self._detector = CollapseDetector()

    def recall(self) -> UpdateRule:
        self._source = [p.detach().clone() for p in self._parameters]
        return super().recall()

    def capture(self, rule: UpdateRule, notes: Any = None) -> AdaptedState | None:
        adapted = super().capture(rule, notes)
        if adapted is None:
            return None
        slow = [
            old.lerp(new, STEP_SHARE).lerp(source, self._pull)
            for old, new, source in zip(self._stored_weights(), adapted.weights, self._source, strict=True)
        ]
        return AdaptedState(slow, rule, notes)

    def learn(
        self, state: AdaptedState, logits: Tensor, source: Tensor, marginal_entropy: float | None
    ) -> None:
        """Store the state of a confident point; return to the source weights if the labels collapse."""
        if self._detector.observe(logits, source):
            self.forget()
            self.store(AdaptedState(self._source, state.rule))
        elif marginal_entropy is not None and marginal_entropy < ENTROPY_LIMIT * math.log(len(logits)):
            self.store(state)
        else:
            self.store(AdaptedState(self._stored_weights(), state.rule))

    def _stored_weights(self) -> list[Tensor]:
        return self._source if self._state is None else self._state.weights


class CollapseDetector:
    """Detect that the adapted model predicts one label far more often than the source model does.

    A stream that really consists of one label is no collapse: the source predicts that label as often.
    """

    def __init__(self) -> None:
        self._excess: Tensor | None = None  # running share of each label, minus its share for the source

    def observe(self, logits: Tensor, source: Tensor) -> bool:
        """Count the adapted and source predictions of one point, (classes,); return whether they collapse."""
        excess = torch.zeros_like(source) if self._excess is None else DECAY * self._excess
        excess[logits.argmax()] += 1 - DECAY
        excess[source.argmax()] -= 1 - DECAY
        self._excess = excess
        return bool(excess.max() > COLLAPSE_MARGIN)


def build_memory(
    options: MemoryOptions, new_rule: NewRule, module: nn.Module, parameters: Sequence[Parameter]
) -> Forgetful:
    """Return the memory that the options describe, for the adapted parameters."""
    if options.reset == "always":
        return Carried(new_rule, (), True) if options.carry_optimizer else Forgetful(new_rule)
    if options.reset == "never":
        return Carried(new_rule, parameters, options.carry_optimizer)
    norm_ids = {id(p) for layer in norm_layers(module) for p in layer.parameters(recurse=False)}
    carried = [p for p in parameters if id(p) in norm_ids]
    if not carried:
        raise ConfigError(
            "reset: 'anchor' keeps the adapted parameters of norm layers, and there are none: "
            "use reset='always', or other params"
        )
    return Anchored(new_rule, carried, options.carry_optimizer, options.pull)
