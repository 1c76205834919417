"""`memo serve` as an operator starts, configures and ends it."""

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys

import pytest

from memo_tta.service import server
from tests.service.http_client import exchange, predict_request, request
from tests.service.live import PATIENCE, png


@pytest.fixture
def settings(monkeypatch, memo, weights):
    """Run the command up to the moment it would serve: its settings and its address."""
    found = []
    monkeypatch.setattr(
        server, "run", lambda served, listener: found.append((served.settings, listener.getsockname()))
    )

    def run(*words):
        found.clear()
        code, _, err = memo("serve", "--weights", weights, "--port", 0, *words)
        assert code == 0, err
        (chosen, address), said = found[0], err
        return chosen, address, said

    return run


def test_it_listens_on_loopback_unless_told_otherwise(settings):
    chosen, (host, port), said = settings()
    assert host == "127.0.0.1" and f"http://127.0.0.1:{port}" in said and "warning" not in said
    assert (chosen.model, chosen.method, chosen.deadline_ms, chosen.token) == ("resnet26", "memo", 2000, None)
    _, (host, _), said = settings("--host", "0.0.0.0")
    assert host == "0.0.0.0" and "set MEMO_SERVE_TOKEN" in said
    assert "set MEMO_SERVE_TOKEN" not in settings("--host", "0.0.0.0", "--token", "t")[2]


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


def test_what_cannot_work_is_said_in_one_line(memo, weights, tmp_path):
    config = tmp_path / "memo.toml"
    config.write_text("[serve]\nqeue = 3\n")
    for words, message in (
        (["--config", config], "did you mean 'queue'?"),
        (["--method", "tent"], "tent: needs more than the one point of a request"),
        (["--model", "nothing"], "unknown model 'nothing'"),
        (["--token", "two words"], "token: expected ASCII"),
        (["--host", "no.such.host.invalid"], "cannot listen there"),
        (["--option", "n_views=500"], "raise the limit"),
    ):
        code, _, err = memo("serve", "--weights", weights, "--port", 0, *words)
        assert code == 1 and message in err and err.count("\n") == 1
    assert memo("serve", "--port", "70000")[0] == 2
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
    assert code == 1 and "shapes cannot be multiplied" in err
    assert err.count("\n") == 2, "where it serves, and why it does not"


def test_other_commands_leave_the_table_alone(memo, weights, tmp_path):
    config, image = tmp_path / "memo.toml", tmp_path / "image.png"
    config.write_text("[serve]\nqueue = 3\n[memo]\nn_views = 2\n")
    image.write_bytes(png())
    assert memo("predict", image, "--model", "resnet26", "--weights", weights, "--config", config)[0] == 0


def test_without_the_extra_the_install_line_is_said(memo, monkeypatch):
    monkeypatch.delitem(sys.modules, "memo_tta.service.server")
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    code, _, err = memo("serve")
    assert code == 1 and "pip install 'memo-tta[serve]'" in err


@pytest.fixture
def process(weights):
    """The command as a process of its own, and its address."""
    words = [sys.executable, "-m", "memo_tta", "serve", "--port", "0", "--weights", str(weights)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MEMO_SERVE_DEADLINE_MS": "60000"}
    with subprocess.Popen(
        [*words, "--replicas", "1"], stderr=subprocess.PIPE, text=True, env=environment
    ) as started:
        try:
            assert started.stderr is not None
            yield started, re.search(r"http://\S+:\d+", started.stderr.readline()).group()
        finally:
            started.kill()


def test_sigterm_finishes_what_was_accepted_and_takes_nothing_new(process):
    server, url = process
    replies = asyncio.run(asyncio.wait_for(_end_while_working(url, 1, server, signal.SIGTERM), 2 * PATIENCE))
    assert [reply.status for reply in replies] == [200, 200]
    assert all(reply.json["adapted"] for reply in replies)
    assert server.wait(PATIENCE) == 0 and server.stderr.read() == ""
    with pytest.raises(ConnectionRefusedError):
        asyncio.run(exchange(url, request("/healthz", method="GET")))


def test_a_second_interrupt_refuses_what_was_accepted(process):
    server, url = process
    interrupts = signal.SIGINT, signal.SIGINT
    replies = asyncio.run(asyncio.wait_for(_end_while_working(url, 4, server, *interrupts), 2 * PATIENCE))
    refused = [reply for reply in replies if reply.status != 200]
    assert refused and {(reply.status, reply.json["error"]) for reply in refused} == {(503, "stopping")}
    assert all(int(reply.headers["retry-after"]) > 0 for reply in refused)
    assert server.wait(PATIENCE) == 130 and server.stderr.read().split() == ["memo:", "interrupted"]


def test_sigterm_while_it_warms_up_ends_it_in_order(process):
    server, url = process
    asyncio.run(asyncio.wait_for(_status(url, "/healthz", 200), PATIENCE))
    server.send_signal(signal.SIGTERM)
    assert server.wait(PATIENCE) == 0 and server.stderr.read() == ""


async def _status(url: str, path: str, expected: int) -> None:
    while (await exchange(url, request(path, method="GET"))).status != expected:
        await asyncio.sleep(0.1)


async def _end_while_working(
    url: str, waiting: int, process: subprocess.Popen[str], *signals: signal.Signals
):
    """One request that runs and some that wait when the signals come."""
    await _status(url, "/readyz", 200)
    asks = [predict_request(png(n), n_views=128) for n in range(1 + waiting)]
    works = [asyncio.create_task(exchange(url, ask)) for ask in asks]
    depth = f"memo_queue_depth {waiting:.1f}\n".encode()
    while depth not in (await exchange(url, request("/metrics", method="GET"))).body:
        await asyncio.sleep(0.01)
    for each in signals:
        process.send_signal(each)
        await asyncio.sleep(0.05)  # two that come together count once
    return await asyncio.gather(*works)
