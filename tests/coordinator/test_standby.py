"""When a second coordinator takes a run over, by the lock, by the pulse, and never by a clock that two share."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.databases import Backend
from tests.fakes import NOON, AppTransport, ManualClock, run_config, sha256

from crosstrain.assembly import begin_service
from crosstrain.coordinator.service import Service
from crosstrain.coordinator.standby import Heart, Process, Watch
from crosstrain.domain.ids import Instant
from crosstrain.errors import EnvironmentFault, Superseded
from crosstrain.storage import pulse, run_store
from crosstrain.storage.database import Database
from crosstrain.storage.object_store import LocalObjectStore
from crosstrain.storage.pulse import Claim, Pulse
from crosstrain.wire.messages import Fingerprint

TAKEOVER_S = 15.0


class Machine:
    """The locks of all processes: term -> who has it."""

    def __init__(self) -> None:
        self.holders: dict[int, Locks] = {}


class Locks:
    """One process's locks, which it loses when it dies."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def take(self, term: int) -> bool:
        return self._machine.holders.setdefault(term, self) is self

    def release(self, term: int) -> None:
        if self._machine.holders.get(term) is self:
            del self._machine.holders[term]

    def close(self) -> None:
        for term in [term for term, holder in self._machine.holders.items() if holder is self]:
            self.release(term)


