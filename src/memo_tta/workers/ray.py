"""Workers that are actors of a Ray cluster. Nothing here imports torch: a worker first sets its threads."""

import logging
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import Any, Self

from memo_tta.errors import ConfigError, DataError, MemoError, MissingExtra
from memo_tta.files import data_folder
from memo_tta.workers import Engine, WorkerDied, available_cores
from memo_tta.workers.engine import Item, Result
from memo_tta.workers.malloc import keep_freed_memory
from memo_tta.workers.processes import cap_by_memory

LOCAL = "local"  # Ray's word for a cluster of one's own, on this machine
OBJECT_STORE = 512 * 2**20  # bytes of shared memory there
STDERR = 2
REACH = 10  # seconds that a cluster has to take a call
ANSWER = 120  # seconds that a node has to say what it sees
# Read when Ray is imported: no usage statistics, no forecast of its next version's ways, no lines about dead
# workers and nodes between the user's own.
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": "^",
    "RAY_BACKEND_LOG_LEVEL": "fatal",
}


class Actor:
    """A worker's process, on any node."""

    def __init__(self, environment: dict[str, str]):
        os.environ.update(environment)
        keep_freed_memory()

    def start(self) -> None:
        """Answers when it can work."""

    def work(self, function: Callable[[Item], Result], item: Item) -> Result:
        try:
            return function(item)
        except MemoError as error:
            raise type(error)(
                f"{error} (on node {import_module('ray').util.get_node_ip_address()})"
            ) from None


