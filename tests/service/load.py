"""A load test of the service on loopback: `python -m tests.service.load [--seconds 60]`.

The client runs on the same machine, so its own cost lowers the measured throughput of the service.
"""

import asyncio
import io
import os
import resource
import subprocess
import sys
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from time import perf_counter

import click
from PIL import Image

from memo_tta.bench.measurement import Measurement
from memo_tta.bench.suite import show
from memo_tta.data.sample_images import load_sample
from tests.service.bad_requests import transparent_bomb
from tests.service.hostile_clients import attack
from tests.service.http_client import exchange, predict_request
from tests.service.serve_process import ServeProcess, serve_process

REPLICAS = 2
DEADLINE_MS = 2000
ROUNDS = 3  # of the throughput test, in which the service and the bare processes take turns
TURN_SHARE = 1 / 10  # of the overload's duration, for each turn
WARM_REQUESTS = 500  # hostile ones, before memory is measured
LARGE_IMAGES = 10
SLOW_CONNECTIONS, SLOW_SECONDS = 2000, 3  # between two bytes
THROUGHPUT_BAR, LATENCY_BAR, GROWTH_BAR, REFUSAL_BAR = 1 / 0.9, 1.2, 0.05, 1.0
HOSTILE_GROWTH_BAR, SLOW_BAR = 1.2, 1 / 0.8


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


def run(seconds: float, requests: int) -> Iterator[Measurement]:
    """Measure throughput, an overload of this many seconds, slow connections, and hostile requests."""
    payloads = [predict_request(image) for image in _images()]
    with serve_process("--replicas", REPLICAS, "--deadline-ms", DEADLINE_MS) as service:
        with _processes(["--bare"], REPLICAS) as bare:
            capacity, row = _throughput(service.url, bare, payloads, TURN_SHARE * seconds)
        yield row
        yield from _overload(service, payloads, 2 * capacity, seconds)
        yield _large_images(service.url)
        yield _slow_connections(service.url, payloads, TURN_SHARE * seconds)
        yield from _hostile_requests(service, requests)


def _images() -> list[bytes]:
    files: list[bytes] = []
    for sample in load_sample().take(range(0, 500, 5)):
        file = io.BytesIO()
        Image.fromarray(sample.image).save(file, "PNG")
        files.append(file.getvalue())
    return files


@contextmanager
def _processes(arguments: Sequence[str], count: int) -> Generator[list[subprocess.Popen[str]]]:
    """Start this module in processes with other arguments; wait for the first line of each."""
    threads = max(1, (os.cpu_count() or 1) // REPLICAS)
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, "-m", "tests.service.load", *arguments]
    processes = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(count)
    ]
    try:
        for process in processes:
            _read_line(process)
        yield processes
    finally:
        for process in processes:
            process.communicate()  # they end with their stdin


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
    service: ServeProcess, payloads: list[bytes], rate: float, seconds: float
) -> Iterator[Measurement]:
    """Measure statuses, latency and memory while requests arrive at this rate per second."""
    statistics, memory = asyncio.run(_send_at_rate(service, payloads, rate, seconds))
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
    detail = f"{first / 2**20:.0f} MiB in the first quarter, {last / 2**20:.0f} MiB in the last"
    yield Measurement("memory growth", last / first - 1, GROWTH_BAR, "", detail)


async def _send_at_rate(
    service: ServeProcess, payloads: list[bytes], rate: float, seconds: float
) -> tuple[Statistics, list[int]]:
    """Send requests at even intervals, without waiting for responses; also return the memory over time."""
    statistics, memory, tasks = Statistics(), list[int](), set[asyncio.Task[None]]()
    started = perf_counter()
    for index in range(int(rate * seconds)):
        await asyncio.sleep(max(0.0, started + index / rate - perf_counter()))
        tasks.add(asyncio.create_task(statistics.send(service.url, payloads[index % len(payloads)])))
        if index % max(1, int(rate)) == 0:
            memory.append(service.memory)
    await asyncio.gather(*tasks)
    return statistics, memory


