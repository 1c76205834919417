"""A load test of the service on loopback: `python -m tests.service.load [--seconds 60]`.

The client runs on the same machine, so its own cost lowers the measured throughput of the service.
"""

import asyncio
import io
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

import click
from PIL import Image

from memo_tta.bench.measurement import Measurement
from memo_tta.bench.suite import show
from memo_tta.data.sample_images import load_sample
from tests.service.bad_requests import ServiceLimits, bad_request
from tests.service.http_client import exchange, predict_request, request

REPLICAS = 2
DEADLINE_MS = 2000
ROUNDS = 3  # of the throughput test, in which the service and the bare processes take turns
TURN_SHARE = 1 / 10  # of the overload's duration, for each turn
N_BAD, BAD_LIMITS = 96, ServiceLimits(max_body=10 * 2**20, body_seconds=10.0)  # the service's defaults
THROUGHPUT_BAR, LATENCY_BAR, GROWTH_BAR, REJECTION_BAR = 1 / 0.9, 1.2, 0.05, 1.0


@dataclass
class Statistics:
    """Statuses and latencies of many requests."""

    statuses: Counter[int] = field(default_factory=Counter[int])
    seconds: list[float] = field(default_factory=list[float])  # of responses with status 200
    n_adapted: int = 0

    async def send(self, url: str, payload: bytes) -> None:
        """Send one request and record its response."""
        started = perf_counter()
        reply = await exchange(url, payload)
        self.statuses[reply.status] += 1
        if reply.status == 200:
            self.seconds.append(perf_counter() - started)
            self.n_adapted += reply.json["adapted"]

    def percentile(self, share: float) -> float:
        """Return the latency that this share of the responses does not exceed."""
        return sorted(self.seconds)[min(len(self.seconds) - 1, int(share * len(self.seconds)))]


def run(seconds: float) -> Iterator[Measurement]:
    """Measure throughput, an overload of this many seconds, and the response to bad requests."""
    payloads = [predict_request(image) for image in _images()]
    with _service() as (url, pid), _bare_processes() as bare:
        capacity, row = _throughput(url, bare, payloads, TURN_SHARE * seconds)
        yield row
        yield from _overload(url, pid, payloads, 2 * capacity, seconds)
        yield from _bad_requests(url)


def _images() -> list[bytes]:
    files: list[bytes] = []
    for sample in load_sample().take(range(0, 500, 5)):
        file = io.BytesIO()
        Image.fromarray(sample.image).save(file, "PNG")
        files.append(file.getvalue())
    return files


@contextmanager
def _service() -> Generator[tuple[str, int]]:
    """Run `memo serve`; yield its address and its process id."""
    arguments = ["serve", "--port", "0", "--replicas", str(REPLICAS), "--deadline-ms", str(DEADLINE_MS)]
    process = subprocess.Popen(
        [sys.executable, "-m", "memo_tta", *arguments], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        address = re.search(r"http://\S+:\d+", line)
        if address is None:
            raise click.ClickException(f"the service does not start: {line}{process.stderr.read()}")
        asyncio.run(_wait_until_ready(address.group()))
        yield address.group(), process.pid
    finally:
        process.terminate()
        _, errors = process.communicate()
    if process.returncode != 0:
        raise click.ClickException(f"the service ended with code {process.returncode}: {errors}")


async def _wait_until_ready(url: str) -> None:
    while (await exchange(url, request("/readyz", method="GET"))).status != 200:
        await asyncio.sleep(0.2)


@contextmanager
def _bare_processes() -> Generator[list[subprocess.Popen[str]]]:
    """Start one process per replica of the service, with as many threads, and wait until they are warm."""
    threads = max(1, (os.cpu_count() or 1) // REPLICAS)
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, "-m", "tests.service.load", "--bare"]
    processes = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(REPLICAS)
    ]
    try:
        for process in processes:
            _read_line(process)
        yield processes
    finally:
        for process in processes:
            process.communicate()


def _read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def predict_bare() -> None:
    """Predict without a service: for each duration in seconds on stdin, print the predictions per second."""
    import memo_tta as mt

    robust = mt.Memo(mt.load("resnet26"))
    images = [sample.image for sample in load_sample().take(range(0, 500, 5))]
    robust.predict(images[0])
    click.echo("ready")
    for line in sys.stdin:
        n_done, started = 0, perf_counter()
        while perf_counter() - started < float(line):
            robust.predict(images[n_done % len(images)])
            n_done += 1
        click.echo(n_done / (perf_counter() - started))


