"""Deltas go from sites straight into the object store: cut, refused, restarted, corrupted, and by the other way if they must."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from starlette.responses import Response
from tests import s3 as s3_server
from tests.fakes import ManualClock, World, corpus_manifest, run_config, sha256
from tests.http_serving import Answer, Request, Spoiled, serving
from tests.proxies import tinyproxy
from tests.store_front import Front, Fronted, fronting, is_signed

from crosstrain.domain.byte_ranges import Span
from crosstrain.domain.parts import PartRule
from crosstrain.domain.timeouts import COLLECT_S, GRACE_S, STORE_PATIENCE_S
from crosstrain.errors import Refused, Unreachable
from crosstrain.storage import s3_incoming
from crosstrain.storage.database import open_sqlite
from crosstrain.storage.s3_bucket import Place, S3Bucket
from crosstrain.wire.crew import Crew, InTurn, Threads
from crosstrain.wire.transfer import BlobClient

DATA = bytes(range(251)) * 16
DIGEST = sha256(DATA)
PART = 500
PARTS = -(-len(DATA) // PART)
RULE = PartRule(least=100, usual=PART)


class Bucket(S3Bucket):
    """A bucket whose reads a test can hold up."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.readable = threading.Event()
        self.readable.set()

    def read(self, key: str, span: Span | None = None) -> Iterator[bytes]:
        assert self.readable.wait(60)
        yield from super().read(key, span)


class Bench:
    """A coordinator whose blobs are in a bucket, lines to both that a test can spoil, and a site's client."""

    def __init__(self, directory: Path, place: Place, front: Front) -> None:
        self.directory, self.front = directory, front
        self.bucket = Bucket(place)
        self.clock = ManualClock()
        config = run_config(coordinator={"keep_generations": 2})
        self.world = World(directory, self.clock, config, corpus_manifest(39), open_sqlite(None), self.opened())
        self.line = Spoiled(self.world.app)
        self.seen: list[tuple[int, int]] = []
        self.url = ""

    def opened(self) -> Fronted:
        """The coordinator's store as after a start."""
        store = Fronted(self.bucket, self.directory / "objects", 1 << 30, RULE)
        store.front = (self.bucket._place.endpoint, self.front.url)
        return store

    def restart(self) -> None:
        self.world.service.objects = self.opened()

    def client(self, crew: Crew | None = None) -> BlobClient:
        return BlobClient(self.url, self.clock, lambda: 0.5, self.clock.wait, crew=crew or InTurn())

    def upload(self, data: bytes = DATA, deadline_s: float = 1000.0, crew: Crew | None = None) -> None:
        path = self.directory / "source"
        path.write_bytes(data)
        self.client(crew).upload(path, DIGEST, deadline_s, lambda done, total: self.seen.append((done, total)))

    @property
    def puts(self) -> list[int]:
        """Numbers of the parts that were put into the store."""
        queries = [httpx.QueryParams(request.query) for request in self.front.line.requests if request.method == "PUT"]
        return [int(query["partNumber"]) for query in queries]

    @property
    def through(self) -> int:
        """Bytes that went through the coordinator."""
        return sum(request.body for request in self.line.of("PUT"))

    @property
    def stored(self) -> bytes:
        return self.world.service.objects.path(DIGEST).read_bytes()

    @property
    def keys(self) -> list[str]:
        return [key for key, _ in self.bucket.listed()]


@pytest.fixture
def bench(fast_tmp: Path, s3: s3_server.Server) -> Iterator[Bench]:
    with fronting(s3.url) as front:
        made = Bench(fast_tmp, s3.place(), front)
        with serving(made.line) as made.url:
            yield made
        made.world.database.close()


def once(status: int, *parts: int) -> Callable[[Request], Answer]:
    """An answer of the store to some parts, the first time that they come."""
    left = list(parts)

    def instead(request: Request) -> Answer:
        number = int(httpx.QueryParams(request.query)["partNumber"])
        if number not in left:
            return None
        left.remove(number)
        return Response("<Error><Code>AccessDenied</Code></Error>", status)

    return instead


@pytest.mark.parametrize("crew", [InTurn(), Threads()])
def test_bytes_pass_the_coordinator_by_and_nothing_of_its_credentials_reaches_the_store(
    bench: Bench, crew: Crew
) -> None:
    bench.url = bench.url.replace("://", "://north:secret@")
    bench.upload(crew=crew)
    assert sorted(bench.puts) == list(range(1, PARTS + 1))
    assert (bench.through, bench.stored) == (0, DATA)
    assert bench.keys == [f"{DIGEST[:2]}/{DIGEST}"]
    assert bench.seen[-1] == (len(DATA), len(DATA))
    assert [done for done, _ in bench.seen] == sorted(done for done, _ in bench.seen)
    assert all("authorization" in request.headers for request in bench.line.requests)
    assert not any("authorization" in request.headers for request in bench.front.line.requests)
    bench.upload()
    assert len(bench.puts) == PARTS


