"""What the tests of several packages share: a clock that they move, small inputs, the real app without a socket, and a
coordinator with sites that they drive step by step. Nothing here replaces behaviour of crosstrain."""

from __future__ import annotations

import atexit
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any, ClassVar
from weakref import finalize

import httpx
import numpy as np
import numpy.typing as npt
from anyio.from_thread import BlockingPortal, start_blocking_portal
from sqlalchemy import text

from crosstrain.assembly import build_service, fingerprint
from crosstrain.config import RunConfig
from crosstrain.coordinator.audit import Audit, audit
from crosstrain.coordinator.routes import build_app
from crosstrain.coordinator.service import Service
from crosstrain.coordinator.tick import Loop
from crosstrain.corpus.manifest import BuildRecord, Manifest, SplitRecord
from crosstrain.domain.block import BlockState, Corpus
from crosstrain.domain.generation import GenerationRecord
from crosstrain.domain.ids import Digest, Instant
from crosstrain.domain.permutation import epoch_order
from crosstrain.domain.phase import digest_windows, sum_windows, window_numbers
from crosstrain.storage import ledger_store, run_store
from crosstrain.storage.byte_planes import pack
from crosstrain.storage.database import Database, open_sqlite
from crosstrain.storage.delta_file import ELEMENT_BYTES, Codec, DeltaWriter
from crosstrain.storage.deltas import Compress
from crosstrain.storage.object_store import LocalObjectStore, ObjectStore
from crosstrain.storage.weights_file import DType, Entry, WeightsFile, WeightsWriter
from crosstrain.wire import messages

Weights = Mapping[str, npt.NDArray[Any]]

NOON = 1_800_000_000_000
SEQ_LEN = 8
SHAPES = {"embed": (5, 3), "norm": (4,), "scale": (1,)}


class ManualClock:
    """Stands still until the test moves it."""

    def __init__(self, now: int = NOON) -> None:
        self._now = now

    def now(self) -> Instant:
        return Instant(self._now)

    def perf(self) -> float:
        return self._now / 1000

    def advance(self, ms: float) -> None:
        self._now += round(ms)

    def wait(self, seconds: float) -> bool:
        """A `wait` for clients: time passes, nobody asks to stop."""
        self.advance(1000 * seconds)
        return False


def run_config(**sections: Mapping[str, Any]) -> RunConfig:
    """A run of ten rounds of four steps on blocks of two windows; sections override single keys."""
    document: dict[str, dict[str, Any]] = {
        "run": {"seed": 7, "rounds": 10, "preset": "paper"},
        "model": {"vocab_size": 16, "hidden_size": 8},
        "data": {"block_windows": 2},
        "inner": {"steps": 4},
        "heldout": {"windows": 0},
        "lease": {"heartbeat_s": 1, "ttl_floor_s": 10, "join_patience_s": 30, "phase_patience_s": 120},
        "round": {"cutoff_s": 200, "drain_s": 50, "start_after_s": 100},
    }
    for name, keys in sections.items():
        document[name] = {**document.get(name, {}), **keys}
    return RunConfig.model_validate(document)


def corpus_manifest(windows: int = 39, seq_len: int = SEQ_LEN) -> Manifest:
    tokens = windows * seq_len + 1
    split = SplitRecord(tokens=tokens, windows=windows, documents=3, sha256=sha256(b"split"))
    return Manifest(
        seq_len=seq_len,
        dtype="uint16",
        vocab_size=16,
        eot_token_id=0,
        train=split,
        heldout=split,
        heldout_rule="documents",
        tokenizer_sha256=sha256(b"tokenizer"),
        content_sha256=sha256(b"corpus"),
        sources=(),
        duplicates=0,
        duplicates_dropped=0,
        build=BuildRecord(options={}, inputs_sha256=sha256(b"inputs")),
        created_with="0",
    )


def sha256(data: bytes) -> Digest:
    return Digest(hashlib.sha256(data).hexdigest())


