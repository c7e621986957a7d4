"""Weights come to sites straight from the object store, at addresses that the coordinator signs; a whole run on a bucket."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from starlette.responses import Response
from tests import s3 as s3_server
from tests.fakes import ManualClock, World, corpus_manifest, run_config, sha256
from tests.http_serving import Answer, Request, Spoiled, serving
from tests.store_front import Front, Fronted, fronting

from crosstrain.domain.timeouts import COLLECT_S, GRACE_S, STORE_AVOIDED_S, STORE_PATIENCE_S
from crosstrain.storage.database import open_sqlite
from crosstrain.storage.s3_bucket import S3Bucket
from crosstrain.storage.s3_incoming import counted_key
from crosstrain.storage.s3_object_store import S3ObjectStore
from crosstrain.wire.crew import InTurn
from crosstrain.wire.reach import REFUSALS
from crosstrain.wire.transfer import BlobClient

DATA = bytes(range(251)) * 400
DIGEST = sha256(DATA)


@pytest.fixture
def world(fast_tmp: Path, s3: s3_server.Server) -> Iterator[World]:
    """A coordinator whose blobs are in a bucket; its directory holds next to nothing."""
    objects = S3ObjectStore(S3Bucket(s3.place()), fast_tmp / "objects", limit=0)
    config = run_config(coordinator={"keep_generations": 2})
    made = World(fast_tmp, ManualClock(), config, corpus_manifest(39), open_sqlite(None), objects)
    yield made
    made.database.close()


def client(url: str) -> BlobClient:
    clock = ManualClock()
    return BlobClient(url, clock, lambda: 0.5, clock.wait, crew=InTurn())


def nothing(_done: int, _total: int) -> None:
    return


def test_small_blob_comes_through_the_coordinator_and_leaves_past_it(world: World, fast_tmp: Path) -> None:
    (fast_tmp / "delta").write_bytes(DATA)
    line = Spoiled(world.app)
    with serving(line) as url:
        client(url).upload(fast_tmp / "delta", DIGEST, 100, nothing)
        client(url).upload(fast_tmp / "delta", DIGEST, 100, nothing)
        assert sum(request.body for request in line.of("PUT")) == len(DATA)
        client(url).download(DIGEST, fast_tmp / "blob", 100, nothing)
        direct = httpx.get(f"{url}/v1/blobs/{DIGEST}", headers={"range": "bytes=5-9"})
    assert (fast_tmp / "blob").read_bytes() == DATA
    assert direct.content == DATA[5:10]  # whoever does not follow addresses is served all the same
    assert len(line.of("GET")) == 1


@pytest.fixture
def fronted(world: World, s3: s3_server.Server) -> Iterator[tuple[World, Front]]:
    """The same, with a front before the store that a test can spoil."""
    with fronting(s3.url) as front:
        before = world.objects
        assert isinstance(before, S3ObjectStore)
        store = Fronted(before.bucket, before.directory, 1 << 30)
        store.front = (s3.url, front.url)
        world.service.objects = store
        yield world, front


def test_address_that_is_too_old_is_asked_for_again(fronted: tuple[World, Front], fast_tmp: Path) -> None:
    world, front = fronted
    world.put(DATA)
    answers = [403, 403]

    def expired(_request: Request) -> Answer:
        return Response(status_code=answers.pop()) if answers else None

    front.line.instead = expired
    line = Spoiled(world.app)
    with serving(line) as url:
        client(url).download(DIGEST, fast_tmp / "blob", 100, nothing)
    assert (fast_tmp / "blob").read_bytes() == DATA
    assert len(front.line.requests) == 3
    assert line.of("GET") == []


def test_store_that_refuses_every_address_is_passed_by(fronted: tuple[World, Front], fast_tmp: Path) -> None:
    world, front = fronted
    world.put(DATA)
    front.line.instead = lambda _request: Response(status_code=403)
    line = Spoiled(world.app)
    with serving(line) as url:
        client(url).download(DIGEST, fast_tmp / "blob", 100, nothing)
    assert (fast_tmp / "blob").read_bytes() == DATA
    assert len(front.line.requests) == REFUSALS
    assert line.sent == len(DATA)


def test_store_out_of_reach_is_passed_by_for_an_hour(
    fronted: tuple[World, Front], fast_tmp: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world, front = fronted
    world.put(DATA)
    front.line.cut_answer = lambda _request: 0
    clock = ManualClock()
    started = clock.perf()
    with serving(world.app) as url:
        blobs = BlobClient(url, clock, lambda: 0.5, clock.wait, crew=InTurn())
        for number in range(2):
            blobs.download(DIGEST, fast_tmp / f"blob {number}", 1000, nothing)
            assert (fast_tmp / f"blob {number}").read_bytes() == DATA
            assert STORE_PATIENCE_S <= clock.perf() - started < 2 * STORE_PATIENCE_S  # the second one loses no time
        assert "the object store is out of reach" in caplog.text
        front.line.reset()
        clock.wait(STORE_AVOIDED_S)
        blobs.download(DIGEST, fast_tmp / "blob", 1000, nothing)
    assert (fast_tmp / "blob").read_bytes() == DATA
    assert len(front.line.requests) == 1


def test_download_that_is_cut_goes_on(fronted: tuple[World, Front], fast_tmp: Path) -> None:
    world, front = fronted
    world.put(DATA)
    cuts = [10, 1000, 50_000]
    front.line.cut_answer = lambda _request: cuts.pop() if cuts else None
    with serving(world.app) as url:
        client(url).download(DIGEST, fast_tmp / "blob", 1000, nothing)
    assert (fast_tmp / "blob").read_bytes() == DATA
    starts = [int(request.headers["range"].partition("=")[2].partition("-")[0]) for request in front.line.requests]
    assert starts == [0, 50_000, 51_000, 51_010]


def test_blob_that_somebody_replaced_in_the_bucket_comes_from_the_coordinators_copy(
    fronted: tuple[World, Front], fast_tmp: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world, front = fronted
    world.put(DATA)
    (fast_tmp / "other").write_bytes(DATA[::-1])
    store = world.objects
    assert isinstance(store, S3ObjectStore)
    store.bucket.put(counted_key(DIGEST), fast_tmp / "other")
    with serving(world.app) as url:
        client(url).download(DIGEST, fast_tmp / "blob", 1000, nothing)
    assert (fast_tmp / "blob").read_bytes() == DATA
    assert len(front.line.requests) == 1
    assert f"blob {DIGEST[:12]} came with another digest" in caplog.text


def test_a_run_on_a_bucket_merges_retains_and_replays(world: World) -> None:
    (alpha,) = world.begin("alpha")
    for number in range(3):
        alpha.work()
        alpha.contribute(0.1 + number / 10, blocks=1)
        world.step(1000)
        alpha.holds = number + 1
    found = world.audit()
    assert (found.problems, found.replayed) == ((), 3)
    for _ in range(2 + round(GRACE_S / COLLECT_S)):
        world.step(1000 * COLLECT_S)
    found = world.audit()
    assert (found.problems, found.replayed, found.not_replayable) == ((), 1, 2)
    assert len(list(world.objects.digests())) == 2 * 3 + 1
