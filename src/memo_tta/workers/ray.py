"""Workers that are actors of a Ray cluster.

Importing this module does not import torch, because an actor sets its number of threads first.
"""

import logging
import os
import socket
from collections.abc import Callable, Generator, Sequence
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

LOCAL = "local"  # the address with which Ray starts a cluster on this machine
LOCAL_OBJECT_STORE = 512 * 2**20  # bytes of shared memory
STDERR = 2
CONNECT_TIMEOUT = 10  # seconds
PROBE_TIMEOUT = 120  # seconds
# Ray reads these when it is imported: no usage statistics, no warning about a future default, and no log
# lines about dead workers and nodes in the user's terminal.
RAY_VARIABLES = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": "^",
    "RAY_BACKEND_LOG_LEVEL": "fatal",
}


class Actor:
    """A worker's process on some node of the cluster."""

    def __init__(self, variables: dict[str, str]):
        os.environ.update(variables)
        keep_freed_memory()

    def start(self) -> None:
        """Return as soon as the actor runs."""

    def run(self, function: Callable[[Item], Result], item: Item) -> Result:
        """Return function(item); a MemoError names the node."""
        try:
            return function(item)
        except MemoError as error:
            node = _import_ray().util.get_node_ip_address()
            raise type(error)(f"{error} (on node {node})") from None


class Ray(Engine[Any, Any]):  # Ray has no type stubs: actors and object references are Any
    """A pool of actors, each with its share of a node's cores and GPUs.

    Ray's own restarts are off: an actor that waits to be restarted on a full cluster would hold on to its
    tasks, and only the order of submission tells which of them killed it.
    """

    ray: Any  # the module, imported when the `with` block begins

    def __init__(
        self, workers: int | None = None, address: str | None = None, num_cpus: int = 1, num_gpus: float = 0
    ):
        super().__init__(workers)
        self.address = address or os.environ.get("RAY_ADDRESS") or LOCAL
        self.num_cpus, self.num_gpus = num_cpus, num_gpus
        self.device = "cuda" if num_gpus else "cpu"
        self._shared: dict[str, Any] = {}
        self._is_own_connection = False

    def __enter__(self) -> Self:
        os.environ.update({key: os.environ.get(key, value) for key, value in RAY_VARIABLES.items()})
        self.ray = _import_ray()
        if not self.ray.is_initialized():
            self._connect()
        return self

    def _connect(self) -> None:
        local_options = {
            "num_cpus": self.num_cpus * self.workers if self.workers else available_cores(),
            "object_store_memory": LOCAL_OBJECT_STORE,
            "include_dashboard": False,
        }
        try:
            _check_reachable(self.address)
            with _silent_stderr():
                self.ray.init(
                    self.address,
                    log_to_driver=False,
                    logging_level=logging.ERROR,
                    **(local_options if self.address == LOCAL else {}),
                )
        except Exception as error:  # of many types: nothing listens there, another version, a wrong token
            action = "start on this machine" if self.address == LOCAL else f"connect to {self.address}"
            raise ConfigError(f"ray: cannot {action} ({_connection_problem(error)})") from None
        self._is_own_connection = True

    def __exit__(self, *error: object) -> None:
        try:
            super().__exit__(*error)
        finally:
            if self._is_own_connection:
                self.ray.shutdown()

    def capacity(self, memory_gib: float) -> int:
        total = sum(self._node_capacity(node, memory_gib) for node in self._alive_nodes())
        if not total:
            wanted = f"{self.num_cpus} CPUs" + (f" and {self.num_gpus:g} GPUs" if self.num_gpus else "")
            raise ConfigError(
                f"no node of the cluster has {wanted}: lower --num-cpus or --num-gpus, "
                "or set --workers if the cluster adds nodes on demand"
            )
        return total

    def _node_capacity(self, node: dict[str, Any], memory_gib: float) -> int:
        """Return how many workers fit on a node."""
        resources = node["Resources"]
        count = int(resources.get("CPU", 0) / self.num_cpus)
        if self.num_gpus:
            count = min(count, int(resources.get("GPU", 0) / self.num_gpus))
        return cap_by_memory(count, resources.get("memory", 0) / 2**30, memory_gib) if count else 0

    def _alive_nodes(self) -> list[dict[str, Any]]:
        return [node for node in self.ray.nodes() if node["Alive"]]

    def start_worker(self) -> tuple[Any, Any]:
        actor_class = self.ray.remote(Actor).options(
            num_cpus=self.num_cpus, num_gpus=self.num_gpus, max_restarts=0, scheduling_strategy="SPREAD"
        )
        actor = actor_class.remote(self._worker_variables())
        return actor, actor.start.remote()

    def _worker_variables(self) -> dict[str, str]:
        """Return the environment variables that a worker sets."""
        threads = str(self.num_cpus)
        return {
            "MEMO_DATA": str(data_folder().absolute()),
            "OMP_NUM_THREADS": threads,
            "OPENBLAS_NUM_THREADS": threads,
        }

    def submit(self, worker: Any, function: Callable[[Item], Any], item: Item) -> Any:
        return worker.run.remote(function, item)

    def wait(self, handles: Sequence[Any], timeout: float) -> Sequence[Any]:
        done, rest = self.ray.wait(list(handles), timeout=timeout)
        if done and rest:  # ray.wait returns a single one, even if more are done
            done += self.ray.wait(rest, num_returns=len(rest), timeout=0)[0]
        return done

    def result(self, handle: Any) -> Any:
        exceptions = self.ray.exceptions
        try:
            return self.ray.get(handle)
        except exceptions.RayTaskError as error:
            raise error.cause from None
        except exceptions.RayError as error:
            raise WorkerDied(_first_line(error)) from None

    def stop_worker(self, worker: Any, is_busy: bool) -> None:
        self.ray.kill(worker)

    def share(self, key: str, value: Result) -> Callable[[], Result]:
        """Put the value into the object store, from which each node fetches it once for all its workers."""
        if key not in self._shared:
            try:
                self._shared[key] = self.ray.put(value)
            except TypeError as error:
                raise ConfigError(
                    f"{key}: cannot be sent to other processes ({_first_line(error)})"
                ) from None
        return partial(self.ray.get, self._shared[key])

    def check_nodes(self, probe: Callable[[], dict[str, str]]) -> None:
        exceptions, expected, problems = self.ray.exceptions, probe(), list[str]()
        for node, answer in self._probe_nodes(probe):
            name = f"{node['NodeManagerAddress']} ({node['NodeManagerHostname']})"
            try:
                found = self.ray.get(answer, timeout=PROBE_TIMEOUT)
            except (exceptions.TaskUnschedulableError, exceptions.NodeDiedError):
                continue  # it has just left the cluster
            except exceptions.RayError as error:
                problems.append(f"node {name}: {_first_line(getattr(error, 'cause', error))}")
            else:
                problems += [
                    f"node {name}: {key} is {found[key]}, here it is {value}"
                    for key, value in expected.items()
                    if found[key] != value
                ]
        if problems:
            raise DataError(
                f"{'; '.join(problems)}: every node must have the same versions and the same data at the "
                "same path"
            )

    def _probe_nodes(self, probe: Callable[[], dict[str, str]]) -> list[tuple[dict[str, Any], Any]]:
        """Start the probe on every node that can run a worker; return each node with its pending answer."""
        remote_probe = self.ray.remote(_run_probe)
        strategies = import_module("ray.util.scheduling_strategies")
        answers = list[tuple[dict[str, Any], Any]]()
        for node in self._alive_nodes():
            if self._node_capacity(node, 0):
                pinned = strategies.NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
                pinned_probe = remote_probe.options(num_cpus=0, scheduling_strategy=pinned)
                answers.append((node, pinned_probe.remote(self._worker_variables(), probe)))
        return answers


