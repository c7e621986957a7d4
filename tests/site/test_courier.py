"""Finished work on its way to a coordinator that loses it, and what a site says meanwhile."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from starlette.responses import Response
from tests.fakes import (
    AppTransport,
    ManualClock,
    SiteDriver,
    World,
    build_world,
    delta_bytes,
    run_config,
    sha256,
    weights,
)
from tests.http_serving import Request, Spoiled, serving

from crosstrain.domain.ids import Digest, SessionId
from crosstrain.errors import Refused, Unreachable
from crosstrain.site.courier import Answered, Arrived, Beside, Courier, deliver, hand_over
from crosstrain.site.heartbeat import Board
from crosstrain.site.spool import Pending, Spool
from crosstrain.site.transfer_rate import with_rate
from crosstrain.storage.database import open_sqlite
from crosstrain.wire import messages
from crosstrain.wire.client import ControlClient
from crosstrain.wire.crew import InTurn
from crosstrain.wire.site_api import SiteApi
from crosstrain.wire.transfer import BlobClient

SPEC = "0" * 64


class Site:
    """A site that trained its first lease, and a way to the coordinator that a test can spoil.

    Attributes:
        losses: how often the coordinator loses the blob before it is told of it.
    """

    def __init__(self, directory: Path) -> None:
        config = run_config(round={"overlap": True})
        self.world: World = build_world(directory, config, database=open_sqlite(directory / "run.sqlite"))
        self.clock: ManualClock = self.world.clock
        self.line = Spoiled(self.world.app)
        self.losses = 0
        self.spool, self.board = Spool(directory / "spool", SPEC), Board()
        self.url = ""

    def train(self) -> SiteDriver:
        (driver,) = self.world.begin("alpha")
        driver.work()
        wire = self.world.config.wire
        self.spool.delta.write_bytes(delta_bytes(weights(0.5), self.spool.directory, wire.delta, wire.compress))
        return driver

    def pending(self, driver: SiteDriver) -> Pending:
        assert driver.lease is not None
        claim = driver.claim(sha256(self.spool.delta.read_bytes()))
        return Pending(token=driver.lease["token"], contribution=messages.ContributionRequest.model_validate(claim))

    def api(self) -> SiteApi:
        control = ControlClient("http://coordinator", self.clock, lambda: 0.5, self.clock.wait, _Losing(self))
        return SiteApi(control, 100.0)

    def blobs(self) -> BlobClient:
        return BlobClient(self.url, self.clock, lambda: 0.5, self.clock.wait, crew=InTurn())

    @property
    def sent(self) -> int:
        """How often the blob was sent."""
        return len(self.line.of("PUT"))


class _Losing(AppTransport):
    """To the coordinator's app, which loses what it is told of."""

    def __init__(self, site: Site) -> None:
        super().__init__(site.world.app)
        self._site = site

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        body = request.read().decode()
        if self._site.losses and request.url.path.endswith(("/contribution", "/initial")):
            self._site.losses -= 1
            for digest in [blob.digest for blob in self._site.world.objects.stored()]:
                if digest in body:
                    self._site.world.objects.delete(digest)
        return super().handle_request(request)


@pytest.fixture
def site(fast_tmp: Path) -> Iterator[Site]:
    made = Site(fast_tmp)
    with serving(made.line) as made.url:
        yield made
    made.world.database.close()


def silent(_done: int, _total: int) -> None:
    """Nobody looks."""


def test_delta_that_the_coordinator_lost_before_it_was_told_of_it_is_sent_again(site: Site) -> None:
    driver = site.train()
    site.losses = 1
    pending, session = site.pending(driver), SessionId(driver.session)
    answered = deliver(site.api(), site.blobs(), site.spool.delta, pending, session, silent)
    assert (answered.fate, site.sent) == ("accepted", 2)


def test_delta_that_is_lost_again_and_again_is_an_error_that_says_so(site: Site) -> None:
    driver = site.train()
    site.losses = 2
    with pytest.raises(Refused, match="is not here") as caught:
        deliver(site.api(), site.blobs(), site.spool.delta, site.pending(driver), SessionId(driver.session), silent)
    assert (caught.value.kind, site.sent) == ("missing-blob", 2)


