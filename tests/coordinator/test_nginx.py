"""A real nginx with TLS in front of the real server: what it serves itself, what it passes on, and whole transfers."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.fakes import ManualClock, World, build_world, sha256
from tests.http_serving import Spoiled, serving
from tests.proxies import certificate, program

from crosstrain.batch.command import run, spawn
from crosstrain.clock import SystemClock, pause
from crosstrain.coordinator.nginx import Front, nginx_configuration
from crosstrain.demo.prepare import free_port
from crosstrain.errors import Refused, Unreachable, UsageError
from crosstrain.wire.transfer import BlobClient

PATIENCE_S = 20.0
DATA = bytes(range(256)) * 4096
DIGEST = sha256(DATA)


class Fronted:
    """A coordinator, its nginx, and how sites reach it."""

    def __init__(self, world: World, app: Spoiled, url: str, trust: Path) -> None:
        self.world, self.app, self.url, self.trust = world, app, url, trust
        self.http = httpx.Client(base_url=f"{url}/v1/", verify=ssl.create_default_context(cafile=trust))

    def blobs(self) -> BlobClient:
        clock = SystemClock()
        return BlobClient(self.url, clock, lambda: 0.5, pause)


@pytest.fixture
def fronted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fronted]:
    binary, port = program("nginx"), free_port()
    for path in (tmp_path, *tmp_path.parents):
        if path.owner() == tmp_path.owner() and path != Path("/"):
            path.chmod(path.stat().st_mode | 0o011)  # root's nginx becomes another user
    world = build_world(tmp_path)
    app = Spoiled(world.app)
    paths = certificate(tmp_path)
    with serving(app) as backend:
        front = Front(
            "demo",
            f"127.0.0.1:{port}",
            "127.0.0.1",
            *paths,
            backend.removeprefix("http://"),
            tmp_path / "objects",
            tmp_path / "passwords",
        )
        (tmp_path / "passwords").write_text("north:{PLAIN}much@simple\n")
        (tmp_path / "nginx.conf").write_text(
            f"daemon off; pid {tmp_path}/nginx.pid; error_log {tmp_path}/error.log; worker_processes 1;\n"
            f"events {{}}\nhttp {{\n access_log off; client_body_temp_path {tmp_path}/body; proxy_temp_path {tmp_path}/proxy;\n"
            f" fastcgi_temp_path {tmp_path}/f; uwsgi_temp_path {tmp_path}/u; scgi_temp_path {tmp_path}/s;\n"
            f" include {tmp_path}/front.conf;\n}}\n"
        )
        (tmp_path / "front.conf").write_text(nginx_configuration(front))
        monkeypatch.setenv("SSL_CERT_FILE", str(paths[0]))
        made = Fronted(world, app, f"https://north:much%40simple@127.0.0.1:{port}", paths[0])
        child = spawn([binary, "-c", str(tmp_path / "nginx.conf"), "-e", "stderr"], log=tmp_path / "output.log")
        try:
            _await(made, tmp_path)
            app.reset()
            yield made
        finally:
            made.http.close()
            child.kill_group()
    world.database.close()


def _await(front: Fronted, directory: Path) -> None:
    clock = SystemClock()
    deadline = clock.perf() + PATIENCE_S
    while True:
        try:
            assert front.http.get("status").status_code == 200
            return
        except httpx.TransportError:
            logs = "".join(path.read_text() for path in directory.glob("*.log"))
            assert clock.perf() < deadline, logs
            pause(0.05)


def test_whole_transfer_goes_through_with_verification_on(fronted: Fronted, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(DATA)
    blobs = fronted.blobs()
    blobs.upload(source, DIGEST, PATIENCE_S, lambda _done, _total: None)
    assert fronted.world.objects.path(DIGEST).read_bytes() == DATA
    blobs.download(DIGEST, target, PATIENCE_S, lambda _done, _total: None)
    assert target.read_bytes() == DATA
    assert fronted.app.of("GET") == []  # nginx served it


def test_nginx_serves_blobs_as_the_coordinator_would(fronted: Fronted) -> None:
    fronted.world.put(DATA)
    whole = fronted.http.get(f"blobs/{DIGEST}")
    assert (whole.status_code, whole.content) == (200, DATA)
    assert whole.headers["etag"] == f'"{DIGEST}"'
    assert whole.headers["content-type"] == "application/octet-stream"
    head = fronted.http.head(f"blobs/{DIGEST}")
    assert (head.status_code, head.headers["content-length"]) == (200, str(len(DATA)))
    part = fronted.http.get(f"blobs/{DIGEST}", headers={"range": "bytes=100-199"})
    assert (part.status_code, part.content) == (206, DATA[100:200])
    assert part.headers["content-range"] == f"bytes 100-199/{len(DATA)}"
    assert fronted.app.requests == []


def test_what_nginx_cannot_answer_the_coordinator_does(fronted: Fronted) -> None:
    missing = fronted.http.get(f"blobs/{'a' * 64}")
    assert (missing.status_code, missing.json()["kind"]) == (404, "missing-blob")
    fronted.world.put(DATA)
    behind = fronted.http.get(f"blobs/{DIGEST}", headers={"range": f"bytes={len(DATA)}-"})
    assert (behind.status_code, behind.json()["kind"]) == (416, "range-not-satisfiable")
    held = fronted.http.get(f"blobs/{DIGEST}/received").json()
    assert held["whole"]
    assert fronted.http.get("blobs/../../run.sqlite").status_code == 404


def test_uploads_on_their_way_are_not_served(fronted: Fronted) -> None:
    fronted.http.put(f"blobs/{DIGEST}?offset=0&total={len(DATA)}", content=DATA[:1000])
    for name in (f"{DIGEST}.part", f"uploads/{DIGEST}.part", DIGEST):
        assert fronted.http.get(f"blobs/{name}").status_code in (404, 422)


def test_part_that_is_cut_before_nginx_is_kept_as_far_as_it_came(fronted: Fronted, tmp_path: Path) -> None:
    def cut() -> Iterator[bytes]:
        yield DATA[: 1 << 19]
        while fronted.world.objects.held(DIGEST).length < 1 << 18:
            pause(0.01)
        raise ConnectionAbortedError

    with pytest.raises(ConnectionAbortedError):
        fronted.http.put(
            f"blobs/{DIGEST}?offset=0&total={len(DATA)}", content=cut(), headers={"content-length": str(len(DATA))}
        )
    source = tmp_path / "source"
    source.write_bytes(DATA)
    fronted.app.reset()
    fronted.blobs().upload(source, DIGEST, PATIENCE_S, lambda _done, _total: None)
    assert sum(request.body for request in fronted.app.requests) <= len(DATA) - (1 << 18)


def test_certificate_that_nobody_vouches_for_is_not_trusted(
    fronted: Fronted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    clock = ManualClock()
    blobs = BlobClient(fronted.url, clock, lambda: 0.5, clock.wait)
    with pytest.raises(Unreachable, match="CERTIFICATE_VERIFY_FAILED"):
        blobs.download(DIGEST, tmp_path / "target", 0.0, lambda _done, _total: None)


def test_who_gives_no_password_or_a_wrong_one_is_sent_away(fronted: Fronted, tmp_path: Path) -> None:
    for url in (fronted.url.replace("north:much%40simple@", ""), fronted.url.replace("much", "not")):
        blobs = BlobClient(url, ManualClock(), lambda: 0.5, pause)
        with pytest.raises(Refused) as caught:
            blobs.download(DIGEST, tmp_path / "target", PATIENCE_S, lambda _done, _total: None)
        assert caught.value.status == 401


@pytest.mark.parametrize("name", ["a;b", "a b", "$host", "a{"])
def test_names_that_nginx_would_read_as_more_are_refused(name: str) -> None:
    front = Front("demo", "443", name, Path("/c"), Path("/k"), "127.0.0.1:8470", Path("/o"))
    with pytest.raises(UsageError, match="Expected a name without"):
        nginx_configuration(front)


def test_command_prints_a_configuration_that_nginx_takes(tmp_path: Path) -> None:
    assert os.access(program("nginx"), os.X_OK)
    paths = certificate(tmp_path)
    front = Front("demo", "8443", "c.example.org", *paths, "127.0.0.1:8470", tmp_path / "objects")
    (tmp_path / "front.conf").write_text(nginx_configuration(front))
    (tmp_path / "nginx.conf").write_text(f"pid {tmp_path}/pid; events {{}} http {{ include {tmp_path}/front.conf; }}\n")
    found = run([program("nginx"), "-t", "-c", str(tmp_path / "nginx.conf"), "-e", "stderr"], timeout=PATIENCE_S)
    assert found.code == 0, found.stderr
