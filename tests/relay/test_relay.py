"""A relay between senders and a server: requests, weights, and what happens when either side dies or comes late."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fakes import ManualClock

from crosstrain.clock import SystemClock, pause
from crosstrain.domain import timeouts
from crosstrain.domain.ids import Digest
from crosstrain.errors import IntegrityError, Refused, Superseded, Unreachable
from crosstrain.relay.forward import Forwarder
from crosstrain.relay.relay import CLEAN_EVERY_S, Relay
from crosstrain.wire import messages
from crosstrain.wire.blobs import Progress
from crosstrain.wire.client import ControlClient
from crosstrain.wire.mailbox import Answer, Control, Letter, Mailbox, Moving, Nothing, Upload
from crosstrain.wire.sender import MailboxBlobs, MailboxTransport, Sender

DATA = bytes(range(251)) * 40
DIGEST = Digest(hashlib.sha256(DATA).hexdigest())
CHUNK = 1000
PATIENCE_S = 20.0


class Shelf:
    """Where blobs come to and from on the far side: resumable by chunks, as any coordinator's store is."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.directory = directory
        self.moved: list[tuple[str, int]] = []
        self.refusal: Refused | None = None
        self.away = threading.Event()
        self.before_chunk: Callable[[], None] = lambda: None

    def client(self, wait: Callable[[float], bool]) -> ShelfBlobs:
        return ShelfBlobs(self, wait)

    def put(self, data: bytes) -> Digest:
        digest = hashlib.sha256(data).hexdigest()
        (self.directory / digest).write_bytes(data)
        return Digest(digest)


class ShelfBlobs:
    """Moves one chunk after the other, and continues what is there."""

    def __init__(self, shelf: Shelf, wait: Callable[[float], bool]) -> None:
        self._shelf = shelf
        self._wait = wait

    def upload(self, path: Path, digest: Digest, deadline_s: float, progress: Progress) -> None:
        if self._shelf.refusal:
            raise self._shelf.refusal
        self._copy(path, self._shelf.directory / digest, digest, "up", progress)

    def download(self, digest: Digest, target: Path, deadline_s: float, progress: Progress) -> None:
        source = self._shelf.directory / digest
        if not source.exists():
            raise Refused(f"Blob {digest[:12]} is not here.", "upload it first", kind="missing-blob", status=404)
        self._copy(source, target, digest, "down", progress)

    def close(self) -> None:
        pass

    def _copy(self, source: Path, target: Path, digest: Digest, way: str, progress: Progress) -> None:
        if target.exists():
            return
        part, total = target.with_name(target.name + ".part"), source.stat().st_size
        have = part.stat().st_size if part.exists() else 0
        with source.open("rb") as read, part.open("ab") as write:
            read.seek(have)
            while chunk := read.read(CHUNK):
                while self._shelf.away.is_set():
                    if self._wait(0.01):
                        raise Unreachable("stopped")
                self._shelf.before_chunk()
                write.write(chunk)
                write.flush()
                self._shelf.moved.append((way, len(chunk)))
                have += len(chunk)
                progress(have, total)
        if hashlib.sha256(part.read_bytes()).hexdigest() != digest:
            part.unlink()
            raise IntegrityError("other bytes")
        part.replace(target)


