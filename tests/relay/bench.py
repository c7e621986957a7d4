"""A mailbox with senders on one side and a server on the other, and relays between them that a test steps."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from crosstrain.clock import SystemClock, pause
from crosstrain.domain.ids import Digest
from crosstrain.errors import IntegrityError, Refused, Unreachable
from crosstrain.relay.forward import Forwarder
from crosstrain.relay.relay import Relay
from crosstrain.wire import messages
from crosstrain.wire.blobs import Progress
from crosstrain.wire.client import ControlClient
from crosstrain.wire.mailbox import Mailbox
from crosstrain.wire.sender import MailboxBlobs, MailboxTransport

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