def _large_images(url: str) -> Measurement:
    """Send images just below the pixel limit at once; return the slowest response of any kind."""
    payload = predict_request(transparent_bomb(4990, 4990))

    async def send() -> tuple[float, int]:
        started = perf_counter()
        reply = await exchange(url, payload)
        return perf_counter() - started, reply.status

    async def send_all() -> list[tuple[float, int]]:
        return await asyncio.gather(*(send() for _ in range(LARGE_IMAGES)))

    replies = asyncio.run(send_all())
    statuses = Counter(status for _, status in replies)
    detail = f"{LARGE_IMAGES} at once: " + ", ".join(f"{n} with {status}" for status, n in statuses.items())
    slowest = 1000 * max(seconds for seconds, _ in replies)
    return Measurement(
        "slowest answer to images of 25 megapixels / deadline",
        slowest / DEADLINE_MS,
        LATENCY_BAR,
        "x",
        detail,
    )


def _slow_connections(url: str, payloads: list[bytes], seconds: float) -> Measurement:
    """Compare the throughput without and with thousands of connections that never complete a request."""
    ratios: list[float] = []
    for _ in range(ROUNDS):
        alone = _capacity(url, payloads, seconds)
        with _processes(["--slow", url], 1):
            ratios.append(alone / max(_capacity(url, payloads, seconds), 1e-9))
    detail = f"{SLOW_CONNECTIONS:,} connections, a byte every {SLOW_SECONDS} s, median of {ROUNDS} turns"
    return Measurement(
        "throughput without / with slow connections", sorted(ratios)[ROUNDS // 2], SLOW_BAR, "x", detail
    )


def keep_slow_connections(url: str) -> None:
    """Keep connections that send headers or a body byte by byte, and open others in place of closed ones."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

    async def keep(number: int, is_open: asyncio.Semaphore) -> None:
        while True:
            with suppress(OSError):
                reader, writer = await asyncio.open_connection(*_host_and_port(url))
                writer.write(predict_request(bytes(9999))[: 3000 if number % 2 else 30])
                is_open.release()
                while not reader.at_eof() and not writer.is_closing():
                    await asyncio.sleep(SLOW_SECONDS)
                    writer.write(b"x")
                    await writer.drain()
            await asyncio.sleep(0.1)

    async def keep_all() -> None:
        is_open = asyncio.Semaphore(0)
        tasks = [asyncio.create_task(keep(number, is_open)) for number in range(SLOW_CONNECTIONS)]
        for _ in tasks:
            await is_open.acquire()
        click.echo("open")
        await asyncio.to_thread(sys.stdin.read)
        os._exit(0)

    asyncio.run(keep_all())


def _host_and_port(url: str) -> tuple[str, int]:
    host, _, port = url.removeprefix("http://").partition(":")
    return host, int(port)


def _hostile_requests(service: ServeProcess, requests: int) -> Iterator[Measurement]:
    damage = attack(service, requests, min(WARM_REQUESTS, requests // 2))
    unexpected = ", ".join(damage.unexpected) or f"{requests:,} requests of many kinds"
    yield Measurement(
        "hostile requests answered other than 4xx or 503", damage.unexpected.total(), 0, "", unexpected
    )
    yield Measurement("slowest refusal", damage.slowest[0], REFUSAL_BAR, "s", damage.slowest[1])
    first, last = damage.memory
    detail = f"{first / 2**20:.0f} MiB after {WARM_REQUESTS} requests, {last / 2**20:.0f} MiB at the end"
    yield Measurement("memory after hostile requests / before", last / first, HOSTILE_GROWTH_BAR, "x", detail)
    before, after = damage.open_files
    yield Measurement("open files left behind", after - before, 0, "", f"{before} before, {after} after")
    changed = damage.wrong_fingerprints + damage.replaced + (damage.answers[0] != damage.answers[1])
    detail = "fingerprints of replicas, replicas replaced, the answer to a valid request"
    yield Measurement("changes of weights and answers", changed, 0, "", detail)


@click.command()
@click.option(
    "--seconds",
    default=60.0,
    show_default=True,
    help="Duration of the overload; the whole test takes about twice as long.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per measurement.")
@click.option("--requests", default=2000, show_default=True, help="Number of hostile requests.")
@click.option("--bare", "is_bare", is_flag=True, hidden=True)
@click.option("--slow", "slow_url", hidden=True)
@click.pass_context
def main(
    ctx: click.Context, seconds: float, requests: int, as_json: bool, is_bare: bool, slow_url: str | None
) -> None:
    """Measure the service under load; exit with 1 if a measurement exceeds its bar."""
    if is_bare:
        predict_bare()
    elif slow_url is not None:
        keep_slow_connections(slow_url)
    else:
        ctx.exit(show({"load": lambda: run(seconds, requests)}, as_json))


if __name__ == "__main__":
    main()
