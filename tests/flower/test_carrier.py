"""Letters of sites through nodes to a coordinator and back, with another carrier of messages in Flower's place."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from collections.abc import Collection as Ids
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from tests.fakes import AppTransport, World, build_world

from crosstrain.clock import SystemClock, pause
from crosstrain.coordinator.routes import build_app
from crosstrain.domain.ids import Digest
from crosstrain.errors import EnvironmentFault, Refused, Unreachable, UsageError
from crosstrain.flower.app_directory import RunSettings, check_release, write_app
from crosstrain.flower.carrier import Carrier, Reply, await_coordinator
from crosstrain.flower.office import Office
from crosstrain.flower.papers import Collection, Delivery, read
from crosstrain.flower.pump import Pump, open_mailbox
from crosstrain.relay.forward import Forwarder
from crosstrain.storage.database import Database, open_sqlite
from crosstrain.wire import messages
from crosstrain.wire.blobs import Progress
from crosstrain.wire.client import ControlClient
from crosstrain.wire.mailbox import FLOWER, Control, Download, Letter, Mailbox, Pulse
from crosstrain.wire.sender import MailboxBlobs, MailboxTransport, Sender

PATIENCE_S = 30.0
BATCH_BYTES = 5000
CLOCK = SystemClock()


def _shared(directory: Path) -> Database:
    """A database that several threads may use at once, as one in memory may not."""
    directory.mkdir(parents=True, exist_ok=True)
    return open_sqlite(directory / "run.sqlite")


class Line(httpx.BaseTransport):
    """To the app, as long as it is up."""

    def __init__(self, world: World) -> None:
        self._app = AppTransport(build_app(world.service))
        self.cut = threading.Event()
        self._one = threading.Lock()  # all requests of the test's world share one connection to its database in memory

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if self.cut.is_set():
            raise httpx.ConnectError("cut", request=request)
        with self._one:
            return self._app.handle_request(request)


class Shelf:
    """Where blobs come to and from on the coordinator's side."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self._directory = directory

    def put(self, data: bytes) -> Digest:
        digest = Digest(hashlib.sha256(data).hexdigest())
        (self._directory / digest).write_bytes(data)
        return digest

    def lose(self, digest: Digest) -> None:
        (self._directory / digest).unlink()

    def get(self, digest: Digest) -> bytes:
        return (self._directory / digest).read_bytes()

    def upload(self, path: Path, digest: Digest, _deadline_s: float, progress: Progress) -> None:
        assert self.put(path.read_bytes()) == digest
        progress(1, 1)

    def download(self, digest: Digest, target: Path, _deadline_s: float, progress: Progress) -> None:
        if not (self._directory / digest).exists():
            raise Refused(f"Blob {digest[:12]} is not here.", "upload it first", kind="missing-blob", status=404)
        target.write_bytes(self.get(digest))
        progress(1, 1)

    def close(self) -> None:
        pass


class Nodes:
    """Messages in JSON, as through Flower; every node looks into the same mailbox when its reply is asked for."""

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox
        self._sent: dict[str, tuple[int, str, bytes]] = {}
        self._count = 0
        self.alive = {1}
        self.largest = 0

    def nodes(self) -> Ids[int]:
        return set(self.alive)

    def send(self, node: int, delivery: Delivery, data: bytes) -> str | None:
        self._count += 1
        self._sent[str(self._count)] = (node, delivery.model_dump_json(), data)
        return str(self._count)

    def replies(self, messages: Ids[str]) -> Ids[Reply]:
        return [self._reply(number) for number in messages if number in self._sent]

    def _reply(self, number: str) -> Reply:
        node, text, data = self._sent.pop(number)
        if node not in self.alive:
            return Reply(number, None, memoryview(b""), "the node is gone")
        collection, parts = Pump(self._mailbox, CLOCK, "node").serve(read(text, Delivery), memoryview(data))
        self.largest = max(self.largest, len(data), len(parts))
        return Reply(number, read(collection.model_dump_json(), Collection), memoryview(parts))


