"""A service without memory for a request refuses it, and goes on."""

import asyncio
import resource
from collections import Counter
from pathlib import Path

from tests.service.bad_requests import transparent_bomb
from tests.service.http_client import Reply, exchange, predict_request
from tests.service.live import image_file
from tests.service.serve_process import ServeProcess, serve_process

ROOM = 16 * 2**20  # bytes of address space beyond what the service has: less than a large image takes


def limit_memory(service: ServeProcess) -> None:
    status = Path(f"/proc/{service.process.pid}/status").read_text()
    size = next(int(row.split()[1]) for row in status.splitlines() if row.startswith("VmSize"))
    resource.prlimit(service.process.pid, resource.RLIMIT_AS, (1024 * size + ROOM, resource.RLIM_INFINITY))


def test_requests_for_which_there_is_no_memory_hurt_no_others(weights):
    large, small = predict_request(transparent_bomb(9000, 9000)), predict_request(image_file(), n_views=4)

    async def send_all(url: str) -> list[Reply]:
        return await asyncio.gather(*(exchange(url, payload) for payload in 3 * [large, small]))

    deadline = {"MEMO_SERVE_DEADLINE_MS": "60000", "OMP_NUM_THREADS": "1"}
    with serve_process("--weights", weights, "--max-megapixels", 90, **deadline) as service:
        expected = service.send(small).json["score"]
        limit_memory(service)
        errors = Counter[str]()
        for _ in range(5):
            for reply in asyncio.run(send_all(service.url)):
                assert reply.status in (200, 503)
                errors[reply.json.get("error", "none")] += 1
        assert errors["no_memory"] and not errors["damaged_image"] and errors["none"] >= 15
        assert service.send(small).json["score"] == expected
        assert service.metric("memo_replicas_replaced_total") == 0