class Bench:
    """A mailbox, a server behind it, and relays that live as long as a test wants."""

    def __init__(self, directory: Path) -> None:
        self.mailbox = Mailbox(directory / "box")
        self.shelf = Shelf(directory / "shelf")
        self.clock = SystemClock()
        self.directory = directory
        self.requests: list[httpx.Request] = []
        self.answer: Callable[[httpx.Request], httpx.Response] = lambda _request: httpx.Response(
            200, json={"accepted": True, "reason": "well"}
        )
        self.made = 0

    def relay(self, clock: Any = None) -> Relay:
        self.made += 1
        forwarder = Forwarder("http://coordinator", httpx.MockTransport(self._handle))
        return Relay(self.mailbox, forwarder, self.shelf.client, clock or self.clock, f"r{self.made}", "login1")

    def _handle(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        return self.answer(request)

    def control(self, name: str = "north") -> ControlClient:
        transport = MailboxTransport(self.mailbox, name, self.clock)
        return ControlClient("mailbox:/box", self.clock, lambda: 0.5, pause, transport)

    def blobs(self, name: str = "north-blobs", wait: Callable[[float], bool] = pause) -> MailboxBlobs:
        return MailboxBlobs(self.mailbox, name, self.clock, wait)

    @property
    def target(self) -> Path:
        return self.directory / "target"

    def source(self) -> Path:
        path = self.directory / "source"
        path.write_bytes(DATA)
        return path

    def move(
        self,
        way: str,
        progress: Progress = lambda *_: None,
        *,
        name: str = "north-blobs",
        target: Path | None = None,
        deadline_s: float = PATIENCE_S,
    ) -> Callable[[], bool]:
        """A transfer of the blob, "up" or "down", ready to be called; True when it is done."""
        source, blobs = self.source(), self.blobs(name)
        if way == "down":
            self.shelf.put(DATA)

        def run() -> bool:
            if way == "up":
                blobs.upload(source, DIGEST, deadline_s, progress)
            else:
                blobs.download(DIGEST, target or self.target, deadline_s, progress)
            return True

        return run

    def arrived(self, way: str) -> bytes:
        return (self.target if way == "down" else self.shelf.directory / DIGEST).read_bytes()


@pytest.fixture
def bench(fast_tmp: Path) -> Bench:
    return Bench(fast_tmp)


class Outcome:
    """What a call in another thread came to."""

    value: Any = None
    error: Exception | None = None


@contextmanager
def running(call: Callable[[], Any]) -> Iterator[Outcome]:
    """Runs a call in a thread; at the end of the block it must be over."""
    outcome = Outcome()

    def run() -> None:
        try:
            outcome.value = call()
        except Exception as error:  # noqa: BLE001 - the test looks at it
            outcome.error = error

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield outcome
    finally:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def drive(bench: Bench, until: Callable[[], bool], relay: Relay | None = None) -> Relay:
    """Steps a relay until something holds."""
    relay = relay or bench.relay()
    deadline = bench.clock.perf() + PATIENCE_S
    while not until():
        assert bench.clock.perf() < deadline
        pause(min(0.02, relay.step()))
    return relay


def settled(outcome: Outcome) -> Callable[[], bool]:
    return lambda: outcome.value is not None or outcome.error is not None


def ask(client: ControlClient) -> messages.Accepted:
    return say(client, "x")


def say(client: ControlClient, word: str) -> messages.Accepted:
    return client.post("sessions/1/end", messages.EndRequest(reason=word), messages.Accepted, PATIENCE_S)


def test_a_request_goes_through_and_its_answer_comes_back(bench: Bench) -> None:
    client = bench.control()
    with running(lambda: ask(client)) as outcome:
        drive(bench, settled(outcome))
    assert outcome.value == messages.Accepted(reason="well")
    (request,) = bench.requests
    assert (request.method, str(request.url)) == ("POST", "http://coordinator/v1/sessions/1/end")
    assert request.headers["content-type"] == "application/json"
    assert client.rtt_ms > 0
    client.close()
    assert bench.mailbox.names() == ()


def test_a_refusal_of_the_coordinator_reaches_the_site_as_it_is(bench: Bench) -> None:
    problem = messages.Problem(status=410, detail="Session 1 is over.", kind="superseded")
    bench.answer = lambda _request: httpx.Response(410, json=problem.model_dump())
    with running(lambda: ask(bench.control())) as outcome:
        drive(bench, settled(outcome))
    assert isinstance(outcome.error, Superseded)
    assert outcome.error.message == "Session 1 is over."


def test_several_senders_are_served_side_by_side(bench: Bench) -> None:
    slow = threading.Event()

    def answer(request: httpx.Request) -> httpx.Response:
        if b"slow" in request.content:
            slow.wait(PATIENCE_S)
        return httpx.Response(200, json={"accepted": True, "reason": request.content.decode()})

    bench.answer = answer
    first, second = bench.control("first"), bench.control("second")
    with running(lambda: say(first, "slow")) as one:
        relay = drive(bench, lambda: len(bench.requests) == 1)
        with running(lambda: say(second, "quick")) as two:
            drive(bench, settled(two), relay)
        assert "quick" in two.value.reason and one.value is None
        slow.set()
        drive(bench, settled(one), relay)
    assert "slow" in one.value.reason


def test_a_site_that_waits_says_what_for(bench: Bench) -> None:
    transport = MailboxTransport(bench.mailbox, "north", bench.clock)
    with httpx.Client(transport=transport, base_url="http://mailbox", timeout=0.05) as client:
        with pytest.raises(httpx.ReadTimeout, match=r"no relay was ever at the mailbox .*; start .crosstrain relay"):
            client.get("/v1/status")
        assert bench.mailbox.box("north").letter() == Letter(number=2, patience_s=0, content=Nothing())
        relay = bench.relay()
        relay.step()
        relay.leave()
        with pytest.raises(httpx.ReadTimeout, match="the relay on login1 ended; start"):
            client.get("/v1/status")
    assert bench.requests == []


def test_a_coordinator_that_the_relay_does_not_reach_is_the_reason_that_the_site_gives(bench: Bench) -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("connection refused", request=request)

    bench.answer = refuse
    client = bench.control()
    with running(lambda: client.get("status", messages.Accepted, 0.0)) as outcome:
        drive(bench, settled(outcome))
    assert isinstance(outcome.error, Unreachable)
    assert "The relay does not reach http://coordinator: ConnectError: connection refused" in outcome.error.message


def test_a_relay_that_comes_later_answers_what_lies_there(bench: Bench) -> None:
    with running(lambda: ask(bench.control())) as outcome:
        drive(bench, lambda: bench.mailbox.names() != (), None)
        drive(bench, settled(outcome))
    assert outcome.value.accepted


def test_a_letter_whose_sender_gave_up_before_the_relay_came_is_left_alone(bench: Bench) -> None:
    box = bench.mailbox.box("gone")
    box.open()
    box.write(Letter(number=1, patience_s=10, content=Control(method="GET", path="/v1/status")))
    path = box.directory / "letter.json"
    old = path.stat().st_mtime - 10 - timeouts.SENDER_PULSE_S - 1
    os.utime(path, (old, old))
    relay = bench.relay()
    for _ in range(5):
        relay.step()
    assert bench.requests == []


@given(kills=st.lists(st.integers(0, 12), max_size=6))
@settings(max_examples=12)
def test_a_relay_killed_at_any_moments_of_requests_loses_none(bench: Bench, kills: list[int]) -> None:
    """A killed relay is one that is stepped no more; whatever it had begun may still happen, late."""
    client = bench.control(f"north-{len(bench.requests)}")
    asked = 3
    with running(lambda: [ask(client) for _ in range(asked)]) as outcome:
        for steps in kills:
            relay = bench.relay()
            for _ in range(steps):
                pause(min(0.005, relay.step()))
        drive(bench, settled(outcome))
    assert [reply.accepted for reply in outcome.value] == [True] * asked
    client.close()


@pytest.mark.parametrize("way", ["up", "down"])
def test_a_blob_moves_by_way_of_the_mailbox(bench: Bench, way: str) -> None:
    seen: list[tuple[int, int]] = []
    with running(bench.move(way, lambda *now: seen.append(now))) as outcome:
        drive(bench, settled(outcome))
    assert outcome.error is None
    assert bench.arrived(way) == DATA
    assert seen[-1] == (len(DATA), len(DATA))
    assert list(bench.mailbox.outgoing.iterdir()) == []


@given(kills=st.lists(st.integers(0, 12), max_size=6), way=st.sampled_from(["up", "down"]))
@settings(max_examples=16)
def test_a_relay_killed_at_any_moments_of_a_transfer_never_sends_twice(
    tmp_path_factory: pytest.TempPathFactory, kills: list[int], way: str
) -> None:
    bench = Bench(tmp_path_factory.mktemp("kills"))
    ended = threading.Event()

    def end_with_the_relay() -> None:
        if ended.is_set():
            raise SystemExit  # ends the thread of the transfer, as SIGKILL ends all threads

    bench.shelf.before_chunk = end_with_the_relay
    with running(bench.move(way)) as outcome:
        for steps in kills:
            ended.clear()
            relay = bench.relay()
            for _ in range(steps):
                pause(min(0.002, relay.step()))
            ended.set()
            for thread in threading.enumerate():
                if thread.name.startswith(("upload", "download")):
                    thread.join(PATIENCE_S)
        ended.clear()
        drive(bench, settled(outcome))
    assert outcome.error is None
    assert sum(size for _, size in bench.shelf.moved) == len(DATA)
    assert bench.arrived(way) == DATA


def test_sites_that_share_a_mailbox_fetch_a_generation_once(bench: Bench) -> None:
    bench.shelf.away.set()
    targets = [bench.directory / name for name in ("one", "two")]
    first, second = (bench.move("down", name=target.name, target=target) for target in targets)
    with running(first) as one, running(second) as two:
        relay = bench.relay()
        for _ in range(3 * len(targets)):  # both letters are taken up while nothing moves yet
            pause(min(1.0, relay.step()))
        bench.shelf.away.clear()
        drive(bench, lambda: settled(one)() and settled(two)(), relay)
    assert [target.read_bytes() for target in targets] == [DATA, DATA]
    assert sum(size for _, size in bench.shelf.moved) == len(DATA)


@pytest.mark.parametrize(
    ("refusal", "kind"), [(Refused("No room.", "free some", kind="no-room", status=507), "no-room")]
)
def test_a_refused_transfer_is_refused_at_the_site(bench: Bench, refusal: Refused, kind: str) -> None:
    bench.shelf.refusal = refusal
    with running(bench.move("up")) as outcome:
        drive(bench, settled(outcome))
    error = outcome.error
    assert isinstance(error, Refused)
    assert (error.message, error.hint, error.kind, error.status) == ("No room.", "free some", kind, 507)


def test_a_transfer_ends_at_the_sites_deadline_and_is_withdrawn(bench: Bench) -> None:
    bench.shelf.away.set()
    with running(bench.move("down", deadline_s=0.3)) as outcome:
        relay = drive(bench, settled(outcome))
    assert isinstance(outcome.error, Unreachable)
    assert "The download was not done within 0 s" in outcome.error.message
    drive(bench, lambda: not any(thread.name.startswith("download") for thread in threading.enumerate()), relay)
    letter = bench.mailbox.box("north-blobs").letter()
    assert letter is not None and isinstance(letter.content, Nothing)
    assert not bench.target.exists()


def test_a_blob_that_changed_in_the_mailbox_is_fetched_again(bench: Bench) -> None:
    place = bench.mailbox.incoming / DIGEST
    place.write_bytes(b"!" + DATA[1:])
    with running(bench.move("down")) as outcome:
        drive(bench, settled(outcome))
    assert outcome.error is None
    assert bench.target.read_bytes() == DATA
    assert bench.shelf.moved


def test_a_link_in_the_outgoing_directory_is_not_followed(bench: Bench) -> None:
    secret = bench.directory / "secret"
    secret.write_bytes(DATA)
    (bench.mailbox.outgoing / DIGEST).symlink_to(secret)
    box = bench.mailbox.box("north")
    box.open()
    box.write(Letter(number=1, patience_s=60, content=Upload(digest=DIGEST)))

    def failed() -> bool:
        answer = box.answer()
        return answer is not None and answer.content.kind == "failed"

    drive(bench, failed)
    assert bench.shelf.moved == []


def test_a_site_whose_relay_dies_in_the_middle_of_a_transfer_says_so(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    sender = Sender(bench.mailbox, "north", clock)
    bench.relay(clock).step()
    sender.send(Upload(digest=DIGEST), 1e6)
    moving = Moving(done=5, total=10)
    bench.mailbox.box("north").put_answer(Answer(number=1, content=moving), "r1")
    for _ in range(60):
        assert sender.answer() == moving
        clock.advance(1000)
    said = [record.message for record in caplog.records if record.name == "crosstrain.wire.sender"]
    assert [sentence.partition(" for ")[0] for sentence in said] == [
        "waiting",
        "the relay on login1 has shown no sign of life",
    ]
    letter = bench.mailbox.box("north").letter()
    assert letter is not None and (letter.number, letter.renewed) == (1, 1)


def test_a_mailbox_that_is_away_for_a_while_is_waited_for(bench: Bench) -> None:
    sender = Sender(bench.mailbox, "north", ManualClock())
    hidden = bench.mailbox.directory.with_name("hidden")
    bench.mailbox.directory.rename(hidden)
    sender.send(Upload(digest=DIGEST), 60)
    assert sender.answer() is None
    assert "cannot be written" in sender.waits_for()
    hidden.rename(bench.mailbox.directory)
    assert sender.answer() is None
    letter = bench.mailbox.box("north").letter()
    assert letter is not None and letter.content == Upload(digest=DIGEST)
    assert sender.waits_for().startswith("no relay was ever at")


def test_the_newer_of_two_relays_serves(bench: Bench) -> None:
    clock = ManualClock()
    older, newer = bench.relay(clock), bench.relay(clock)
    older.step()
    newer.step()
    clock.advance(1000 * timeouts.RELAY_PULSE_S)
    with pytest.raises(Superseded, match="A newer relay, on login1, serves the mailbox"):
        older.step()
    older.leave()
    pulse = bench.mailbox.pulse()
    assert pulse is not None and not pulse.ended
    newer.step()


def test_what_nobody_wants_any_more_is_removed(bench: Bench) -> None:
    clock = ManualClock()
    relay = bench.relay(clock)
    living, gone = bench.mailbox.box("living"), bench.mailbox.box("gone")
    named, left = Digest("a" * 64), Digest("b" * 64)
    for box in (living, gone):
        box.open()
        box.write(Letter(number=1, patience_s=60, content=Nothing()))
    letter = gone.directory / "letter.json"
    old = letter.stat().st_mtime - timeouts.SENDER_GONE_S - 60
    os.utime(letter, (old, old))
    living.write(Letter(number=2, patience_s=60, content=Upload(digest=named)))
    (bench.mailbox.outgoing / named).write_bytes(b"x")
    (bench.mailbox.incoming / left).write_bytes(b"x")
    (bench.mailbox.incoming / f"{left}.part").write_bytes(b"x")
    for _ in range(round(timeouts.BLOB_KEPT_S / CLEAN_EVERY_S)):
        clock.advance(1000 * CLEAN_EVERY_S)
        relay.step()
    assert bench.mailbox.names() == ("living",)
    assert {path.name for path, _ in bench.mailbox.blobs()} == {named, left, f"{left}.part"}
    clock.advance(2000 * CLEAN_EVERY_S)
    relay.step()
    assert {path.name for path, _ in bench.mailbox.blobs()} == {named}


def test_a_fault_of_the_file_system_is_waited_out(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    relay = bench.relay(clock)
    hidden = bench.mailbox.senders.with_name("hidden")
    bench.mailbox.senders.rename(hidden)
    assert relay.step() == timeouts.LONGEST_LOOK_S
    clock.advance(10_000)
    assert relay.step() == timeouts.LONGEST_LOOK_S
    assert len([record for record in caplog.records if "trying again" in record.message]) == 1
    hidden.rename(bench.mailbox.senders)
    clock.advance(10_000)
    assert relay.step() < timeouts.LONGEST_LOOK_S + 0.1
    assert bench.mailbox.pulse() is not None
