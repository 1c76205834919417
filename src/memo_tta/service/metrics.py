"""Metrics for Prometheus."""

from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from memo_tta.methods import Prediction

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30)
SHIFTS = (0.02, 0.04, 0.06, 0.08, 0.1, 0.12, 0.15, 0.2, 0.3, 0.5, 1, 2)
NATS = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 5, 7)
PATHS = (
    *("/", "/v1/predict", "/v1/predict:batch", "/v1/model", "/healthz", "/readyz", "/metrics"),
    *("/page/preview", "/page/predict"),
)


class Metrics:
    """The metrics of one service, in a registry of their own: one process can hold several services."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        self._requests = Counter(
            "memo_requests", "Responses by path and status", ["path", "status"], registry=registry
        )
        self._seconds = Histogram(
            "memo_stage_seconds", "Duration of each stage", ["stage"], registry=registry, buckets=SECONDS
        )
        self._predictions = Counter(
            "memo_predictions", "Predictions by method and status", ["method", "status"], registry=registry
        )
        self._entropy = Histogram(
            "memo_entropy_nats", "Entropy of the predictions", ["when"], registry=registry, buckets=NATS
        )
        self._shift = Histogram(
            "memo_shift",
            "Shift of the images from the training data, of models with batch norm",
            registry=registry,
            buckets=SHIFTS,
        )
        self._disconnects = Counter(
            "memo_clients_left", "Clients that disconnected before their response", registry=registry
        )
        self._replacements = Counter(
            "memo_replicas_replaced", "Replicas replaced because their weights had changed", registry=registry
        )

    def add_gauge(self, name: str, about: str, value: Callable[[], float]) -> None:
        """Add a gauge whose value is read at every scrape."""
        Gauge(f"memo_{name}", about, registry=self._registry).set_function(value)

    def count_response(self, path: str, status: int) -> None:
        """Count one response; paths outside the service share one label, so that clients cannot add more."""
        self._requests.labels(path if path in PATHS else "other", str(status)).inc()

    def observe_stage(self, stage: str, seconds: float) -> None:
        """Record how long one stage of a request took."""
        self._seconds.labels(stage).observe(seconds)

    def count_prediction(self, method: str, prediction: Prediction, seconds: Mapping[str, float]) -> None:
        """Record one prediction: its status, its entropy, its shift and the seconds of each stage."""
        self._predictions.labels(method, str(prediction.status)).inc()
        self._entropy.labels("before").observe(prediction.source.entropy)
        self._entropy.labels("after").observe(prediction.entropy)
        if prediction.shift is not None:
            self._shift.observe(prediction.shift)
        for stage, duration in seconds.items():
            self.observe_stage(stage, duration)

    def count_disconnect(self) -> None:
        """Count a client that disconnected before its response."""
        self._disconnects.inc()

    def count_replacement(self) -> None:
        """Count a replica that was replaced."""
        self._replacements.inc()

    def text(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return generate_latest(self._registry)
