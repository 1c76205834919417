"""`memo serve`: its options, its start and its shutdown."""

import asyncio
import io
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from PIL import Image

from memo_tta.service import server
from tests.service.http_client import exchange, predict_request, request
from tests.service.live import TIMEOUT, image_file


@pytest.fixture
def settings(monkeypatch, memo, weights):
    """A function that runs the command without serving; it returns the settings, the address and stderr."""
    started = []
    monkeypatch.setattr(
        server, "run", lambda served, listener: started.append((served.settings, listener.getsockname()))
    )

    def run(*arguments):
        started.clear()
        code, _, err = memo("serve", "--weights", weights, "--port", 0, *arguments)
        assert code == 0, err
        return *started[0], err

    return run


def test_it_listens_on_loopback_unless_told_otherwise(settings):
    chosen, (host, port), err = settings()
    assert host == "127.0.0.1" and f"http://127.0.0.1:{port}" in err and "warning" not in err
    assert (chosen.model, chosen.method, chosen.deadline_ms, chosen.token) == ("resnet26", "memo", 2000, None)
    _, (host, _), err = settings("--host", "0.0.0.0")
    assert host == "0.0.0.0" and "set MEMO_SERVE_TOKEN" in err
    assert "set MEMO_SERVE_TOKEN" not in settings("--host", "0.0.0.0", "--token", "t")[2]
    chosen, _, _ = settings("--host", "localhost", "--allowed-host", "memo", "--allowed-host", "memo.example")
    assert (chosen.host, chosen.allowed_hosts) == ("localhost", ("memo", "memo.example"))


def test_options_come_from_the_file_then_the_environment_then_the_command_line(
    settings, tmp_path, monkeypatch
):
    config = tmp_path / "memo.toml"
    config.write_text(
        "[serve]\nqueue = 3\ndeadline_ms = 700\nmax_views = 40\n[memo]\nlr = 0.02\nn_views = 8\n"
    )
    monkeypatch.setenv("MEMO_SERVE_DEADLINE_MS", "800")
    monkeypatch.setenv("MEMO_SERVE_TOKEN", "secret")
    chosen, _, _ = settings("--config", config, "--max-views", 50, "--option", "memo.n_views=16")
    assert (chosen.queue, chosen.deadline_ms, chosen.max_views, chosen.token) == (3, 800, 50, "secret")
    assert chosen.options["memo"] == {"lr": 0.02, "n_views": 16}


def test_what_cannot_work_is_said_in_one_line(memo, weights, tmp_path, monkeypatch):
    config = tmp_path / "memo.toml"
    config.write_text("[serve]\nqeue = 3\n")
    for arguments, message in (
        (["--config", config], "did you mean 'queue'?"),
        (["--method", "tent"], "tent: takes 64 images at once, but a request has one"),
        (["--model", "nothing"], "unknown model 'nothing'"),
        (["--token", "two words"], "token: expected ASCII"),
        (["--host", "no.such.host.invalid"], "cannot listen on this address"),
        (["--option", "n_views=500"], "lower n_views or raise max_views"),
    ):
        code, _, err = memo("serve", "--weights", weights, "--port", 0, *arguments)
        assert code == 1 and message in err and err.count("\n") == 1
    assert memo("serve", "--port", "70000")[0] == 2
    monkeypatch.setenv("MEMO_SERVE_TOKEN", "")
    code, _, err = memo("serve", "--weights", weights, "--port", 0)
    assert code == 2 and "MEMO_SERVE_TOKEN is empty: set it to a token, or unset it" in err
    monkeypatch.delenv("MEMO_SERVE_TOKEN")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, _, err = memo("serve", "--weights", weights, "--port", taken.getsockname()[1])
    assert code == 1 and "choose another --host or --port" in err


def test_a_model_that_cannot_predict_ends_the_service(memo, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "import torch, memo_tta as mt\n"
        "def build():\n"
        "    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(7, 2))\n"
        "    return mt.Classifier(module, size=8, mean=(0, 0, 0), std=(1, 1, 1))\n"
    )
    code, _, err = memo("serve", "--port", 0, "--model", f"{file}:build")
    assert code == 1 and "cannot predict an image of its input size" in err
    assert "shapes cannot be multiplied" in err and err.count("\n") == 1