class Bench:
    """Processes that share a database and a machine; each has a connection and locks of its own."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.machine = Machine()
        self.clock = ManualClock()

    def process(self) -> tuple[Database, Locks, Watch]:
        database, locks = self._backend.open(), Locks(self.machine)
        return database, locks, Watch(database, locks, self.clock, TAKEOVER_S)

    def serving(self, term: int = 1) -> tuple[Database, Locks]:
        """A coordinator that began the run and serves it."""
        database, locks, _ = self.process()
        with database.write() as connection:
            run_store.create(connection, "run", {}, "0" * 64, {}, Instant(NOON))
        assert locks.take(term)
        database.take_over(Claim(Pulse(0, 0), term))
        return database, locks


@pytest.fixture
def bench(shared_backend: Backend) -> Bench:
    return Bench(shared_backend)


def beat(database: Database) -> None:
    with database.write() as connection:
        pulse.beat(connection)


def test_new_run_is_taken_at_once_and_by_one_only(bench: Bench) -> None:
    _, first_locks, first = bench.process()
    _, _, second = bench.process()
    assert first.look() == Claim(Pulse(0, 0), 1)
    assert second.look() is None
    first_locks.close()
    assert second.look() == Claim(Pulse(0, 0), 1)


def test_dead_coordinator_is_followed_at_once(bench: Bench) -> None:
    _, locks = bench.serving()
    database, _, watch = bench.process()
    assert watch.look() is None
    locks.close()
    claim = watch.look()
    assert claim == Claim(Pulse(1, 0), 2)
    assert database.take_over(claim) == 2


def test_living_coordinator_is_never_followed_however_long_it_is_watched(bench: Bench) -> None:
    first, _ = bench.serving()
    _, _, watch = bench.process()
    for _ in range(20):
        assert watch.look() is None
        bench.clock.advance(1000 * TAKEOVER_S - 1)
        assert "the coordinator of term 1 lives, seen 15 s ago" in watch.reason
        beat(first)
    assert bench.machine.holders.keys() == {1}


def test_stuck_coordinator_is_followed_when_its_pulse_stood_for_the_whole_time(bench: Bench) -> None:
    first, _ = bench.serving()
    second, _, watch = bench.process()
    bench.clock.advance(10**9)
    assert watch.look() is None, "only what this process saw itself counts"
    bench.clock.advance(1000 * TAKEOVER_S - 1)
    assert watch.look() is None
    bench.clock.advance(1)
    claim = watch.look()
    assert claim == Claim(Pulse(1, 0), 2)
    assert second.take_over(claim) == 2
    with pytest.raises(Superseded):
        beat(first)


def test_stuck_coordinator_that_wakes_in_the_last_moment_stays(bench: Bench) -> None:
    first, _ = bench.serving()
    second, _, watch = bench.process()
    watch.look()
    bench.clock.advance(1000 * TAKEOVER_S)
    claim = watch.look()
    assert claim is not None
    beat(first)
    with pytest.raises(Superseded, match="a coordinator of term 1 lives"):
        second.take_over(claim)
    watch.give_up(claim)
    beat(first)
    assert watch.look() is None
    assert bench.machine.holders.keys() == {1}


def test_candidate_that_got_stuck_while_taking_over_stops_nobody(bench: Bench) -> None:
    _, locks = bench.serving()
    _, _, stuck = bench.process()
    second, _, watch = bench.process()
    locks.close()
    assert stuck.look() == Claim(Pulse(1, 0), 2)
    assert watch.look() is None, "the other may be about to succeed"
    bench.clock.advance(1000 * TAKEOVER_S)
    claim = watch.look()
    assert claim == Claim(Pulse(1, 0), 3)
    assert second.take_over(claim) == 3


def test_end_of_a_stuck_one_that_was_superseded_frees_no_later_term(bench: Bench) -> None:
    _, stuck_locks = bench.serving()
    second, _, watch = bench.process()
    _, _, third = bench.process()
    watch.look()
    bench.clock.advance(1000 * TAKEOVER_S)
    claim = watch.look()
    assert claim is not None
    second.take_over(claim)
    stuck_locks.close()
    assert third.look() is None


def test_heart_moves_the_pulse_and_takes_a_lost_lock_again(bench: Bench) -> None:
    database, locks = bench.serving()
    heart = Heart(database, locks, TAKEOVER_S)
    locks.close()
    heart.beat()
    assert bench.machine.holders == {1: locks}
    with database.read() as connection:
        assert pulse.pulse(connection) == Pulse(1, 1)


IDENTITY = Fingerprint(
    spec_digest=run_config().spec_digest(),
    seed=7,
    windows=39,
    block_windows=2,
    seq_len=8,
    tokenizer_sha256=sha256(b"t"),
    corpus_sha256=sha256(b"c"),
)


@pytest.fixture
def processes(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Process]]:
    """Two coordinator processes of one run, started one after the other."""
    directory = tmp_path_factory.mktemp("objects")
    made = []

    def new() -> Process:
        database, locks, _ = bench.process()

        def begin(claim: Claim) -> Service:
            objects, work = LocalObjectStore(directory / "objects"), directory / "work"
            return begin_service(run_config(), IDENTITY, database, objects, work, bench.clock, claim)

        return Process(database, locks, bench.clock, 0.3, begin)

    made += [new(), new()]
    yield made
    for process in made:
        process.stop()
        process.close()


def http(process: Process) -> httpx.Client:
    return httpx.Client(transport=AppTransport(process), base_url="http://coordinator/v1/")


def test_standby_answers_every_request_with_what_it_waits_for(processes: list[Process]) -> None:
    first, second = processes
    assert first.attempt()
    assert not second.attempt()
    assert http(first).get("status").status_code == 200
    for method, path in (("GET", "status"), ("POST", "sessions"), ("PUT", f"blobs/{'0' * 64}"), ("HEAD", "x")):
        answer = http(second).request(method, path)
        assert (answer.status_code, answer.headers["content-type"]) == (503, "application/problem+json")
        assert answer.headers["retry-after"] == "1"
    problem = http(second).get("status").json()
    assert problem["kind"] == "standby"
    assert "is a standby since 2027-01-15 08:00:00 UTC: the coordinator of term 1 lives" in problem["detail"]
    assert "shows no sign of life for 0.3 s" in problem["detail"]


def test_standby_serves_when_the_first_died_and_ends_when_it_is_told_to(processes: list[Process]) -> None:
    first, second = processes
    assert first.attempt()
    served = threading.Thread(target=second.run)
    served.start()
    first.close()
    while http(second).get("status").status_code == 503:
        assert served.is_alive()
    second.stop()
    served.join(20)
    assert not served.is_alive()


def test_coordinator_that_is_told_to_end_asks_a_bucket_for_nothing_more(bench: Bench, tmp_path: Path) -> None:
    """Its threads would put and read for minutes, and the interpreter waits for them."""

    class Closed(LocalObjectStore):
        closed = False

        def close(self) -> None:
            self.closed = True

    database, locks, _ = bench.process()
    objects = Closed(tmp_path / "objects")

    def begin(claim: Claim) -> Service:
        return begin_service(run_config(), IDENTITY, database, objects, tmp_path / "work", bench.clock, claim)

    process = Process(database, locks, bench.clock, 0.3, begin)
    assert process.attempt()
    assert not objects.closed
    process.stop()
    assert objects.closed
    process.close()


def test_standby_ends_when_it_is_told_to(processes: list[Process]) -> None:
    first, second = processes
    assert first.attempt()
    served = threading.Thread(target=second.run)
    served.start()
    second.stop()
    served.join(20)
    assert not served.is_alive()


def test_heart_of_a_superseded_coordinator_says_so(bench: Bench) -> None:
    database, locks = bench.serving()
    successor, _, _ = bench.process()
    successor.take_over()
    with pytest.raises(Superseded, match="term 1, the database is at term 2"):
        Heart(database, locks, TAKEOVER_S).run(threading.Event())


def test_superseded_coordinator_ends_by_itself(bench: Bench, processes: list[Process]) -> None:
    first, _ = processes
    assert first.attempt()
    successor, _, _ = bench.process()
    successor.take_over()
    with pytest.raises(Superseded):
        first.run()


def test_database_that_is_away_keeps_the_standby_waiting(
    bench: Bench, processes: list[Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = processes
    assert first.attempt()
    away = threading.Event()

    def refuse(_watch: Watch) -> None:
        away.set()
        raise EnvironmentFault("The database cannot be used: it is away.", "bring it back")

    monkeypatch.setattr(Watch, "look", refuse)
    served = threading.Thread(target=second.run)
    served.start()
    assert away.wait(20)
    while "it is away" not in http(second).get("status").json()["detail"]:
        assert served.is_alive()
    monkeypatch.undo()
    first.close()
    while http(second).get("status").status_code == 503:
        assert served.is_alive()
    second.stop()
    served.join(20)
