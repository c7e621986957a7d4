"""A store that is slow keeps blobs waiting, and nothing else: neither the control requests nor each other's."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.fakes import World, build_world, sha256, sqlite_file, weights

from crosstrain.domain.byte_ranges import ByteRanges
from crosstrain.domain.ids import Digest
from crosstrain.storage.object_store import LocalObjectStore

DATA = b"weights of a generation"
NAME = sha256(DATA)
ASKED = 48
"""Three sites with sixteen connections each; the application has threads for forty requests at once."""
PATIENCE_S = 10.0


class Slow(LocalObjectStore):
    """As a bucket that must be asked, or has to be read first, and does not answer before the gate is open."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._here = LocalObjectStore(directory)
        self.gate, self.fetches, self.fetching = threading.Event(), 0, threading.Event()
        self.gated, self.name = "", NAME

    def ready(self, digest: Digest) -> Path | None:
        return (
            None if self.gated == "path" and digest == self.name and not self.gate.is_set() else super().ready(digest)
        )

    def path(self, digest: Digest) -> Path:
        if digest == self.name:
            self.fetches += 1
        self._wait("path", digest)
        return super().path(digest)

    def has(self, digest: Digest) -> bool:
        self._wait("has", digest)
        return self._here.has(digest)

    def size(self, digest: Digest) -> int:
        return self._here.size(digest)

    def held(self, digest: Digest) -> ByteRanges:
        self._wait("held", digest)
        return self._here.held(digest)

    def complete(self, digest: Digest, total: int) -> None:
        self._wait("complete", digest)
        super().complete(digest, total)

    def _wait(self, what: str, digest: Digest) -> None:
        if what == self.gated and digest == self.name:
            self.fetching.set()
            assert self.gate.wait(6 * PATIENCE_S)


@pytest.fixture
def world(fast_tmp: Path) -> Iterator[World]:
    """On a database that several threads read at once."""
    with sqlite_file(fast_tmp / "run.sqlite") as database:
        yield build_world(fast_tmp, database=database)


@pytest.fixture
def slow(world: World) -> Iterator[Slow]:
    store = Slow(world.directory / "objects")
    world.objects = store
    world.restart()
    yield store
    store.gate.set()


@pytest.fixture
def clients() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(ASKED + 8) as threads:
        yield threads


def many(clients: ThreadPoolExecutor, world: World, path: str) -> list[Future[httpx.Response]]:
    return [clients.submit(world.http.get, f"blobs/{NAME}{path}") for _ in range(ASKED)]


def soon(clients: ThreadPoolExecutor, world: World, method: str, path: str, **rest: Any) -> httpx.Response:
    """The answer to a request that must not wait for the store."""
    return clients.submit(world.http.request, method, path, **rest).result(PATIENCE_S)


@pytest.mark.parametrize(("gated", "path"), [("path", ""), ("has", ""), ("has", "/received"), ("held", "/received")])
def test_waiting_blobs_keep_no_control_request_waiting(
    world: World, slow: Slow, clients: ThreadPoolExecutor, gated: str, path: str
) -> None:
    world.put(DATA)
    alpha = world.site("alpha")
    slow.gated = gated
    waiting = many(clients, world, path)
    try:
        assert slow.fetching.wait(PATIENCE_S)
        assert soon(clients, world, "GET", "status").status_code == 200
        assert soon(clients, world, "POST", "sessions", json=alpha.registration()).status_code == 200
        assert not any(future.done() for future in waiting)
    finally:
        slow.gate.set()
    answers = [future.result(PATIENCE_S) for future in waiting]
    assert {answer.status_code for answer in answers} == {200}
    if not path:
        assert {answer.content for answer in answers} == {DATA}


def test_deltas_that_wait_to_be_read_keep_no_control_request_waiting(
    world: World, slow: Slow, clients: ThreadPoolExecutor
) -> None:
    alpha, beta = world.begin("alpha", "beta")
    alpha.work()
    assert alpha.lease is not None
    slow.name = world.put_delta(weights(0.5))
    claim, path = alpha.claim(slow.name), f"leases/{alpha.lease['token']}/contribution"
    slow.gated = "path"
    # It loses patience, and asks again and again.
    waiting = [clients.submit(world.http.post, path, json=claim) for _ in range(ASKED)]
    try:
        assert slow.fetching.wait(PATIENCE_S)
        assert soon(clients, world, "GET", "status").status_code == 200
        assert soon(clients, world, "POST", "sessions", json=beta.registration()).status_code == 200
        assert not any(future.done() for future in waiting)
    finally:
        slow.gate.set()
    assert all(future.result(PATIENCE_S).json()["accepted"] for future in waiting)
    world.step(1000)
    assert world.audit().problems == ()


def test_blob_that_is_fetched_from_afar_is_fetched_once_and_keeps_no_other_blob_waiting(
    world: World, slow: Slow, clients: ThreadPoolExecutor
) -> None:
    world.put(DATA)
    other = world.put(b"another")
    slow.gated = "path"
    waiting = many(clients, world, "")
    try:
        assert slow.fetching.wait(PATIENCE_S)
        assert soon(clients, world, "GET", f"blobs/{other}").content == b"another"
        assert soon(clients, world, "GET", f"blobs/{NAME}/received").json()["whole"]
        head = soon(clients, world, "HEAD", f"blobs/{NAME}")
        assert head.headers["content-length"] == str(len(DATA))
    finally:
        slow.gate.set()
    assert {future.result(PATIENCE_S).content for future in waiting} == {DATA}
    assert slow.fetches == 1


class Afar(Slow):
    """Where a blob counts only when it was brought somewhere else."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.brought = False
        self.gated = "complete"

    def has(self, digest: Digest) -> bool:
        return super().has(digest) and (digest != NAME or self.brought)

    def complete(self, digest: Digest, total: int) -> None:
        super().complete(digest, total)
        self.brought = True


def test_upload_that_is_brought_into_a_bucket_keeps_no_other_blob_waiting_however_often_it_is_finished(
    world: World, clients: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crosstrain.coordinator.blobs.COMPLETE_WAIT_S", 0.05)
    world.service.objects = store = Afar(world.directory / "objects")
    where = {"offset": 0, "total": len(DATA)}
    try:
        finishing = [clients.submit(world.http.put, f"blobs/{NAME}", params=where, content=DATA) for _ in range(ASKED)]
        answers = [future.result(PATIENCE_S).json() for future in finishing]
        assert {(answer["received"], answer["whole"]) for answer in answers} == {(len(DATA), False)}
        other = sha256(b"another")
        put = soon(clients, world, "PUT", f"blobs/{other}", params={"offset": 0, "total": 7}, content=b"another")
        assert put.json()["whole"]
    finally:
        store.gate.set()
    monkeypatch.setattr("crosstrain.coordinator.blobs.COMPLETE_WAIT_S", PATIENCE_S)
    again = world.http.put(f"blobs/{NAME}", params={"offset": len(DATA), "total": len(DATA)})
    assert again.json()["whole"]