def _throughput(
    url: str, bare: Sequence[subprocess.Popen[str]], payloads: list[bytes], seconds: float
) -> tuple[float, Measurement]:
    """Return the service's predictions per second, and how they compare with the bare processes."""
    service_rates: list[float] = []
    bare_rates: list[float] = []
    for _ in range(ROUNDS):
        service_rates.append(_capacity(url, payloads, seconds))
        for process in bare:
            assert process.stdin is not None
            process.stdin.write(f"{seconds}\n")
            process.stdin.flush()
        bare_rates.append(sum(float(_read_line(process)) for process in bare))
    ratios = sorted(b / max(s, 1e-9) for s, b in zip(service_rates, bare_rates, strict=True))
    capacity = sum(service_rates) / ROUNDS
    rates = f"{capacity:.1f} / {sum(bare_rates) / ROUNDS:.1f} predictions/s"
    detail = f"ResNet-26, B = 32, median of {ROUNDS} turns: {rates}"
    row = Measurement(
        "two bare processes / service with 2 replicas", ratios[ROUNDS // 2], THROUGHPUT_BAR, "x", detail
    )
    return capacity, row


def _capacity(url: str, payloads: list[bytes], seconds: float) -> float:
    """Return predictions per second while every replica is always busy."""

    async def measure() -> float:
        statistics, started = Statistics(), perf_counter()

        async def send_sequentially(first: int) -> None:
            index = first
            while perf_counter() < started + seconds:
                await statistics.send(url, payloads[index % len(payloads)])
                index += 1

        await asyncio.gather(*(send_sequentially(10 * n) for n in range(2 * REPLICAS)))
        return statistics.n_adapted / (perf_counter() - started)

    return asyncio.run(measure())


def _overload(
    url: str, pid: int, payloads: list[bytes], rate: float, seconds: float
) -> Iterator[Measurement]:
    """Measure statuses, latency and memory while requests arrive at this rate per second."""
    statistics, memory = asyncio.run(_send_at_rate(url, pid, payloads, rate, seconds))
    n_answered, n_busy = statistics.statuses[200], statistics.statuses[503]
    n_others = statistics.statuses.total() - n_answered - n_busy
    counts = f"{n_answered} answered, {statistics.n_adapted} of them adapted, {n_busy} rejected with 503"
    detail = f"{rate:.1f} requests/s for {seconds:g} s: {counts}"
    yield Measurement("responses other than 200 and 503", n_others, 0, "", detail)
    p50, p99 = (1000 * statistics.percentile(share) for share in (0.5, 0.99))
    detail = f"p50 {p50:.0f} ms, p99 {p99:.0f} ms, deadline {DEADLINE_MS} ms"
    yield Measurement("p99 latency / deadline", p99 / DEADLINE_MS, LATENCY_BAR, "x", detail)
    quarter = max(1, len(memory) // 4)
    first, last = max(memory[:quarter]), max(memory[-quarter:])
    detail = f"{first / 2**10:.0f} MiB in the first quarter, {last / 2**10:.0f} MiB in the last"
    yield Measurement("memory growth", last / first - 1, GROWTH_BAR, "", detail)


async def _send_at_rate(
    url: str, pid: int, payloads: list[bytes], rate: float, seconds: float
) -> tuple[Statistics, list[int]]:
    """Send requests at even intervals, without waiting for responses; also return KiB of memory over time."""
    statistics, memory, tasks = Statistics(), list[int](), set[asyncio.Task[None]]()
    started = perf_counter()
    for index in range(int(rate * seconds)):
        await asyncio.sleep(max(0.0, started + index / rate - perf_counter()))
        tasks.add(asyncio.create_task(statistics.send(url, payloads[index % len(payloads)])))
        if index % max(1, int(rate)) == 0:
            memory.append(_resident_kib(pid))
    await asyncio.gather(*tasks)
    return statistics, memory


def _resident_kib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))


def _bad_requests(url: str) -> Iterator[Measurement]:
    """Send bad requests one after the other, without those that are slow on purpose; then a valid one."""
    slowest, slowest_kind, not_rejected = 0.0, "", Counter[str]()
    for seed in range(N_BAD):
        kind, bad = bad_request(seed, BAD_LIMITS)
        if bad.pause:
            continue
        started = perf_counter()
        reply = asyncio.run(exchange(url, *bad.pieces))
        seconds = perf_counter() - started
        if not 400 <= reply.status < 500:
            not_rejected[f"{kind}: {reply.status}"] += 1
        if seconds > slowest:
            slowest, slowest_kind = seconds, kind
    detail = ", ".join(not_rejected) or f"{N_BAD} requests of many kinds"
    yield Measurement("bad requests without a 4xx response", not_rejected.total(), 0, "", detail)
    yield Measurement("slowest rejection", slowest, REJECTION_BAR, "s", slowest_kind)
    reply = asyncio.run(exchange(url, predict_request(_images()[0])))
    metrics = asyncio.run(exchange(url, request("/metrics", method="GET"))).body.decode()
    counted = re.search(r"^memo_replicas_replaced_total (\S+)", metrics, re.MULTILINE)
    n_replaced = float(counted.group(1)) if counted else float("nan")
    detail = f"status of a valid request afterwards: {reply.status}"
    yield Measurement("replicas replaced because their weights changed", n_replaced, 0, "", detail)


@click.command()
@click.option(
    "--seconds",
    default=60.0,
    show_default=True,
    help="Duration of the overload; the whole test takes about twice as long.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per measurement.")
@click.option("--bare", "is_bare", is_flag=True, hidden=True)
@click.pass_context
def main(ctx: click.Context, seconds: float, as_json: bool, is_bare: bool) -> None:
    """Measure the service under load; exit with 1 if a measurement exceeds its bar."""
    if is_bare:
        predict_bare()
        return
    ctx.exit(show({"load": lambda: run(seconds)}, as_json))


if __name__ == "__main__":
    main()