def test_a_model_whose_answers_mean_nothing_is_not_served(memo, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "import torch, memo_tta as mt\n"
        "class Log(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        return x.flatten(1)[:, :2].mul(0).log().mul(0)\n"
        "def build():\n"
        "    return mt.Classifier(Log(), size=8, mean=(0, 0, 0), std=(1, 1, 1))\n"
    )
    code, _, err = memo("serve", "--port", 0, "--model", f"{file}:build", "--method", "tta")
    assert code == 1 and "its logits for a grey image are not finite" in err and err.count("\n") <= 2


STUCK_MODEL = """
import time, torch, memo_tta as mt

class Stuck(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(3 * 8 * 8, 2)

    def forward(self, x):
        if (x > 0.99).all():  # a white image
            time.sleep(3600)
        return self.head(x.flatten(1))

def build():
    return mt.Classifier(Stuck(), size=8, mean=(0, 0, 0), std=(1, 1, 1))
"""
IMPATIENT = """
import sys
from memo_tta.cli import main
from memo_tta.service import server
server.GRACE_SECONDS, server.STUCK_SECONDS = 0, 1
main(sys.argv[1:])
"""


def test_sigterm_ends_a_service_that_is_stuck(tmp_path):
    (tmp_path / "stuck.py").write_text(STUCK_MODEL)
    words = ["serve", "--port", "0", "--model", f"{tmp_path}/stuck.py:build", "--method", "source"]
    command = [sys.executable, "-c", IMPATIENT, *words, "--replicas", "1", "--deadline-ms", "100"]
    white = io.BytesIO()
    Image.new("RGB", (8, 8), (255, 255, 255)).save(white, "PNG")
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as stuck:
        try:
            assert stuck.stderr is not None
            address = re.search(r"http://(\S+):(\d+)", stuck.stderr.readline())
            assert address is not None
            asyncio.run(asyncio.wait_for(_wait_for_status(address.group(), "/readyz", 200), TIMEOUT))
            with socket.create_connection((address[1], int(address[2]))) as client:
                client.sendall(predict_request(white.getvalue()))
                asyncio.run(asyncio.wait_for(_wait_for_busy(address.group()), TIMEOUT))
                stuck.terminate()
                assert stuck.wait(TIMEOUT) == 1
        finally:
            stuck.kill()


async def _wait_for_busy(url: str) -> None:
    while b"memo_replicas_busy 1.0" not in (await exchange(url, request("/metrics", method="GET"))).body:
        await asyncio.sleep(0.05)


def test_other_commands_leave_the_table_alone(memo, weights, tmp_path):
    config, image = tmp_path / "memo.toml", tmp_path / "image.png"
    config.write_text("[serve]\nqueue = 3\n[memo]\nn_views = 2\n")
    image.write_bytes(image_file())
    assert memo("predict", image, "--model", "resnet26", "--weights", weights, "--config", config)[0] == 0


def test_without_the_extra_the_install_line_is_said(memo, monkeypatch):
    monkeypatch.delitem(sys.modules, "memo_tta.service.server")
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    code, _, err = memo("serve")
    assert code == 1 and "pip install 'memo-tta[serve]'" in err


