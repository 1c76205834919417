"""The operator's settings of the service."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memo_tta.errors import ConfigError
from memo_tta.workers import available_cores

QUEUE_PER_REPLICA = 4  # a request further back in the queue would miss its deadline anyway


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The model, the default method, and the limits that no request can exceed."""

    model: str = "resnet26"
    model_arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])  # others of memo_tta.load
    method: str = "memo"  # of requests that name none
    methods: Sequence[str] | None = None  # those that requests may choose; None: all that work with the model
    options: Mapping[str, Mapping[str, Any]] = field(
        default_factory=dict[str, Mapping[str, Any]]
    )  # by method
    replicas: int = field(default_factory=available_cores)
    queue: int | None = None  # requests that may wait; None: four per replica
    deadline_ms: int = 2000
    max_views: int = 128
    max_batch: int = 16  # images of one request
    max_body: int = 10 * 2**20  # bytes
    max_pixels: int = 25_000_000
    body_seconds: float = 10.0  # within which a body must arrive
    token: str | None = None
    samples: Path | None = None  # folder of images that the page offers; None: bundled ones, if they fit
    host: str = "127.0.0.1"  # the address or name that the service listens on
    allowed_hosts: Sequence[str] = ()  # further names by which clients may call the service

    def __post_init__(self) -> None:
        for name in ("replicas", "deadline_ms", "max_views", "max_batch", "max_body", "max_pixels"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}: expected at least 1, got {getattr(self, name)}")
        if self.queue is not None and self.queue < 0:
            raise ConfigError(f"queue: expected at least 0, got {self.queue}")
        if self.methods is not None and self.method not in self.methods:
            raise ConfigError(
                f"method: expected one of methods, {', '.join(self.methods)}, got {self.method}: "
                f"choose one of them, or add {self.method} to methods"
            )
        if self.token is not None and (not self.token.isascii() or self.token.split() != [self.token]):
            raise ConfigError("token: expected ASCII characters without spaces")

    @property
    def queue_size(self) -> int:
        """The number of requests that may wait while all replicas are busy."""
        return QUEUE_PER_REPLICA * self.replicas if self.queue is None else self.queue

    @property
    def threads(self) -> int:
        """The threads of each replica: an equal share of the cores."""
        return max(1, available_cores() // self.replicas)
