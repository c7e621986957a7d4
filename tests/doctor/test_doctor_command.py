"""`crosstrain doctor` before real servers: a coordinator, nothing, something else, proxies, a mailbox."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from tests import s3 as s3_server
from tests.fakes import ManualClock, World, build_world, corpus_manifest, run_config
from tests.proxies import certificate, squid, tinyproxy, tls_front
from typer.testing import CliRunner

from crosstrain.cli.main import app
from crosstrain.clock import pause
from crosstrain.config import CoordinatorSection
from crosstrain.demo.prepare import free_port
from crosstrain.doctor.probe_bucket import try_bucket
from crosstrain.doctor.probe_network import without_credentials
from crosstrain.errors import UsageError
from crosstrain.relay.opening import open_relay
from crosstrain.storage.database import open_sqlite
from crosstrain.storage.s3_bucket import Place, S3Bucket
from crosstrain.storage.s3_object_store import S3ObjectStore
from crosstrain.wire.listening import listen

PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def doctor(*words: str) -> tuple[int, dict[str, Any]]:
    """Exit code and document."""
    found = CliRunner().invoke(app, ["doctor", "--json", "--silence", "0", *words])
    assert found.stdout.startswith("{"), (found.stdout, found.exception)
    document: dict[str, Any] = json.loads(found.stdout)
    return found.exit_code, document


def levels(document: dict[str, Any]) -> dict[str, str]:
    return {finding["name"]: finding["level"] for finding in document["findings"]}


def sentence(document: dict[str, Any], name: str) -> str:
    return next(finding["sentence"] for finding in document["findings"] if finding["name"] == name)


@contextmanager
def served(world: World) -> Iterator[int]:
    """The world's real app on a real port."""
    transport: Any = world.http._transport
    listener = listen("127.0.0.1", 0)
    config = uvicorn.Config(transport._asgi.app, lifespan="off", log_config=None, access_log=False)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: server.run(sockets=[listener]), daemon=True)
    thread.start()
    try:
        yield int(listener.getsockname()[1])
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture
def coordinator(fast_tmp: Path) -> Iterator[tuple[World, int]]:
    world = build_world(fast_tmp)
    with served(world) as port:
        yield world, port
    world.database.close()


def test_a_coordinator_is_found_and_what_works_is_told(coordinator: tuple[World, int]) -> None:
    world, port = coordinator
    code, document = doctor("--url", f"http://127.0.0.1:{port}")
    assert (code, document["found"], document["way"]) == (0, True, "direct")
    assert document["run_file"] == ["[site]", f'url = "http://127.0.0.1:{port}"']
    found = levels(document)
    assert (found["direct"], found["request bodies"], found["byte ranges"]) == ("ok", "ok", "unknown")
    assert found["certificate"] == "ok"
    assert "run run, crosstrain" in sentence(document, "direct")
    assert "16 MiB pass" in sentence(document, "request bodies")
    # The world's clock stands still far in the future, and that is no reason to refuse it.
    assert found["clock"] == "warn"
    world.begin("north")
    _, again = doctor("--url", f"http://127.0.0.1:{port}")
    assert levels(again)["byte ranges"] == "ok"
    assert "honoured (bytes 0-" in sentence(again, "byte ranges")