def _check_reachable(address: str) -> None:
    """Raise if nothing listens at HOST:PORT; Ray itself would retry for minutes."""
    host, colon, port = address.rpartition(":")
    if colon and port.isdecimal() and "://" not in host:
        socket.create_connection((host, int(port)), CONNECT_TIMEOUT).close()


def _connection_problem(error: Exception) -> str:
    if "InvalidAuthToken" in str(error.__cause__):
        return "wrong token: set RAY_AUTH_MODE=token and copy ~/.ray/auth_token from the head node"
    return _first_line(error)


@contextmanager
def _silent_stderr() -> Generator[None]:
    """Discard what Ray's C++ code writes to stderr; its exception explains the problem better."""
    saved, devnull = os.dup(STDERR), os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, STDERR)
    try:
        yield
    finally:
        os.dup2(saved, STDERR)
        os.close(saved)
        os.close(devnull)


def _run_probe(variables: dict[str, str], probe: Callable[[], dict[str, str]]) -> dict[str, str]:
    """Return what the probe finds on the node that runs this."""
    os.environ.update(variables)
    return probe()


def _first_line(error: Exception) -> str:
    """Return the first line of the error's message that is not blank, or else its type."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def _import_ray() -> Any:
    try:
        return import_module("ray")
    except ImportError:
        raise MissingExtra("ray is not installed: pip install 'memo-tta[ray]'") from None