class Ray(Engine[Any, Any]):
    """A pool of actors, each with a share of its node's cores and GPUs.

    Ray's own restarts are off: an actor that is to be restarted on a cluster without room for it would keep
    its units, and which of them killed it, only the order in which they were handed out tells.
    """

    def __init__(
        self, workers: int | None = None, address: str | None = None, num_cpus: int = 1, num_gpus: float = 0
    ):
        super().__init__(workers)
        self.address = address or os.environ.get("RAY_ADDRESS") or LOCAL
        self.num_cpus, self.num_gpus = num_cpus, num_gpus
        self.device = "cuda" if num_gpus else "cpu"
        self._shared: dict[str, Any] = {}
        self._connected = False

    def __enter__(self) -> Self:
        os.environ.update({key: os.environ.get(key, value) for key, value in ENVIRONMENT.items()})
        self.ray = _ray()
        if not self.ray.is_initialized():
            self._connect()
        return self

    def _connect(self) -> None:
        own = {
            "num_cpus": self.num_cpus * self.workers if self.workers else available_cores(),
            "object_store_memory": OBJECT_STORE,
            "include_dashboard": False,
        }
        try:
            _reach(self.address)
            with _quiet():
                self.ray.init(
                    self.address,
                    log_to_driver=False,
                    logging_level=logging.ERROR,
                    **(own if self.address == LOCAL else {}),
                )
        except Exception as error:  # of many kinds: nobody there, another version, a wrong token
            what = "cannot be started here" if self.address == LOCAL else f"does not answer at {self.address}"
            raise ConfigError(f"ray: {what} ({_why_unconnected(error)})") from None
        self._connected = True

    def __exit__(self, *error: object) -> None:
        try:
            super().__exit__(*error)
        finally:
            if self._connected:
                self.ray.shutdown()

    def capacity(self, gib: float) -> int:
        room = sum(self._capacity_of(node, gib) for node in self._nodes())
        if not room:
            wanted = f"{self.num_cpus} CPUs" + (f" and {self.num_gpus:g} GPUs" if self.num_gpus else "")
            raise ConfigError(
                f"no node of the cluster has {wanted}: ask for less, or, of one that grows, --workers"
            )
        return room

    def _capacity_of(self, node: dict[str, Any], gib: float) -> int:
        """How many workers fit on a node."""
        has = node["Resources"]
        fit = int(has.get("CPU", 0) / self.num_cpus)
        if self.num_gpus:
            fit = min(fit, int(has.get("GPU", 0) / self.num_gpus))
        return fit and cap_by_memory(fit, has.get("memory", 0) / 2**30, gib)

    def _nodes(self) -> list[dict[str, Any]]:
        return [node for node in self.ray.nodes() if node["Alive"]]

    def start_worker(self) -> tuple[Any, Any]:
        actor = self.ray.remote(Actor).options(
            num_cpus=self.num_cpus, num_gpus=self.num_gpus, max_restarts=0, scheduling_strategy="SPREAD"
        )
        worker = actor.remote(self._environment())
        return worker, worker.start.remote()

    def _environment(self) -> dict[str, str]:
        threads = str(self.num_cpus)
        return {
            "MEMO_DATA": str(data_folder().absolute()),
            "OMP_NUM_THREADS": threads,
            "OPENBLAS_NUM_THREADS": threads,
        }

    def submit(self, worker: Any, function: Callable[[Item], Any], item: Item) -> Any:
        return worker.work.remote(function, item)

    def wait(self, handles: Sequence[Any], seconds: float) -> Sequence[Any]:
        done, rest = self.ray.wait(list(handles), timeout=seconds)
        return done + (self.ray.wait(rest, num_returns=len(rest), timeout=0)[0] if rest and done else [])

    def result(self, handle: Any) -> Any:
        errors = self.ray.exceptions
        try:
            return self.ray.get(handle)
        except errors.RayTaskError as error:
            raise error.cause from None
        except errors.RayError as error:
            raise WorkerDied(_line(error)) from None

    def stop_worker(self, worker: Any, busy: bool) -> None:
        self.ray.kill(worker)

    def share(self, key: str, value: Result) -> Callable[[], Result]:
        """Into the object store, once; a node fetches it once, whatever the number of its workers."""
        if key not in self._shared:
            try:
                self._shared[key] = self.ray.put(value)
            except TypeError as error:
                raise ConfigError(f"{key}: cannot be sent to other processes ({_line(error)})") from None
        return partial(self.ray.get, self._shared[key])

    def check_nodes(self, probe: Callable[[], dict[str, str]]) -> None:
        errors, here, complaints = self.ray.exceptions, probe(), list[str]()
        for node, answer in self._ask_nodes(probe):
            name = f"{node['NodeManagerAddress']} ({node['NodeManagerHostname']})"
            try:
                there = self.ray.get(answer, timeout=ANSWER)
            except (errors.TaskUnschedulableError, errors.NodeDiedError):
                continue  # it has just left the cluster
            except errors.RayError as error:
                complaints.append(f"node {name}: {_line(getattr(error, 'cause', error))}")
            else:
                differ = (key for key in here if there[key] != here[key])
                complaints += [f"node {name}: {key} is {there[key]}, here {here[key]}" for key in differ]
        if complaints:
            raise DataError(f"{'; '.join(complaints)}: every node must see the same data at the same path")

    def _ask_nodes(self, probe: Callable[[], dict[str, str]]) -> list[tuple[dict[str, Any], Any]]:
        """The nodes that have room for a worker, and what each will answer."""
        look = self.ray.remote(_look)
        pinned = import_module("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy
        return [
            (
                node,
                look.options(num_cpus=0, scheduling_strategy=pinned(node["NodeID"], soft=False)).remote(
                    self._environment(), probe
                ),
            )
            for node in self._nodes()
            if self._capacity_of(node, 0)
        ]


def _reach(address: str) -> None:
    """Raise if nobody listens at HOST:PORT: Ray itself would try for minutes."""
    host, colon, port = address.rpartition(":")
    if colon and port.isdecimal() and "://" not in host:
        socket.create_connection((host, int(port)), REACH).close()


def _why_unconnected(error: Exception) -> str:
    if "InvalidAuthToken" in str(error.__cause__):
        return "its token is another: set RAY_AUTH_MODE=token and copy the head's ~/.ray/auth_token"
    return _line(error)


@contextmanager
def _quiet() -> Iterator[None]:
    """Drops what Ray's C++ writes to stderr while it connects; its exception says it better."""
    kept, nowhere = os.dup(STDERR), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, STDERR)
    try:
        yield
    finally:
        os.dup2(kept, STDERR)
        os.close(kept)
        os.close(nowhere)


def _look(environment: dict[str, str], probe: Callable[[], dict[str, str]]) -> dict[str, str]:
    """On a node: what the probe finds."""
    os.environ.update(environment)
    return probe()


def _line(error: Exception) -> str:
    """The first line of what may be many."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def _ray() -> Any:
    try:
        return import_module("ray")
    except ImportError:
        raise MissingExtra("ray is not installed: pip install 'memo-tta[ray]'") from None