def test_store_and_bucket_are_tried_from_here(
    fast_tmp: Path, s3: s3_server.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(s3_server.BUCKET, "doctor/", s3.url, "us-east-1")
    bucket = S3Bucket(place)
    objects = S3ObjectStore(bucket, fast_tmp / "objects", 1 << 30)
    world = World(fast_tmp, ManualClock(), run_config(), corpus_manifest(39), open_sqlite(None), objects)
    run_file = fast_tmp / "RUN.toml"
    with served(world) as port:
        run_file.write_text(
            f'[model]\nvocab_size = 1000\n[site]\nurl = "http://127.0.0.1:{port}"\n[coordinator]\n'
            f'objects = "s3://{s3_server.BUCKET}/doctor"\nobjects_endpoint = "{s3.url}"\nobjects_region = "us-east-1"\n'
        )
        _, document = doctor(str(run_file))
        assert (levels(document)["object store"], levels(document)["bucket"]) == ("unknown", "ok")
        assert list(bucket.listed()) == [] and bucket.uploads("") == []
        world.begin("north")
        for name in s3_server.CREDENTIALS:
            monkeypatch.delenv(name)
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
        _, document = doctor(str(run_file))
    assert (levels(document)["object store"], levels(document)["bucket"]) == ("ok", "unknown")
    assert f"{s3.url} gives them" in sentence(document, "object store")
    world.database.close()


def test_bucket_that_is_not_there_is_told(s3: s3_server.Server) -> None:
    section = CoordinatorSection(objects="s3://nowhere/x", objects_endpoint=s3.url, objects_region="us-east-1")
    assert "NoSuchBucket" in try_bucket(section).error


@pytest.mark.parametrize(("name", "told"), [("alpha", False), ("alhpa", True)])
def test_a_site_without_a_section_where_others_have_one_may_be_misspelt(tmp_path: Path, name: str, told: bool) -> None:
    run_file = tmp_path / "RUN.toml"
    run_file.write_text(f'[model]\nvocab_size = 1000\n[site]\nurl = "http://127.0.0.1:{free_port()}"\n[sites.alpha]\n')
    _, document = doctor(str(run_file), "--name", name)
    assert ("site" in levels(document)) is told
    if told:
        assert levels(document)["site"] == "warn"
        assert sentence(document, "site") == ("there is no [sites.alhpa], only sections for alpha: [site] alone counts")


def test_nothing_is_changed_at_the_coordinator(coordinator: tuple[World, int]) -> None:
    world, port = coordinator
    world.begin("north")
    before, blobs = world.dump(), sorted(world.directory.rglob("*"))
    doctor("--url", f"http://127.0.0.1:{port}")
    assert world.dump() == before
    assert sorted(world.directory.rglob("*")) == blobs


def test_nobody_there_is_told_and_is_exit_code_1() -> None:
    code, document = doctor("--url", f"http://127.0.0.1:{free_port()}")
    assert (code, document["found"], document["way"]) == (1, False, None)
    assert levels(document)["direct"] == "fail"
    assert "ConnectError" in sentence(document, "direct")


@pytest.mark.parametrize("url", ["", "foo", "ftp://host", "http://host:99999", "http://[::1", "http://host,north"])
def test_an_address_that_is_none_is_refused_before_anything_is_tried(url: str) -> None:
    found = CliRunner().invoke(app, ["doctor", "--json", "--url", url])
    assert isinstance(found.exception, UsageError) and found.stdout == ""
    assert "is not the address of a coordinator" in found.exception.message


class Other(BaseHTTPRequestHandler):
    """Says the same to everybody."""

    body = b"<html>Please log in</html>"

    def do_GET(self) -> None:
        body = self.body
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("body", [b"<html>Please log in</html>", b'{"kind": "Status", "status": "Failure"}'])
def test_another_service_is_not_taken_for_a_coordinator(body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Other, "body", body)
    with ThreadingHTTPServer(("127.0.0.1", 0), Other) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        code, document = doctor("--url", f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
    assert code == 1
    assert "HTTP 200, but no crosstrain coordinator answers there" in sentence(document, "direct")


def test_a_way_through_tinyproxy_is_found_and_its_tunnels_are_tried(
    coordinator: tuple[World, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, port = coordinator
    with tinyproxy() as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        code, document = doctor("--url", f"http://127.0.0.1:{port}")
    assert (code, document["way"]) == (0, "direct")
    assert document["shell"] == ["export NO_PROXY=127.0.0.1"]
    found = levels(document)
    assert (found["through the proxy"], found["CONNECT"]) == ("ok", "warn")
    assert "403" in sentence(document, "CONNECT")


def test_a_proxy_is_the_way_where_only_it_knows_the_name_and_its_limits_are_measured(
    coordinator: tuple[World, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, port = coordinator
    with squid("request_body_max_size 2 MB") as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        code, document = doctor("--url", f"http://coordinator.test:{port}")
    assert (code, document["way"]) == (0, "proxy")
    assert document["shell"] == [f"export HTTP_PROXY={proxy.url}"]
    found = levels(document)
    assert (found["name"], found["direct"], found["through the proxy"]) == ("warn", "fail", "ok")
    assert (found["CONNECT"], found["request bodies"]) == ("ok", "warn")
    assert sentence(document, "request bodies").startswith("1 MiB pass, 4 MiB do not")


def test_tls_is_looked_at_and_a_certificate_that_nobody_signed_is_refused(
    coordinator: tuple[World, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, port = coordinator
    pem, key = certificate(tmp_path, days=5)
    with tls_front(port, pem, key) as secure:
        refused, document = doctor("--url", f"https://127.0.0.1:{secure}")
        monkeypatch.setenv("SSL_CERT_FILE", str(pem))
        code, trusted = doctor("--url", f"https://127.0.0.1:{secure}")
    assert (refused, code) == (1, 0)
    assert "CERTIFICATE_VERIFY_FAILED" in sentence(document, "direct")
    assert levels(trusted)["certificate"] == "warn"
    assert sentence(trusted, "certificate") in ("valid, ends in 5 days", "valid, ends in 4 days")


def test_a_mailbox_without_a_relay_is_no_way(fast_tmp: Path) -> None:
    code, document = doctor("--url", f"mailbox:{fast_tmp / 'box'}")
    assert code == 1
    assert levels(document)["mailbox"] == "warn"
    assert "no relay was ever there" in sentence(document, "mailbox")
    (fast_tmp / "box").chmod(0o755)
    code, document = doctor("--url", f"mailbox:{fast_tmp / 'box'}")
    assert (code, levels(document)["mailbox"]) == (1, "fail")


def test_a_relay_that_lives_is_the_way_where_there_is_no_other(coordinator: tuple[World, int], fast_tmp: Path) -> None:
    _, port = coordinator
    directory, stopping = fast_tmp / "mailbox", threading.Event()
    relay = open_relay(directory, f"http://127.0.0.1:{port}")

    def serve() -> None:
        while not pause(relay.step(), stopping):
            pass

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    code, document = doctor("--url", f"http://127.0.0.1:{free_port()}", "--mailbox", str(directory))
    stopping.set()
    thread.join()
    assert (code, document["way"]) == (0, "relay")
    assert document["run_file"] == ["[site]", f'url = "mailbox:{directory}"']
    assert f"serves it, to http://127.0.0.1:{port}" in sentence(document, "mailbox")


def test_the_text_ends_with_the_way_and_the_table(coordinator: tuple[World, int], tmp_path: Path) -> None:
    _, port = coordinator
    run_file = tmp_path / "RUN.toml"
    run_file.write_text(f'[model]\nvocab_size = 1000\n\n[site]\nurl = "http://127.0.0.1:{port}"\n')
    found = CliRunner().invoke(app, ["doctor", str(run_file), "--silence", "0"])
    assert found.exit_code == 0, found.output
    lines = found.stdout.splitlines()
    assert lines[-1] == f'    url = "http://127.0.0.1:{port}"'
    for name in ("site.dir room", "coordinator.dir", "congestion control"):
        assert any(line[8:].startswith(name) for line in lines)
    assert any("cutoff of a round" in line and "[round.cutoff_s = 7200]" in line for line in lines)
    assert not (tmp_path / "sites").exists()


def test_without_an_address_it_says_what_it_needs() -> None:
    found = CliRunner().invoke(app, ["doctor"])
    assert str(found.exception).startswith("doctor needs to know the coordinator.")


def test_credentials_are_not_shown() -> None:
    assert without_credentials("https://user:secret@host:1/path@x") == "https://host:1/path@x"
    assert without_credentials("") == ""