def test_delta_that_always_arrives_damaged_is_an_error_and_no_judgement_of_the_work(site: Site) -> None:
    driver = site.train()
    pending, data = site.pending(driver), site.spool.delta.read_bytes()
    digest = Digest(pending.contribution.delta)

    def damage(request: Request) -> None:
        if request.path.endswith("/received"):
            site.world.objects.receive(digest, 0, [bytes(5)], len(data))

    site.line.instead = damage
    with pytest.raises(Refused) as caught:
        deliver(site.api(), site.blobs(), site.spool.delta, pending, SessionId(driver.session), silent)
    assert caught.value.kind == "integrity"
    site.line.reset()
    assert (
        deliver(site.api(), site.blobs(), site.spool.delta, pending, SessionId(driver.session), silent).fate
        == "accepted"
    )


def test_initial_weights_that_the_coordinator_lost_are_sent_again(site: Site, fast_tmp: Path) -> None:
    driver = site.world.site("alpha")
    assert driver.ask()["work"] == "initialise"
    first = site.world.put_weights(weights(1))
    (path := fast_tmp / "initial").write_bytes(site.world.objects.path(first).read_bytes())
    site.losses, api, session = 1, site.api(), SessionId(driver.session)
    request = messages.InitialRequest(weights=first)
    assert hand_over(api, site.blobs(), path, first, silent, lambda: api.initial(session, request)).accepted
    assert site.sent == 1


def test_what_takes_several_requests_and_transfers_has_one_deadline(site: Site) -> None:
    driver, api = site.train(), site.api()

    def slow_and_then_full(request: Request) -> Response | None:
        if request.method != "PUT":
            return None
        if site.sent > 1:
            return Response(status_code=507)
        site.clock.advance(70_000)
        return None

    site.line.instead, site.losses, started = slow_and_then_full, 1, site.clock.perf()
    with pytest.raises(Unreachable, match=r"not done within 30 s .HTTP 507"):
        deliver(api, site.blobs(), site.spool.delta, site.pending(driver), SessionId(driver.session), silent)
    assert site.clock.perf() - started == pytest.approx(100, abs=0.1)
    api.deadline_s = 20.0
    site.clock.advance(5000)
    assert api.deadline_s == pytest.approx(15)


def test_rate_and_time_left_of_what_is_carried_beside_the_training_are_told(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crosstrain.wire.transfer.PART_BYTES", 100)
    monkeypatch.setattr("crosstrain.wire.transfer.LEAST_BYTES", 100)
    driver, said = site.train(), list[str]()

    def slow(request: Request) -> None:
        said.append(site.board.beside)
        if request.path.count("/") == 3:
            site.clock.advance(2000)

    def merge(seconds: float) -> bool:
        site.world.step(1000 * seconds)
        return False

    site.line.instead = slow
    beside = Beside(site.api(), site.blobs(), lambda errand: errand(), merge)
    courier = Courier(beside, site.board, site.spool, site.clock)
    courier.carry(SessionId(driver.session), site.pending(driver))
    answered, arrived = courier.news(100.0), courier.news(100.0)
    assert isinstance(answered, Answered) and answered.fate == "accepted"
    assert isinstance(arrived, Arrived) and arrived.generation == 1
    sentence = re.compile(r"(upload|download) 0\.0 of 0\.0 MB, 0\.0 MB/s, [1-9]\d* s left")
    assert {match[1] for text in said if (match := sentence.fullmatch(text))} == {"upload", "download"}
    assert site.board.beside == ""


def test_rate_is_of_what_came_since_the_attempt_began() -> None:
    clock, said = ManualClock(), list[str]()
    show = with_rate(clock, lambda done, total, rate: said.append(f"{done} of {total}: {rate}"))
    show(0, 0)  # a mailbox learns the length late
    for passed_s, done in ((1, 40_000_000), (3, 70_000_000), (0, 0), (2, 10_000_000), (16, 100_000_000)):
        clock.advance(1000 * passed_s)
        show(done, 100_000_000)
    assert said == [
        "0 of 0: 0.0 MB/s",
        "40000000 of 100000000: 40.0 MB/s, 2 s left",
        "70000000 of 100000000: 17.5 MB/s, 2 s left",
        "0 of 100000000: 0.0 MB/s",
        "10000000 of 100000000: 5.0 MB/s, 18 s left",
        "100000000 of 100000000: 5.6 MB/s",
    ]


def test_what_an_earlier_attempt_brought_is_no_rate() -> None:
    clock, said = ManualClock(), list[str]()
    show = with_rate(clock, lambda _done, _total, rate: said.append(rate))
    show(900_000_000, 1_000_000_000)
    clock.advance(10_000)
    show(950_000_000, 1_000_000_000)
    assert said == ["0.0 MB/s", "5.0 MB/s, 10 s left"]