def test_what_arrives_at_the_store_is_what_the_coordinator_signed(fast_tmp: Path, s3: s3_server.Server) -> None:
    with fronting(s3.url) as front:
        front.known = True
        bench = Bench(fast_tmp, replace(s3.place(), endpoint=front.url), front)
        with serving(bench.line) as bench.url:
            bench.upload()
            bench.client().download(DIGEST, fast_tmp / "blob", 100.0, lambda *_: None)
        signed = [request for request in front.line.requests if "X-Amz-Signature=" in request.query]
        bench.world.database.close()
    assert [request.method for request in signed] == ["PUT"] * PARTS + ["GET"]
    assert all(is_signed(request, s3_server.CREDENTIALS["AWS_SECRET_ACCESS_KEY"]) for request in signed)
    assert not any(is_signed(request, "another") for request in signed)


@pytest.mark.parametrize("restarted", ["site", "coordinator"])
@pytest.mark.parametrize("cut_at", [1, 4, PARTS])
def test_interrupted_upload_goes_on_with_the_rest(bench: Bench, cut_at: int, restarted: str) -> None:
    bench.front.line.cut_request = lambda request: 10 if f"partNumber={cut_at}&" in request.query else None
    with pytest.raises(Unreachable, match="upload was not done within 10 s"):
        bench.upload(deadline_s=10.0)
    assert set(bench.puts) == set(range(1, cut_at + 1))
    bench.front.line.reset()
    if restarted == "coordinator":
        bench.restart()
    bench.upload()
    assert bench.puts == list(range(cut_at, PARTS + 1))
    assert (bench.through, bench.stored) == (0, DATA)


def test_part_that_is_cut_is_sent_again_and_no_other(bench: Bench) -> None:
    cuts = [0, 499, 250]
    bench.front.line.cut_request = lambda request: cuts.pop() if cuts and "partNumber=3&" in request.query else None
    bench.upload()
    assert bench.puts == [1, 2, 3, 3, 3, 3, *range(4, PARTS + 1)]
    assert bench.stored == DATA


def test_address_that_is_too_old_is_asked_for_again(bench: Bench) -> None:
    bench.front.line.instead = once(403, 2, 5, 5)
    bench.upload()
    assert sorted(set(bench.puts)) == list(range(1, PARTS + 1))
    assert (len(bench.puts), bench.through, bench.stored) == (PARTS + 3, 0, DATA)


def test_store_that_is_busy_is_waited_for(bench: Bench) -> None:
    bench.front.line.instead = once(503, 1, 1, 1, 1, 7)
    bench.upload()
    assert (len(bench.puts), bench.through, bench.stored) == (PARTS + 5, 0, DATA)


