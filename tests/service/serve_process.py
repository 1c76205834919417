"""`memo serve` in a process of its own, and what can be seen of it from outside."""

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.service.http_client import Reply, exchange, request


@dataclass(frozen=True)
class ServeProcess:
    """The address and the process of a service."""

    url: str
    process: subprocess.Popen[str]

    def send(self, *pieces: bytes, disconnects: bool = False) -> Reply:
        return asyncio.run(exchange(self.url, *pieces, disconnects=disconnects))

    def get(self, path: str) -> Reply:
        return self.send(request(path, method="GET"))

    @property
    def memory(self) -> int:
        """Bytes of the process in memory."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return 1024 * next(int(row.split()[1]) for row in status.splitlines() if row.startswith("VmRSS"))

    @property
    def open_files(self) -> int:
        return sum(1 for _ in Path(f"/proc/{self.process.pid}/fd").iterdir())

    def metric(self, name: str) -> float:
        """Return the value of a metric without labels."""
        text = self.get("/metrics").body.decode()
        found = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
        return float(found.group(1)) if found else float("nan")


@contextmanager
def serve_process(*arguments: object, **variables: str) -> Generator[ServeProcess]:
    """Run the command until the block ends, and wait until the service is ready."""
    command = [sys.executable, "-m", "memo_tta", "serve", "--port", "0", *map(str, arguments)]
    environment = {**os.environ, **variables}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        try:
            line = process.stderr.readline()
            address = re.search(r"http://\S+:\d+", line)
            if address is None:
                raise RuntimeError(f"the service does not start: {line}{process.stderr.read()}")
            service = ServeProcess(address.group(), process)
            asyncio.run(_wait_until_ready(service.url))
            yield service
        finally:
            process.terminate()
            _, errors = process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"the service ended with code {process.returncode}: {errors}")


async def _wait_until_ready(url: str) -> None:
    while (await exchange(url, request("/readyz", method="GET"))).status != 200:
        await asyncio.sleep(0.2)