class Bench:
    """A coordinator, an office before it, nodes, and a mailbox that sites write to."""

    def __init__(self, directory: Path, *, inline: bool = True) -> None:
        self.world = build_world(directory / "world", database=_shared(directory))
        self.line = Line(self.world)
        self.shelf = Shelf(directory / "shelf")
        self.mailbox = Mailbox(directory / "box")
        self.nodes = Nodes(self.mailbox)
        self.office = Office(
            Mailbox(directory / "mirror"),
            Forwarder("http://coordinator", self.line),
            lambda _wait: self.shelf,
            CLOCK,
            inline=inline,
            batch_bytes=BATCH_BYTES,
            linger_s=0.05,
        )
        self.carrier = Carrier(self.nodes, self.office, stay_s=0.0)
        self._stopping = threading.Event()

    @contextmanager
    def carrying(self) -> Iterator[None]:
        """The ServerApp's loop, in a thread."""

        def loop() -> None:
            while not self._stopping.is_set():
                self.carrier.step()
                pause(0.01, self._stopping)

        thread = threading.Thread(target=loop)
        thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            thread.join(PATIENCE_S)
            self.office.close()

    def control(self, name: str = "alpha-control") -> ControlClient:
        transport = MailboxTransport(self.mailbox, name, CLOCK)
        return ControlClient("mailbox:/box", CLOCK, lambda: 0.0, pause, transport)

    def blobs(self) -> MailboxBlobs:
        return MailboxBlobs(self.mailbox, "alpha-blobs", CLOCK, pause)

    def status(self, control: ControlClient) -> messages.StatusReply:
        return control.get("status", messages.StatusReply, PATIENCE_S)


@pytest.fixture
def bench(fast_tmp: Path) -> Iterator[Bench]:
    (fast_tmp / "world").mkdir()
    bench = Bench(fast_tmp)
    with bench.carrying():
        yield bench
    bench.world.database.close()


def until(condition: Callable[[], bool]) -> None:
    deadline = CLOCK.perf() + PATIENCE_S
    while not condition():
        assert CLOCK.perf() < deadline, "waited in vain"
        pause(0.01)


def test_a_request_comes_back_with_the_coordinators_answer_and_a_refusal_with_its_reason(bench: Bench) -> None:
    control = bench.control()
    assert bench.status(control).run == bench.world.config.run.name
    with pytest.raises(Refused) as refused:
        control.post("sessions/77/end", messages.EndRequest(reason="over"), messages.Accepted, PATIENCE_S)
    assert (refused.value.kind, refused.value.hint) == ("unknown-session", "register first")
    assert control.rtt_ms > 0
    control.close()


def test_weights_go_both_ways_in_parts_of_bounded_size(bench: Bench, tmp_path: Path) -> None:
    data = bytes(range(251)) * 100
    digest = Digest(hashlib.sha256(data).hexdigest())
    source, target = tmp_path / "delta", tmp_path / "base"
    source.write_bytes(data)
    blobs, shown = bench.blobs(), []
    blobs.upload(source, digest, PATIENCE_S, lambda done, total: shown.append((done, total)))
    assert bench.shelf.get(digest) == data
    assert shown[-1] == (len(data), len(data))
    blobs.download(digest, target, PATIENCE_S, lambda _done, _total: None)
    assert target.read_bytes() == data
    assert bench.nodes.largest == BATCH_BYTES
    blobs.close()


def test_a_delta_that_the_coordinator_lost_comes_again(bench: Bench, tmp_path: Path) -> None:
    (source := tmp_path / "delta").write_bytes(b"delta")
    digest, blobs = Digest(hashlib.sha256(b"delta").hexdigest()), bench.blobs()
    for _ in range(3):
        blobs.upload(source, digest, PATIENCE_S, lambda _done, _total: None)
        assert bench.shelf.get(digest) == b"delta"
        bench.shelf.lose(digest)
    blobs.close()


def test_an_upload_that_is_over_is_none_for_the_next_letter(bench: Bench) -> None:
    """However soon it comes: what the coordinator took then it may have lost."""
    digest = Digest(hashlib.sha256(b"delta").hexdigest())
    (bench.office.mirror.outgoing / digest).write_bytes(b"delta")
    first = bench.office.move("upload", digest)
    until(lambda: first.over)
    again = bench.office.move("upload", digest)
    assert again is not first
    until(lambda: again.over)


def test_what_is_not_there_is_refused_and_the_next_blob_comes(bench: Bench, tmp_path: Path) -> None:
    blobs = bench.blobs()
    with pytest.raises(Refused) as refused:
        blobs.download(Digest("0" * 64), tmp_path / "missing", PATIENCE_S, lambda _done, _total: None)
    assert refused.value.status == 404
    there = bench.shelf.put(b"there")
    blobs.download(there, tmp_path / "there", PATIENCE_S, lambda _done, _total: None)
    assert (tmp_path / "there").read_bytes() == b"there"
    blobs.close()