@pytest.mark.parametrize("crew", [InTurn(), Threads()])
def test_site_that_cannot_reach_the_store_sends_through_the_coordinator(
    bench: Bench, crew: Crew, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    bench.front.line.cut_request = lambda _request: 0
    started = bench.clock.perf()
    bench.upload(crew=crew)
    assert (bench.through, bench.stored) == (len(DATA), DATA)
    assert bench.clock.perf() - started >= STORE_PATIENCE_S
    assert "the object store is out of reach" in caplog.text
    assert "through the coordinator" in caplog.text
    assert "was put into the bucket" in caplog.text
    bench.world.objects.sweep()
    assert bench.bucket.uploads("") == []


def test_store_that_refuses_every_address_is_passed_by(bench: Bench) -> None:
    bench.front.line.instead = lambda _request: Response(status_code=403)
    bench.upload()
    assert (len(bench.puts), bench.through, bench.stored) == (3, len(DATA), DATA)


def test_store_that_loses_what_it_took_is_passed_by(bench: Bench) -> None:
    def lose_parts(request: Request) -> None:
        if request.path.endswith("/complete"):
            for upload in bench.bucket.uploads(s3_incoming.key_of(DIGEST)):
                bench.bucket.abort(upload)

    bench.line.instead = lose_parts
    bench.upload()
    assert (len(bench.puts), bench.through, bench.stored) == (3 * PARTS, len(DATA), DATA)


def test_upload_that_began_through_the_coordinator_goes_on_there(bench: Bench) -> None:
    bench.world.objects.receive(DIGEST, 0, [DATA[:1000]], len(DATA))
    bench.upload()
    assert (bench.puts, bench.through, bench.stored) == ([], len(DATA) - 1000, DATA)


def test_small_blob_goes_through_the_coordinator(bench: Bench) -> None:
    path = bench.directory / "small"
    path.write_bytes(DATA[:99])
    bench.client().upload(path, sha256(DATA[:99]), 100.0, lambda *_: None)
    assert (bench.puts, bench.through) == ([], 99)


def test_file_that_is_not_its_digest_is_refused_with_what_was_found(bench: Bench) -> None:
    wrong = DATA[:-1] + b"?"
    with pytest.raises(Refused, match=f"{DIGEST}: expected bytes of that SHA-256, found {sha256(wrong)}") as caught:
        bench.upload(wrong)
    assert caught.value.kind == "integrity"
    assert len(bench.puts) == PARTS
    assert bench.keys == []
    bench.upload()
    assert bench.stored == DATA


def test_bytes_that_changed_on_the_way_are_sent_again(bench: Bench) -> None:
    (bench.directory / "damaged").write_bytes(bytes(len(DATA)))
    bench.bucket.put(s3_incoming.key_of(DIGEST), bench.directory / "damaged")
    bench.upload()
    assert (len(bench.puts), bench.through, bench.stored) == (PARTS, 0, DATA)


def test_more_parts_than_one_answer_names_are_asked_for_in_turn(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_incoming, "SIGNED_AT_ONCE", 3)
    bench.upload()
    assert (bench.puts, bench.stored) == (list(range(1, PARTS + 1)), DATA)
    assert [done for done, _ in bench.seen] == sorted(done for done, _ in bench.seen)


def test_verification_that_takes_long_holds_nobody_up(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crosstrain.coordinator.blobs.COMPLETE_WAIT_S", 0.05)
    bench.bucket.readable.clear()
    answered = threading.Event()

    def watch(request: Request) -> Answer:
        if request.path.endswith("/complete"):
            (answered if answered.is_set() else told).set()
        return None

    told = threading.Event()
    bench.line.instead = watch
    sending = threading.Thread(target=bench.upload)
    sending.start()
    assert told.wait(60)
    answer = httpx.get(f"{bench.url}/v1/blobs/{DIGEST}/received").json()
    assert (answer["whole"], bench.world.service.objects.has(DIGEST)) == (False, False)
    complete = f"{bench.url}/v1/blobs/{DIGEST}/complete?total={len(DATA)}"
    for _ in range(3):
        assert httpx.post(complete).json()["ranges"] == [[0, len(DATA)]]  # all there, and not yet whole
    bench.bucket.readable.set()
    sending.join(60)
    assert not sending.is_alive()
    assert bench.stored == DATA
    assert httpx.post(complete).json()["whole"] is True


def test_upload_whose_verification_was_killed_is_verified_without_a_byte(bench: Bench) -> None:
    bench.line.instead = lambda request: Response(status_code=503) if request.path.endswith("/complete") else None
    with pytest.raises(Unreachable):
        bench.upload(deadline_s=10.0)
    bench.front.line.reset()
    bench.line.reset()
    bench.restart()
    bench.upload()
    assert (bench.puts, bench.through, bench.stored) == ([], 0, DATA)


def test_uploads_that_stand_still_are_removed_after_their_grace(bench: Bench) -> None:
    left = bench.world.objects.parts_left(DIGEST, len(DATA))
    assert left is not None
    httpx.put(left.missing[0].address, content=DATA[:PART])
    (bench.directory / "came").write_bytes(DATA[:700])
    other = sha256(DATA[:700])
    bench.bucket.put(s3_incoming.key_of(other), bench.directory / "came")
    bench.world.step(1000)
    for _ in range(round(GRACE_S / COLLECT_S)):
        bench.world.step(1000 * COLLECT_S)
    assert [upload.key for upload in bench.bucket.uploads("")] == [s3_incoming.key_of(DIGEST)]
    assert bench.keys == [s3_incoming.key_of(other)]
    bench.world.step(1000 * COLLECT_S)
    assert (bench.keys, bench.bucket.uploads("")) == ([], [])


def test_bytes_take_the_sites_proxy(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    with tinyproxy() as proxy:
        for name in ("HTTP_PROXY", "http_proxy"):
            monkeypatch.setenv(name, proxy.url)
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        bench.upload()
        port = bench.front.url.rpartition(":")[2]
        assert proxy.access_log.count(f"PUT http://127.0.0.1:{port}/") == PARTS
    assert (bench.through, bench.stored) == (0, DATA)