def weights(value: float | int, shapes: Mapping[str, tuple[int, ...]] = SHAPES) -> dict[str, npt.NDArray[Any]]:
    """Small tensors of the seed `value`, float32."""
    generator = np.random.default_rng(round(abs(value) * 1000))
    return {name: generator.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def weights_bytes(tensors: Weights, directory: Path, dtype: DType = "F32") -> bytes:
    """The bytes of a weights file."""
    path = directory / "bytes.safetensors"
    with WeightsWriter(path, [Entry(name, dtype, array.shape) for name, array in tensors.items()]) as writer:
        for name, array in tensors.items():
            writer.write(name, array)
    data = path.read_bytes()
    path.unlink()
    return data


def delta_bytes(tensors: Weights, directory: Path, codec: Codec, compress: Compress = "none") -> bytes:
    """The bytes of a delta as it travels."""
    path = directory / "delta.safetensors"
    model = [Entry(name, "F32", array.shape) for name, array in tensors.items()]
    with DeltaWriter(path, model, codec) as writer:
        for name, array in tensors.items():
            writer.append(name, np.asarray(array, np.float32).reshape(-1))
    if compress == "planes":
        pack(path, path, ELEMENT_BYTES[codec])
    data = path.read_bytes()
    path.unlink()
    return data


def read_weights(path: Path) -> dict[str, npt.NDArray[Any]]:
    with WeightsFile(path) as file:
        return {entry.name: file.array(entry.name).copy() for entry in file.entries}


@cache
def _portal() -> BlockingPortal:
    """One event loop for all apps; a loop per request would cost more than the request."""
    opened = start_blocking_portal()
    portal = opened.__enter__()
    atexit.register(opened.__exit__, None, None, None)
    return portal


class AppTransport(httpx.BaseTransport):
    """Requests straight to an ASGI app, without a socket."""

    def __init__(self, app: Any) -> None:
        self._asgi = httpx.ASGITransport(app)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return _portal().call(self._exchange, request, request.read())

    async def _exchange(self, request: httpx.Request, body: bytes) -> httpx.Response:
        sent = httpx.Request(request.method, request.url, headers=request.headers, stream=httpx.ByteStream(body))
        response = await self._asgi.handle_async_request(sent)
        return httpx.Response(response.status_code, headers=response.headers, content=await response.aread())


class AppShell:
    """The real app around a service whose parts can be exchanged: making an app takes longer than most tests."""

    _free: ClassVar[list[AppShell]] = []

    def __init__(self, first: Service) -> None:
        self.service = copy(first)
        self.service.clock = self
        self.app = build_app(self.service)

    @classmethod
    def of(cls, service: Service) -> AppShell:
        shell = cls._free.pop() if cls._free else cls(service)
        shell.fill(service)
        return shell

    def fill(self, fresh: Service) -> None:
        for part in fields(Service):
            setattr(self.service, part.name, getattr(fresh, part.name))

    def now(self) -> Instant:
        """The app was made with this as its clock."""
        return self.service.clock.now()

    def perf(self) -> float:
        return self.service.clock.perf()

    def give_back(self) -> None:
        self._free.append(self)


@dataclass(eq=False)
class World:
    """A coordinator over real SQLite and a real object store, on a clock that the test moves."""

    directory: Path
    clock: ManualClock
    config: RunConfig
    manifest: Manifest
    database: Database
    objects: ObjectStore
    service: Service = field(init=False)
    loop: Loop = field(init=False)
    http: httpx.Client = field(init=False)

    _shell: AppShell | None = field(init=False, default=None, repr=False)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self, database: Database | None = None) -> None:
        """A new coordinator process on the same files."""
        self.database = database or self.database
        work = self.directory / "work"
        fresh = build_service(self.config, self.manifest, self.database, self.objects, work, self.clock)
        if self._shell is None:
            self._shell = AppShell.of(fresh)
            finalize(self, self._shell.give_back)
            self.http = httpx.Client(transport=AppTransport(self._shell.app), base_url="http://coordinator/v1/")
        self._shell.fill(fresh)
        self.service = self._shell.service
        self.loop = Loop(self.service)

    @property
    def app(self) -> Any:
        """The coordinator's ASGI application."""
        assert self._shell is not None
        return self._shell.app

    @property
    def corpus(self) -> Corpus:
        return self.service.corpus

    @property
    def blocks(self) -> int:
        return self.service.corpus.blocks

    def step(self, after_ms: float = 0) -> None:
        self.clock.advance(after_ms)
        self.loop.step(self.clock.now())

    def pass_time(self, ms: int, *alive: SiteDriver, every: int = 1000) -> None:
        """Lets time pass in steps of the coordinator's loop, with heartbeats of the sites named."""
        for _ in range(ms // every):
            self.clock.advance(every)
            for driver in alive:
                driver.beat()
            self.loop.step(self.clock.now())

    def put(self, data: bytes) -> Digest:
        digest = sha256(data)
        self.objects.receive(digest, 0, [data], len(data))
        return digest

    def put_weights(self, tensors: Weights, dtype: DType = "F32") -> Digest:
        return self.put(weights_bytes(tensors, self.directory, dtype))

    def put_delta(self, tensors: Weights) -> Digest:
        """A delta in the run's codec."""
        wire = self.config.wire
        return self.put(delta_bytes(tensors, self.directory, wire.delta, wire.compress))

    def site(self, name: str, **fields: Any) -> SiteDriver:
        """A registered site."""
        driver = SiteDriver(self, name)
        driver.register(**fields)
        return driver

    def begin(self, *names: str) -> list[SiteDriver]:
        """Registered sites that hold generation 0."""
        drivers = [self.site(name) for name in names]
        assert drivers[0].ask()["work"] == "initialise"
        digest = self.put_weights(weights(1))
        drivers[0].expect("initial", weights=digest)
        for driver in drivers:
            driver.holds = 0
        self.step()
        return drivers

    def generation(self) -> GenerationRecord | None:
        with self.database.read() as connection:
            return run_store.newest_generation(connection)

    def chain(self) -> tuple[GenerationRecord, ...]:
        with self.database.read() as connection:
            return run_store.generations(connection)

    def counts(self) -> dict[BlockState, int]:
        with self.database.read() as connection:
            return ledger_store.counts(connection)

    def status(self) -> dict[str, Any]:
        response = self.http.get("status")
        assert response.status_code == 200, response.text
        document: dict[str, Any] = response.json()
        return document

    def audit(self, replay: bool = True) -> Audit:
        return audit(self.database, self.objects, replay)

    def execute(self, statement: str) -> int:
        """Changes the database behind the coordinator's back; returns the number of rows changed."""
        with self.database.write() as connection:
            return connection.execute(text(statement)).rowcount

    def dump(self) -> dict[str, list[tuple[Any, ...]]]:
        """Every row of every table, but the events of coordinator starts."""
        from crosstrain.storage import schema

        with self.database.read() as connection:
            return {
                table.name: sorted((tuple(row) for row in connection.execute(table.select())), key=repr)
                for table in schema.metadata.sorted_tables
            }


def build_world(
    directory: Path,
    config: RunConfig | None = None,
    *,
    windows: int = 39,
    database: Database | None = None,
    clock: ManualClock | None = None,
) -> World:
    """A new run; its database is in memory unless one is given."""
    objects = LocalObjectStore(directory / "objects")
    opened = database or open_sqlite(None)
    return World(directory, clock or ManualClock(), config or run_config(), corpus_manifest(windows), opened, objects)


@dataclass
class SiteDriver:
    """One site, driven request by request."""

    world: World
    name: str
    session: int = 0
    holds: int | None = None
    lease: dict[str, Any] | None = None

    def post(self, path: str, **document: Any) -> httpx.Response:
        return self.world.http.post(path, json=document)

    def expect(self, action: str, **document: Any) -> dict[str, Any]:
        """A request of this session that must succeed."""
        response = self.post(f"sessions/{self.session}/{action}", **document)
        assert response.status_code == 200, response.text
        reply: dict[str, Any] = response.json()
        return reply

    def registration(self, **fields: Any) -> dict[str, Any]:
        identity = fingerprint(self.world.config, self.world.manifest).model_dump()
        return {
            "protocol": messages.PROTOCOL,
            "version": "0",
            "site": self.name,
            "ranks": 2,
            "windows_per_step": 2,
            "fingerprint": identity,
            **fields,
        }

    def register(self, **fields: Any) -> dict[str, Any]:
        response = self.post("sessions", **self.registration(**fields))
        assert response.status_code == 200, response.text
        reply: dict[str, Any] = response.json()
        self.session = reply["session"]
        return reply

    def beat(self, phase: str = "training", done: int | None = None, **fields: Any) -> dict[str, Any]:
        """A heartbeat; by default one that shows progress."""
        token = self.lease["token"] if self.lease else None
        progress = self.world.clock.now() % 2**40 if done is None else done
        return self.expect("beat", phase=phase, done=progress, **{"token": token, **fields})

    def ask(self, **fields: Any) -> dict[str, Any]:
        reply = self.expect("next", holds=self.holds, **fields)
        self.lease = reply["lease"]
        return reply

    def work(self, **fields: Any) -> dict[str, Any]:
        """Asks until there is a lease, adopting and measuring what is needed; the lease."""
        for _ in range(4):
            reply = self.ask(**fields)
            if reply["work"] == "adopt":
                self.holds = reply["generation"]
            elif reply["work"] == "evaluate":
                self.expect("evaluation", generation=reply["generation"], nll=10.0, tokens=5)
            else:
                break
        assert self.lease is not None, reply
        return self.lease

    def windows(self, blocks: int | None = None) -> list[int]:
        """Numbers of the windows of the lease's first blocks."""
        assert self.lease is not None
        return windows_of(self.world.corpus, self.world.config.run.seed, self.lease["spans"], blocks)

    def claim(self, delta: Digest, blocks: int | None = None, **fields: Any) -> dict[str, Any]:
        """A contribution of the first blocks of the lease, all by default."""
        assert self.lease is not None
        numbers = self.windows(blocks)
        granted = sum(stop - start for _, start, stop in self.lease["spans"])
        return {
            "session": self.session,
            "generation": self.lease["generation"],
            "blocks": granted if blocks is None else blocks,
            "windows": len(numbers),
            "tokens": len(numbers) * SEQ_LEN,
            "steps": -(-len(numbers) // 2),
            "delta": delta,
            "windows_digest": digest_windows(len(numbers), sum_windows(numbers)),
            "loss": 2.5,
            "seconds": 4.0,
            **fields,
        }

    def contribute(self, value: float = 0.5, blocks: int | None = None, **fields: Any) -> dict[str, Any]:
        """Sends a delta of the seed `value` and contributes it; it must be accepted."""
        reply = self.try_contribute(value, blocks, **fields)
        assert reply.status_code == 200 and reply.json()["accepted"], reply.text
        self.lease = None
        document: dict[str, Any] = reply.json()
        return document

    def try_contribute(self, value: float = 0.5, blocks: int | None = None, **fields: Any) -> httpx.Response:
        assert self.lease is not None
        delta = self.world.put_delta(weights(value))
        return self.post(f"leases/{self.lease['token']}/contribution", **self.claim(delta, blocks, **fields))

    def release(self, reason: str = "no time left") -> httpx.Response:
        assert self.lease is not None
        return self.post(f"leases/{self.lease['token']}/release", session=self.session, reason=reason)


def windows_of(corpus: Corpus, seed: int, spans: Sequence[Sequence[int]], blocks: int | None = None) -> list[int]:
    """Window numbers of the first blocks of (epoch, start, stop) spans."""
    positions = [(epoch, position) for epoch, start, stop in spans for position in range(start, stop)][:blocks]
    orders = {epoch: epoch_order(corpus.blocks, seed, epoch) for epoch, _, _ in spans}
    return list(window_numbers(corpus.block(orders[epoch][position]) for epoch, position in positions))


@contextmanager
def sqlite_file(path: Path) -> Iterator[Database]:
    database = open_sqlite(path)
    try:
        yield database
    finally:
        database.close()


class FailingDatabase(Database):
    """Lets only so many write transactions commit; the next one is undone at its end, as by a crash before COMMIT."""

    def __init__(self, database: Database, allowed: Callable[[], bool]) -> None:
        super().__init__(database._engine)
        self._allowed = allowed

    @contextmanager
    def write(self) -> Iterator[Any]:
        with super().write() as connection:
            yield connection
            if not self._allowed():
                raise CrashError("before COMMIT")


class FailingStore(LocalObjectStore):
    """An object store whose process dies before or after it took a file in."""

    def __init__(self, directory: Path, allowed: Callable[[], bool]) -> None:
        super().__init__(directory)
        self._allowed = allowed

    def adopt(self, path: Path, digest: Digest | None = None) -> Digest:
        if not self._allowed():
            raise CrashError("before a blob appeared")
        digest = super().adopt(path, digest)
        if not self._allowed():
            raise CrashError("after a blob appeared")
        return digest


class CrashError(Exception):
    """Stands for the death of the process."""


@dataclass
class Fuse:
    """Lets `left` calls through, and none after."""

    left: int

    def __call__(self) -> bool:
        self.left -= 1
        return self.left >= 0
