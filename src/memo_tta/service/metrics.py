"""What Prometheus is told."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from memo_tta.methods import Prediction

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30)
NATS = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 5, 7)
PATHS = ("/", "/v1/predict", "/v1/model", "/healthz", "/readyz", "/metrics", "/page/preview", "/page/predict")


class Metrics:
    """In a registry of its own, so that one process can hold several services."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        self._requests = Counter(
            "memo_requests", "Answers by path and status", ["path", "status"], registry=registry
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
        self._left = Counter("memo_clients_left", "Clients that left before their answer", registry=registry)
        self._replaced = Counter(
            "memo_replicas_replaced", "Replicas whose weights were not the source's", registry=registry
        )

    def watch(self, name: str, about: str, value: Callable[[], float]) -> None:
        """A gauge that is read when Prometheus asks."""
        Gauge(f"memo_{name}", about, registry=self._registry).set_function(value)

    def count_request(self, path: str, status: int) -> None:
        self._requests.labels(path if path in PATHS else "other", str(status)).inc()

    def stage(self, name: str, seconds: float) -> None:
        self._seconds.labels(name).observe(seconds)

    def predicted(self, method: str, prediction: Prediction, seconds: dict[str, float]) -> None:
        self._predictions.labels(method, str(prediction.status)).inc()
        self._entropy.labels("before").observe(prediction.source.entropy)
        self._entropy.labels("after").observe(prediction.entropy)
        for stage, duration in seconds.items():
            self.stage(stage, duration)

    def client_left(self) -> None:
        self._left.inc()

    def replica_replaced(self) -> None:
        self._replaced.inc()

    def text(self) -> bytes:
        return generate_latest(self._registry)