def test_a_run_for_messages_alone_says_where_weights_go(fast_tmp: Path, tmp_path: Path) -> None:
    (fast_tmp / "world").mkdir()
    bench = Bench(fast_tmp, inline=False)
    (tmp_path / "delta").write_bytes(b"delta")
    digest = Digest(hashlib.sha256(b"delta").hexdigest())
    with bench.carrying(), pytest.raises(Refused) as refused:
        bench.blobs().upload(tmp_path / "delta", digest, PATIENCE_S, lambda _done, _total: None)
    assert "carries no weights" in refused.value.message
    assert "site.blobs" in refused.value.hint
    bench.world.database.close()


def test_a_letter_of_a_node_that_died_is_answered_through_another(bench: Bench) -> None:
    control = bench.control()
    bench.status(control)
    bench.nodes.alive = set()
    answers: list[messages.StatusReply] = []
    asking = threading.Thread(target=lambda: answers.append(bench.status(control)))
    asking.start()
    until(lambda: (bench.mailbox.box("alpha-control").letter() or LETTER).number == 2)
    bench.nodes.alive = {2}
    asking.join(PATIENCE_S)
    assert len(answers) == 1
    control.close()


LETTER = Letter(number=0, patience_s=0, content=Download(digest="0" * 64))


def test_an_outage_of_the_coordinator_is_told_and_waited_for(bench: Bench) -> None:
    control = bench.control()
    bench.line.cut.set()
    with pytest.raises(Unreachable, match="The relay does not reach http://coordinator: ConnectError: cut"):
        control.get("status", messages.StatusReply, 0.5)
    until(lambda: "cut" in getattr(bench.mailbox.pulse(), "trouble", ""))
    with pytest.raises(Unreachable, match="The ServerApp does not reach the coordinator at http://coordinator"):
        await_coordinator(bench.office, 0.1)
    bench.line.cut.clear()
    assert bench.status(control).generation is None
    await_coordinator(bench.office, 0.0)
    control.close()


def test_something_else_at_the_address_is_no_coordinator(bench: Bench) -> None:
    answer = bench.office.pass_on(Control(method="GET", path="/v1/nothing"), 1.0).result()
    assert answer.status == 404
    other = Office(
        bench.mailbox,
        Forwarder("http://other", httpx.MockTransport(lambda _request: httpx.Response(404, text="nginx"))),
        lambda _wait: bench.shelf,
        CLOCK,
        inline=False,
        batch_bytes=1,
        linger_s=0.0,
    )
    with pytest.raises(Refused, match="404"):
        await_coordinator(other, 0.0)
    other.close()


def test_a_node_without_a_mailbox_says_what_to_set(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="names no mailbox"):
        open_mailbox("")
    with pytest.raises(UsageError, match="There is no mailbox at"):
        open_mailbox(str(tmp_path / "nowhere"))


def test_a_site_that_waits_for_flower_is_told_to_look_there(tmp_path: Path) -> None:
    mailbox = Mailbox(tmp_path / "box")
    mailbox.put_pulse(Pulse(relay="flower", beat=1, host="login1", url=FLOWER, ended=True))
    sentence = Sender(mailbox, "alpha", CLOCK).waits_for()
    assert sentence == "the relay on login1 ended; see whether its SuperNode and the run of the Flower app are up"


def test_halves_of_two_versions_say_so() -> None:
    with pytest.raises(UsageError, match="same version"):
        read('{"format": 2}', Delivery)


@pytest.mark.parametrize("found", [None, "1.32.1", "1.43.0", "2.0.0", "unknown"])
def test_a_release_of_flwr_that_was_not_tried_is_refused(found: str | None) -> None:
    with pytest.raises(EnvironmentFault, match=r"Expected flwr 1\.33 to 1\.42"):
        check_release(found)


def test_tried_releases_are_taken() -> None:
    for found in ("1.33.0", "1.42.0"):
        check_release(found)


def test_a_runs_settings_are_checked() -> None:
    assert RunSettings.of({"coordinator": "https://c", "weights": "inline", "batch-mib": 8}).batch_mib == 8
    with pytest.raises(UsageError, match="weights"):
        RunSettings.of({"weights": "pickle"})


def test_an_app_is_written_once(tmp_path: Path) -> None:
    write_app(tmp_path / "app")
    assert (tmp_path / "app" / "crosstrain_flower" / "client_app.py").exists()
    with pytest.raises(UsageError, match="not empty"):
        write_app(tmp_path / "app")
