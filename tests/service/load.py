"""The service under load, on loopback: python -m tests.service.load [--seconds 60].

The client shares the machine with the service, so what it costs is the service's loss.
"""

import asyncio
import io
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

import click
from PIL import Image

from memo_tta.bench.measurement import Measurement
from memo_tta.bench.suite import show
from memo_tta.data.sample_images import load_sample
from tests.service.bad_requests import bad_request
from tests.service.http_client import exchange, predict_request, request

REPLICAS = 2
DEADLINE_MS = 2000
ROUNDS = 3  # of service and bare processes, taking turns
SHARE = 1 / 10  # of the duration of the overload: each turn of each
BAD, BODY_SECONDS = 96, 10.0
BARE_BAR, LATENCY_BAR, GROWTH_BAR, BAD_BAR = 1 / 0.9, 1.2, 0.05, 1.0


@dataclass
class Seen:
    """What a client saw of many requests."""

    statuses: Counter[int] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)  # of those that were answered
    adapted: int = 0

    async def send(self, url: str, payload: bytes) -> None:
        began = perf_counter()
        reply = await exchange(url, payload)
        self.statuses[reply.status] += 1
        if reply.status == 200:
            self.seconds.append(perf_counter() - began)
            self.adapted += reply.json["adapted"]

    def percentile(self, share: float) -> float:
        return sorted(self.seconds)[min(len(self.seconds) - 1, int(share * len(self.seconds)))]


def run(seconds: float) -> Iterator[Measurement]:
    payloads = [predict_request(image) for image in _images()]
    with _service() as (url, pid), _bare_processes() as bare:
        capacity, row = _throughput(url, bare, payloads, SHARE * seconds)
        yield row
        yield from _overload(url, pid, payloads, 2 * capacity, seconds)
        yield from _bad(url)


def _images() -> list[bytes]:
    files = []
    for sample in load_sample().take(range(0, 500, 5)):
        file = io.BytesIO()
        Image.fromarray(sample.image).save(file, "PNG")
        files.append(file.getvalue())
    return files


