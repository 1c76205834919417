"""What lives on from point to point, and what keeps it from collapsing onto one label."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import Parameter

from memo_tta.errors import ConfigError
from memo_tta.methods.gradient import all_finite
from memo_tta.methods.options import Condition, Flag, Number, OneOf, Options, option, when
from memo_tta.methods.update import UpdateRule
from memo_tta.models.batch_norm import norm_layers

LASTING = 0.1  # share of an anchored step that lives on
SURE = 0.4  # share of log K below which the marginal entropy of a point teaches the next ones
MEMORY = 0.99  # of the running shares: they look back about 100 points
COLLAPSED = 0.15  # forget once a label's running share exceeds the source's by this much

NewRule = Callable[[], UpdateRule]


@dataclass(frozen=True, kw_only=True)
class MemoryOptions(Options):
    reset: str = option(
        "always",
        OneOf("reset", ("always", "never", "anchor")),
        "when weights return to the source: after every point, never, or (norm layers only) gradually",
    )
    pull: float = option(
        0.01,
        Number("(0, 1]"),
        "how far anchored weights go back to the source after every point that teaches",
        needs=[when("reset", "anchor")],
    )
    carry_optimizer: bool = option(
        False,
        Flag(),
        "keep the optimizer's moments from point to point, as the authors' script does",
        needs=[
            (
                Condition("optimizer", "optimizer='adam'", lambda given: given != "sgd"),
                Condition("momentum", "momentum", bool),
            )
        ],
        off=False,
    )


@dataclass(frozen=True)
class Lasting:
    """What one point leaves to the next: weights and the update rule with its moments."""

    weights: list[Tensor]
    rule: UpdateRule


class Forgetful:
    """Nothing lives on: each point starts from the source with a new update rule."""

    online = False

    def __init__(self, new_rule: NewRule):
        self._new_rule = new_rule

    def forget(self) -> None:
        """Start from the source again."""

    def recall(self) -> UpdateRule:
        """Put what lives on into the module, within an episode; the rule to go on with."""
        return self._new_rule()

    def take(self, rule: UpdateRule) -> Lasting | None:
        """What could live on of the module's values now, in the same episode; None if nothing should."""
        return None

    def keep(self, lasting: Lasting) -> None:
        """Let it live on."""

    def learn(self, lasting: Lasting, logits: Tensor, source: Tensor, marginal: float | None) -> None:
        """Keep it if the point is fit to teach, judged by the logits (classes,) of answer and source and by
        the marginal entropy of the views."""
        self.keep(lasting)


class Carried(Forgetful):
    """Weights live on, and moments if `carry_rule`; between calls the module has its own weights back."""

    online = True

    def __init__(self, new_rule: NewRule, parameters: Sequence[Parameter], carry_rule: bool):
        super().__init__(new_rule)
        self._parameters, self._carry_rule = parameters, carry_rule
        self.forget()

    def forget(self) -> None:
        self._lasting: Lasting | None = None

    def recall(self) -> UpdateRule:
        if self._lasting is None:
            return self._new_rule()
        for parameter, value in zip(self._parameters, self._lasting.weights, strict=True):
            parameter.data.copy_(value)
        return self._lasting.rule.copy() if self._carry_rule else self._new_rule()

    def take(self, rule: UpdateRule) -> Lasting | None:
        weights = [p.detach().clone() for p in self._parameters]
        return Lasting(weights, rule) if all_finite(weights) else None

    def keep(self, lasting: Lasting) -> None:
        self._lasting = lasting


class Anchored(Carried):
    """Weights live on slowly, tied to the module's own, and only as long as labels do not collapse.

    A tenth of every step lives on; then weights go back to the source by the share `pull`.
    """

    def __init__(self, new_rule: NewRule, parameters: Sequence[Parameter], carry_rule: bool, pull: float):
        super().__init__(new_rule, parameters, carry_rule)
        self._pull = pull

    def forget(self) -> None:
        super().forget()
        self._collapse = Collapse()

    def recall(self) -> UpdateRule:
        self._source = [p.detach().clone() for p in self._parameters]
        return super().recall()

    def take(self, rule: UpdateRule) -> Lasting | None:
        adapted = super().take(rule)
        if adapted is None:
            return None
        before = self._source if self._lasting is None else self._lasting.weights
        slow = [
            old.lerp(new, LASTING).lerp(source, self._pull)
            for old, new, source in zip(before, adapted.weights, self._source, strict=True)
        ]
        return Lasting(slow, rule)

    def learn(self, lasting: Lasting, logits: Tensor, source: Tensor, marginal: float | None) -> None:
        """Learn from points that are sure; forget everything if labels collapse."""
        before = self._source if self._lasting is None else self._lasting.weights
        if self._collapse.seen(logits, source):
            self.forget()
            self.keep(Lasting(self._source, lasting.rule))
        elif marginal is not None and marginal < SURE * math.log(len(logits)):
            self.keep(lasting)
        else:
            self.keep(Lasting(before, lasting.rule))


class Collapse:
    """Tell from a stream of answers that the adapted model predicts one label far more than the source.

    A stream that really is of one label is none: the source predicts it as often.
    """

    def __init__(self) -> None:
        self._surplus: Tensor | None = None  # running share of each label, less that of the source

    def seen(self, logits: Tensor, source: Tensor) -> bool:
        """Count the answers to one point, (classes,) each."""
        surplus = torch.zeros_like(source) if self._surplus is None else MEMORY * self._surplus
        surplus[logits.argmax()] += 1 - MEMORY
        surplus[source.argmax()] -= 1 - MEMORY
        self._surplus = surplus
        return bool(surplus.max() > COLLAPSED)


def build_memory(
    options: MemoryOptions, new_rule: NewRule, module: nn.Module, parameters: Sequence[Parameter]
) -> Forgetful:
    """The memory that the options ask for, of the parameters that are adapted."""
    if options.reset == "always":
        return Carried(new_rule, (), True) if options.carry_optimizer else Forgetful(new_rule)
    if options.reset == "never":
        return Carried(new_rule, parameters, options.carry_optimizer)
    norms = {id(p) for layer in norm_layers(module) for p in layer.parameters(recurse=False)}
    carried = [p for p in parameters if id(p) in norms]
    if not carried:
        raise ConfigError(
            "reset: 'anchor' carries the parameters of norm layers, and none of those is adapted: "
            "use 'always', or other params"
        )
    return Anchored(new_rule, carried, options.carry_optimizer, options.pull)
