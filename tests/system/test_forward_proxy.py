"""Sites behind a forward proxy that resolves the coordinator's name for them, cuts connections and caps bodies."""

from __future__ import annotations

import hashlib
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.proxies import NAME, Proxy, certificate, squid, tinyproxy, tls_front
from tests.system.runs import PATIENCE_S, Run, check_the_record, write_run

from crosstrain.clock import SystemClock, pause
from crosstrain.domain.ids import Digest
from crosstrain.wire.transfer import BlobClient

pytestmark = pytest.mark.system

CUTS = ("client_lifetime 3 seconds", "request_body_max_size 600 KB")
SLOW = ("delay_pools 1", "delay_class 1 1", "delay_parameters 1 2000000/2000000", "delay_access 1 allow all")
"""Two megabytes a second for all downloads together, so that a connection's life is over before a blob is."""
NAMES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy")


def use_proxy(monkeypatch: pytest.MonkeyPatch, proxy: Proxy) -> None:
    """As a job script does; what is started from here on inherits it."""
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTP_PROXY", proxy.url)
    monkeypatch.setenv("HTTPS_PROXY", proxy.url)


@pytest.fixture(scope="module")
def served(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """One run for all; every test brings a site of its own."""
    files = write_run(tmp_path_factory.mktemp("proxied"), corpus, sites=("forward", "tunnel", "tiny"))
    with Run(files) as run:
        yield run


def train(run: Run, name: str, *words: str) -> None:
    """One whole session of a site: it adopts, trains, contributes, and sees the generation made of that."""
    run.fleet.start_site(name, *words)
    run.until(lambda status: any(site.name == name and site.merged_blocks > 0 for site in status.sites))
    run.fleet.send(name, signal.SIGTERM)
    assert run.code_of(name) == 0, run.log(name)


def test_a_site_trains_through_a_proxy_that_cuts_connections_and_caps_bodies(
    served: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = served.files.config.coordinator.port
    with squid(*CUTS) as proxy:
        use_proxy(monkeypatch, proxy)
        train(served, "forward", "--url", f"http://{NAME}:{port}")
        log = proxy.access_log
    assert f"POST http://{NAME}:{port}/v1/sessions" in log
    assert f"GET http://{NAME}:{port}/v1/blobs/" in log
    assert f"PUT http://{NAME}:{port}/v1/blobs/" in log


def test_a_site_trains_through_tunnels_to_a_coordinator_with_tls(
    served: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pem, key = certificate(tmp_path)
    with tls_front(served.files.config.coordinator.port, pem, key) as port, squid(*CUTS) as proxy:
        use_proxy(monkeypatch, proxy)
        monkeypatch.setenv("SSL_CERT_FILE", str(pem))
        train(served, "tunnel", "--url", f"https://{NAME}:{port}")
        log = proxy.access_log
    assert f"CONNECT {NAME}:{port}" in log
    assert "http://" not in log


def test_a_site_trains_through_tinyproxy(served: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with tinyproxy("Timeout 3") as proxy:
        use_proxy(monkeypatch, proxy)
        train(served, "tiny")
        log = proxy.access_log
    assert "/v1/blobs/" in log


def moved_both_ways(run: Run, directory: Path, size: int, host: str = NAME) -> bool:
    """Whether a blob of so many bytes comes to the coordinator and back as it was."""
    data = random.Random(5).randbytes(size)
    digest = Digest(hashlib.sha256(data).hexdigest())
    source, target = directory / "source", directory / "target"
    source.write_bytes(data)
    url = f"http://{host}:{run.files.config.coordinator.port}"
    client = BlobClient(url, SystemClock(), random.Random(1).random, pause)
    try:
        client.upload(source, digest, PATIENCE_S, lambda *_: None)
        client.download(digest, target, PATIENCE_S, lambda *_: None)
    finally:
        client.close()
    return target.read_bytes() == data


def test_a_blob_larger_than_any_body_or_connection_passes_both_ways(
    served: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with squid(*CUTS, *SLOW) as proxy:
        use_proxy(monkeypatch, proxy)
        assert moved_both_ways(served, tmp_path, 16 << 20)
        log = proxy.access_log
    assert "/413 " in log, "no body was refused: the cap did not act"


def test_a_blob_of_several_parts_passes_a_proxy_that_closes_every_connection_without_saying_so(
    served: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tinyproxy() as proxy:
        use_proxy(monkeypatch, proxy)
        assert moved_both_ways(served, tmp_path, 12 << 20, "127.0.0.1")


def test_nothing_was_lost_on_any_of_these_ways(served: Run) -> None:
    trained = tuple(site.name for site in (served.until(lambda _: True)).sites)
    check_the_record(served.files, trained)