def test_a_full_log_disk_stops_nothing(weights, tmp_path):
    """Everything that the service writes to stderr is lost; it serves all the same, and ends in order."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    command = [sys.executable, "-m", "memo_tta", "serve", "--weights", str(weights), "--replicas", "1"]
    url, damaged_exif = f"http://127.0.0.1:{port}", Image.Exif()
    damaged_exif[0x8769] = {0x9286: b"x" * 20}
    file = io.BytesIO()
    Image.new("RGB", (40, 40)).save(file, "JPEG", exif=damaged_exif.tobytes()[:30])
    with (
        Path("/dev/full").open("w") as full,
        subprocess.Popen([*command, "--port", str(port)], stderr=full) as server,
    ):
        try:
            asyncio.run(asyncio.wait_for(_wait_for_status(url, "/readyz", 200), TIMEOUT))
            for image in (image_file(), file.getvalue()):
                assert asyncio.run(exchange(url, predict_request(image))).status == 200
            server.terminate()
            assert server.wait(TIMEOUT) == 0
        finally:
            server.kill()


@pytest.fixture
def process(weights):
    """A process that runs the command, and its address."""
    command = [sys.executable, "-m", "memo_tta", "serve", "--port", "0", "--weights", str(weights)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MEMO_SERVE_DEADLINE_MS": "60000"}
    with subprocess.Popen(
        [*command, "--replicas", "1"], stderr=subprocess.PIPE, text=True, env=environment
    ) as started:
        try:
            assert started.stderr is not None
            address = re.search(r"http://\S+:\d+", started.stderr.readline())
            assert address is not None
            yield started, address.group()
        finally:
            started.kill()


def test_sigterm_finishes_what_was_accepted_and_takes_nothing_new(process):
    server, url = process
    replies = asyncio.run(asyncio.wait_for(_stop_while_busy(url, 1, server, signal.SIGTERM), 2 * TIMEOUT))
    assert [reply.status for reply in replies] == [200, 200]
    assert all(reply.json["adapted"] for reply in replies)
    assert server.wait(TIMEOUT) == 0 and server.stderr.read() == ""
    with pytest.raises(ConnectionRefusedError):
        asyncio.run(exchange(url, request("/healthz", method="GET")))


def test_a_second_interrupt_refuses_what_was_accepted(process):
    server, url = process
    interrupts = signal.SIGINT, signal.SIGINT
    replies = asyncio.run(asyncio.wait_for(_stop_while_busy(url, 4, server, *interrupts), 2 * TIMEOUT))
    rejected = [reply for reply in replies if reply.status != 200]
    assert rejected and {(reply.status, reply.json["error"]) for reply in rejected} == {(503, "stopping")}
    assert all(int(reply.headers["retry-after"]) > 0 for reply in rejected)
    assert server.wait(TIMEOUT) == 130 and server.stderr.read().split() == ["memo:", "interrupted"]


def test_sigterm_while_it_warms_up_ends_it_in_order(process):
    server, url = process
    asyncio.run(asyncio.wait_for(_wait_for_status(url, "/healthz", 200), TIMEOUT))
    server.send_signal(signal.SIGTERM)
    assert server.wait(TIMEOUT) == 0 and server.stderr.read() == ""


def test_damaged_images_do_not_fill_the_log(process):
    server, url = process
    asyncio.run(asyncio.wait_for(_wait_for_status(url, "/readyz", 200), TIMEOUT))
    for number in range(3):
        file = io.BytesIO()
        exif = b"Exif\0\0MM\0*\0\0\0\x08\xff" + bytes([number])
        Image.new("RGB", (40, 40)).save(file, "JPEG", exif=exif)
        with pytest.warns(UserWarning, match="Corrupt EXIF data"):
            Image.open(file).getexif()
        assert asyncio.run(exchange(url, predict_request(file.getvalue()))).status == 200
        assert asyncio.run(exchange(url, predict_request(file.getvalue()[:-30]))).status == 422
    server.terminate()
    assert server.wait(TIMEOUT) == 0 and server.stderr.read() == ""


async def _wait_for_status(url: str, path: str, expected: int) -> None:
    while True:
        with suppress(ConnectionRefusedError):
            if (await exchange(url, request(path, method="GET"))).status == expected:
                return
        await asyncio.sleep(0.1)


async def _stop_while_busy(url: str, waiting: int, process: subprocess.Popen[str], *signals: signal.Signals):
    """Send the signals while one request runs and others wait; return the replies."""
    await _wait_for_status(url, "/readyz", 200)
    requests = [predict_request(image_file(n), n_views=128) for n in range(1 + waiting)]
    replies = [asyncio.create_task(exchange(url, each)) for each in requests]
    depth = f"memo_queue_depth {waiting:.1f}\n".encode()
    while depth not in (await exchange(url, request("/metrics", method="GET"))).body:
        await asyncio.sleep(0.01)
    for each in signals:
        process.send_signal(each)
        await asyncio.sleep(0.05)  # two pending signals of the same kind count as one
    return await asyncio.gather(*replies)
