"""What the operator decides."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memo_tta.errors import ConfigError
from memo_tta.workers import available_cores

WAITING_PER_REPLICA = 4  # more would wait for an answer that comes too late anyway


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Model, method and limits; a request can only ask for less."""

    model: str = "resnet26"
    weights: Path | None = None
    method: str = "memo"
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # by method
    replicas: int = field(default_factory=available_cores)
    queue: int | None = None  # requests that may wait; None: four for each replica
    deadline_ms: int = 2000
    max_views: int = 128
    max_body: int = 10 * 2**20  # bytes
    max_pixels: int = 25_000_000
    body_seconds: float = 10.0  # for a body to arrive
    token: str | None = None

    def __post_init__(self) -> None:
        for name in ("replicas", "deadline_ms", "max_views", "max_body", "max_pixels"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}: expected at least 1, got {getattr(self, name)}")
        if self.queue is not None and self.queue < 0:
            raise ConfigError(f"queue: expected at least 0, got {self.queue}")
        if self.token is not None and (not self.token.isascii() or self.token.split() != [self.token]):
            raise ConfigError("token: expected ASCII without spaces")

    @property
    def queue_size(self) -> int:
        """How many requests may wait while all replicas are busy."""
        return WAITING_PER_REPLICA * self.replicas if self.queue is None else self.queue

    @property
    def threads(self) -> int:
        """Of each replica: the cores are shared out."""
        return max(1, available_cores() // self.replicas)