@contextmanager
def _service() -> Iterator[tuple[str, int]]:
    words = ["serve", "--port", "0", "--replicas", str(REPLICAS), "--deadline-ms", str(DEADLINE_MS)]
    process = subprocess.Popen([sys.executable, "-m", "memo_tta", *words], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        found = re.search(r"http://\S+:\d+", line)
        if found is None:
            raise click.ClickException(f"the service does not start: {line}{process.stderr.read()}")
        asyncio.run(_ready(found.group()))
        yield found.group(), process.pid
    finally:
        process.terminate()
        _, said = process.communicate()
    if process.returncode != 0:
        raise click.ClickException(f"the service ended with code {process.returncode}: {said}")


async def _ready(url: str) -> None:
    while (await exchange(url, request("/readyz", method="GET"))).status != 200:
        await asyncio.sleep(0.2)


@contextmanager
def _bare_processes() -> Iterator[list[subprocess.Popen[str]]]:
    """As many as the service has replicas, with as many threads: warm, and waiting for their turn."""
    threads = max(1, (os.cpu_count() or 1) // REPLICAS)
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, "-m", "tests.service.load", "--bare"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": environment}
    processes = [subprocess.Popen(command, **pipes) for _ in range(REPLICAS)]
    try:
        for process in processes:
            _line(process)
        yield processes
    finally:
        for process in processes:
            process.communicate()


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def bare() -> None:
    """Predictions without a service: for each number of seconds on stdin, how many per second."""
    import memo_tta as mt

    robust = mt.Memo(mt.load("resnet26"))
    images = [sample.image for sample in load_sample().take(range(0, 500, 5))]
    robust.predict(images[0])
    click.echo("ready")
    for line in sys.stdin:
        done, began = 0, perf_counter()
        while perf_counter() - began < float(line):
            robust.predict(images[done % len(images)])
            done += 1
        click.echo(done / (perf_counter() - began))


def _throughput(
    url: str, bare: Sequence[subprocess.Popen[str]], payloads: list[bytes], seconds: float
) -> tuple[float, Measurement]:
    """What the service can do a second, and how that compares with two processes that do nothing else."""
    served, alone = [], []
    for _ in range(ROUNDS):
        served.append(_capacity(url, payloads, seconds))
        for process in bare:
            assert process.stdin is not None
            process.stdin.write(f"{seconds}\n")
            process.stdin.flush()
        alone.append(sum(float(_line(process)) for process in bare))
    ratios = sorted(b / max(s, 1e-9) for s, b in zip(served, alone, strict=True))
    rates = f"{sum(served) / ROUNDS:.1f} / {sum(alone) / ROUNDS:.1f} predictions/s"
    detail = f"ResNet-26, B = 32, median of {ROUNDS} turns: {rates}"
    row = Measurement(
        "two bare processes / service with 2 replicas", ratios[ROUNDS // 2], BARE_BAR, "x", detail
    )
    return sum(served) / ROUNDS, row


def _capacity(url: str, payloads: list[bytes], seconds: float) -> float:
    """Predictions per second with every replica always at work."""

    async def measure() -> float:
        seen, end, began = Seen(), perf_counter() + seconds, perf_counter()

        async def one_after_another(first: int) -> None:
            index = first
            while perf_counter() < end:
                await seen.send(url, payloads[index % len(payloads)])
                index += 1

        await asyncio.gather(*(one_after_another(10 * n) for n in range(2 * REPLICAS)))
        return seen.adapted / (perf_counter() - began)

    return asyncio.run(measure())


def _overload(
    url: str, pid: int, payloads: list[bytes], rate: float, seconds: float
) -> Iterator[Measurement]:
    seen, memory = asyncio.run(_at_rate(url, pid, payloads, rate, seconds))
    accepted, refused = seen.statuses[200], seen.statuses[503]
    others = sum(seen.statuses.values()) - accepted - refused
    counts = f"{accepted} answered, {seen.adapted} of them adapted, {refused} refused with 503"
    yield Measurement(
        "neither an answer nor 503", others, 0, "", f"{rate:.1f} requests/s for {seconds:g} s: {counts}"
    )
    p99 = seen.percentile(0.99)
    detail = f"p50 {1000 * seen.percentile(0.5):.0f} ms, p99 {1000 * p99:.0f} ms, deadline {DEADLINE_MS} ms"
    yield Measurement("p99 of the answers / deadline", 1000 * p99 / DEADLINE_MS, LATENCY_BAR, "x", detail)
    quarter = max(1, len(memory) // 4)
    warm, end = max(memory[:quarter]), max(memory[-quarter:])
    detail = f"{warm / 2**10:.0f} MiB in the first quarter, {end / 2**10:.0f} MiB in the last"
    yield Measurement("growth of memory", end / warm - 1, GROWTH_BAR, "", detail)


async def _at_rate(
    url: str, pid: int, payloads: list[bytes], rate: float, seconds: float
) -> tuple[Seen, list[int]]:
    """Requests at even intervals, whether the earlier ones are answered or not; KiB in use meanwhile."""
    seen, memory, tasks, began = Seen(), list[int](), set[asyncio.Task[None]](), perf_counter()
    for index in range(int(rate * seconds)):
        await asyncio.sleep(max(0.0, began + index / rate - perf_counter()))
        tasks.add(asyncio.create_task(seen.send(url, payloads[index % len(payloads)])))
        if index % max(1, int(rate)) == 0:
            memory.append(_resident_kib(pid))
    await asyncio.gather(*tasks)
    return seen, memory


def _resident_kib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))


def _bad(url: str) -> Iterator[Measurement]:
    """Bad requests one after the other; those that are slow or leave on purpose are tested elsewhere."""
    slowest, kind, others = 0.0, "", Counter[str]()
    for seed in range(BAD):
        bad = bad_request(seed, 10 * 2**20, BODY_SECONDS)
        if bad.pause:
            continue
        began = perf_counter()
        reply = asyncio.run(exchange(url, *bad.pieces))
        if not 400 <= reply.status < 500:
            others[f"{bad.kind}: {reply.status}"] += 1
        if perf_counter() - began > slowest:
            slowest, kind = perf_counter() - began, bad.kind
    detail = ", ".join(others) or f"of {BAD} of many kinds"
    yield Measurement("bad requests that got no 4xx", others.total(), 0, "", detail)
    yield Measurement("the slowest refusal", slowest, BAD_BAR, "s", kind)
    reply = asyncio.run(exchange(url, predict_request(_images()[0])))
    text = asyncio.run(exchange(url, request("/metrics", method="GET"))).body.decode()
    found = re.search(r"^memo_replicas_replaced_total (\S+)", text, re.MULTILINE)
    replaced = float(found.group(1)) if found else float("nan")
    good = f"a good request afterwards: {reply.status}"
    yield Measurement("replicas whose weights had to be replaced", replaced, 0, "", good)


@click.command()
@click.option(
    "--seconds", default=60.0, show_default=True, help="Of the overload; all takes about twice that."
)
@click.option("--json", "as_json", is_flag=True)
@click.option("--bare", "is_bare", is_flag=True, hidden=True)
@click.pass_context
def main(ctx: click.Context, seconds: float, as_json: bool, is_bare: bool) -> None:
    """The exit code is 1 if a bar is missed."""
    if is_bare:
        bare()
        return
    ctx.exit(show({"load": lambda: run(seconds)}, as_json))


if __name__ == "__main__":
    main()
