"""The only place that picks concrete parts and opens things: files, sockets, databases, processes."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fastapi import FastAPI
from sqlalchemy import Connection

from crosstrain import __version__
from crosstrain.clock import Clock, SystemClock, pause
from crosstrain.config import RunConfig, load_run
from crosstrain.coordinator.service import Service
from crosstrain.coordinator.standby import Process
from crosstrain.corpus.manifest import TOKENIZER, Manifest
from crosstrain.domain.block import Corpus
from crosstrain.domain.events import EventKind
from crosstrain.domain.ids import Instant, SessionId, SiteName
from crosstrain.domain.ledger import open_epoch
from crosstrain.domain.plural import counted
from crosstrain.domain.timeouts import FOREVER_S
from crosstrain.errors import UsageError
from crosstrain.outer.presets import outer_rule
from crosstrain.planner import routes as placement_routes
from crosstrain.planner.desk import Desk
from crosstrain.site.agent import Agent
from crosstrain.site.courier import Beside, in_a_thread
from crosstrain.site.heartbeat import Board, Heartbeat
from crosstrain.site.machine import Parts
from crosstrain.site.order import BlockOrder
from crosstrain.site.process_link import ProcessLink
from crosstrain.site.settings import TrainerSettings
from crosstrain.site.spool import Spool
from crosstrain.site.trainer_link import TrainerLink
from crosstrain.storage import ledger_store, run_store, s3_trial
from crosstrain.storage.database import Database, open_sqlite
from crosstrain.storage.deltas import Deltas
from crosstrain.storage.directory_owner import clear_work, require_own
from crosstrain.storage.durable import make_directory
from crosstrain.storage.object_store import LocalObjectStore, ObjectStore
from crosstrain.storage.postgres import PostgresTermLock, open_postgres, postgres_engine
from crosstrain.storage.pulse import Claim
from crosstrain.storage.s3_bucket import S3Bucket, place_of
from crosstrain.storage.s3_object_store import S3ObjectStore
from crosstrain.storage.term_lock import FileTermLock, TermLock
from crosstrain.wire.client import ControlClient
from crosstrain.wire.listening import listen
from crosstrain.wire.messages import Fingerprint
from crosstrain.wire.site_api import SiteApi
from crosstrain.wire.way import Way

DATABASE = "run.sqlite"
LOCK = "lock"
OBJECTS = "objects"
WORK = "work"


@dataclass(frozen=True, slots=True)
class RunFiles:
    """RUN.toml and what it refers to on this machine."""

    path: Path
    config: RunConfig

    def resolve(self, name: str) -> Path:
        """A path of RUN.toml; relative ones start at RUN.toml's directory."""
        return (self.path.parent / Path(name).expanduser()).absolute()

    @property
    def coordinator_dir(self) -> Path:
        return self.resolve(self.config.coordinator.dir)

    def corpus_dir(self, site: str | None = None) -> Path:
        override = self.config.site_named(site).corpus if site else None
        return self.resolve(override or self.config.data.corpus)


def open_run(path: Path) -> RunFiles:
    return RunFiles(path.absolute(), load_run(path))


def load_corpus(files: RunFiles, site: str | None = None) -> Manifest:
    """The corpus manifest, checked against the run file.

    Raises:
        UsageError: no corpus there, fewer windows than a block has, or a vocabulary that the model does not hold.
    """
    directory = files.corpus_dir(site)
    manifest = Manifest.load(directory)
    block_windows = files.config.data.block_windows
    if manifest.train.windows < block_windows:
        raise UsageError(
            f"The corpus {directory} has {counted(manifest.train.windows, 'window')}, one block has {block_windows}.",
            "set a smaller `data.block_windows`, build with a smaller --seq-len, or use more text",
        )
    if manifest.vocab_size > files.config.model.vocab_size:
        raise UsageError(
            f"The corpus {directory} has {manifest.vocab_size} token numbers, `model.vocab_size` is "
            f"{files.config.model.vocab_size}.",
            "set `model.vocab_size` to at least the corpus's",
        )
    if manifest.seq_len > files.config.model.max_position_embeddings:
        raise UsageError(
            f"The corpus's seq_len is {manifest.seq_len}, `model.max_position_embeddings` is "
            f"{files.config.model.max_position_embeddings}.",
            "build with a smaller --seq-len",
        )
    return manifest


def fingerprint(config: RunConfig, manifest: Manifest) -> Fingerprint:
    return Fingerprint(
        spec_digest=config.spec_digest(),
        seed=config.run.seed,
        windows=manifest.train.windows,
        block_windows=config.data.block_windows,
        seq_len=manifest.seq_len,
        tokenizer_sha256=manifest.tokenizer_sha256,
        corpus_sha256=manifest.content_sha256,
    )


# -- coordinator --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Coordinator:
    """A coordinator ready to serve, its port taken; `process` is also the application."""

    process: Process
    listener: socket.socket


def build_service(
    config: RunConfig, manifest: Manifest, database: Database, objects: ObjectStore, work: Path, clock: Clock
) -> Service:
    """`begin_service` for a corpus."""
    return begin_service(config, fingerprint(config, manifest), database, objects, work, clock)


def begin_service(
    config: RunConfig,
    identity: Fingerprint,
    database: Database,
    objects: ObjectStore,
    work: Path,
    clock: Clock,
    claim: Claim | None = None,
) -> Service:
    """Opens or begins the run in `database` and takes it over.

    Args:
        work: directory for files that are being made; what others left there is removed.
        claim: how the run is taken over; by default whoever has it.

    Raises:
        UsageError: the database holds a run with another spec or corpus, or the directory above `work` is of another run.
        Superseded: the claim came too late.
    """
    now, corpus = clock.now(), Corpus(identity.windows, identity.block_windows)
    with database.write() as connection:
        if not holds_run(connection, identity):
            run_store.create(
                connection, config.run.name, config.spec(), config.spec_digest(), identity.model_dump(), now
            )
            ledger_store.apply(connection, open_epoch(0, corpus.blocks))
        require_own(work.parent, connection)
    term = database.take_over(claim)
    with database.write() as connection:
        run_store.log(connection, EventKind.COORDINATOR_STARTED, f"crosstrain {__version__}, term {term}", now)
    clear_work(work)
    rule = outer_rule(config.outer, config.run.preset, config.inner.optimizer)
    mine = work / f"term-{term}"
    return Service(
        config,
        clock,
        database,
        objects,
        Deltas(objects, config.wire.delta, config.wire.compress, mine / "deltas"),
        mine,
        corpus,
        identity.seq_len,
        identity,
        rule,
        started_at=now,
        extensions=(with_placement,),
    )


def with_placement(app: FastAPI, service: Service) -> None:
    """Adds the planner's routes to a coordinator's application."""

    def desk() -> Desk:
        return Desk(service.config, service.database, service.corpus, service.seq_len)

    def now() -> Instant:
        return service.clock.now()  # the clock too is looked up anew

    placement_routes.install(app, desk, now)


def holds_run(connection: Connection, identity: Fingerprint) -> bool:
    """Whether the run is there; False in a new database.

    Raises:
        UsageError: another run is.
    """
    stored = run_store.load(connection)
    if stored is None:
        return False
    before = Fingerprint.model_validate_json(stored["corpus"])
    differing = [name for name in Fingerprint.model_fields if getattr(before, name) != getattr(identity, name)]
    if differing:
        raise UsageError(
            f"The run in `coordinator.dir` or `coordinator.database` was begun with another {', '.join(differing)}.",
            "restore RUN.toml and the corpus, or set another `coordinator.dir` and database for a new run",
        )
    return True


def open_coordinator(files: RunFiles, host: str | None, port: int | None) -> Coordinator:
    """Everything of a coordinator. Its port is taken, and its run too unless another coordinator serves it."""
    config, manifest = files.config, load_corpus(files)
    identity, clock = fingerprint(config, manifest), SystemClock()
    with ExitStack() as undo:
        listener = listen(host or config.coordinator.host, config.coordinator.port if port is None else port)
        undo.callback(listener.close)
        directory = make_directory(files.coordinator_dir, "coordinator.dir")
        objects = open_objects(files, tried=True)
        database, lock = open_database(files)
        begin = partial(begin_service, config, identity, database, objects, directory / WORK, clock)
        process = Process(database, lock, clock, config.coordinator.takeover_s, begin)
        undo.callback(process.close)
        with database.read() as connection:
            holds_run(connection, identity)  # a standby of another run would wait for ever
        process.attempt()
        undo.pop_all()
    return Coordinator(process, listener)


def open_database(files: RunFiles) -> tuple[Database, TermLock]:
    """The run's database for writing, and the locks that tell whether another coordinator lives."""
    address = files.config.coordinator.database.get_secret_value()
    if not address:
        directory = files.coordinator_dir
        return open_sqlite(directory / DATABASE), FileTermLock(directory / LOCK)
    engine = postgres_engine(address)
    return Database(engine), PostgresTermLock(engine)


def open_objects(files: RunFiles, tried: bool = False) -> ObjectStore:
    """The run's blobs; a bucket is asked nothing yet, unless it is to be `tried`.

    Raises:
        UsageError: `coordinator.objects` is no place, or boto3 is not installed.
        EnvironmentFault: the bucket is not there, or refuses what a run needs.
    """
    section, directory = files.config.coordinator, files.coordinator_dir / OBJECTS
    if not section.objects:
        return LocalObjectStore(directory)
    place = place_of(section.objects, section.objects_endpoint, section.objects_region)
    bucket = s3_trial.required(S3Bucket(place)) if tried else S3Bucket(place)
    return S3ObjectStore(bucket, directory, round(1e9 * section.objects_cache_gb))


def open_stored_run(files: RunFiles) -> tuple[Database, ObjectStore]:
    """The database and the objects of a run, for reading only.

    Raises:
        UsageError: there is no run.
    """
    objects = open_objects(files)
    address = files.config.coordinator.database.get_secret_value()
    if address:
        return open_postgres(address, read_only=True), objects
    path = files.coordinator_dir / DATABASE
    if not path.exists():
        raise UsageError(f"There is no run in {files.coordinator_dir}.", "start `crosstrain coordinator` first")
    return open_sqlite(path, read_only=True), objects


def coordinator_client(url: str | Sequence[str]) -> ControlClient:
    """A client for people's commands: it does not retry beyond the deadline of each call."""
    return Way(url, "command", SystemClock(), random.Random().random, pause).control()


# -- site ---------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Site:
    """An agent ready to run, and what it must close."""

    agent: Agent
    parts: Parts
    stopping: threading.Event
    ends: list[Callable[[], None]]

    def close(self) -> None:
        for end in self.ends:
            end()
        self.parts.link.close()
        self.parts.api.close()
        self.parts.blobs.close()


def trainer_settings(files: RunFiles, manifest: Manifest, name: str, directory: Path) -> TrainerSettings:
    site = files.config.site_named(name)
    corpus = files.corpus_dir(name)
    return TrainerSettings(
        model=files.config.model,
        inner=files.config.inner,
        seq_len=manifest.seq_len,
        micro_batch=site.micro_batch,
        train_tokens=corpus / "train.bin",
        heldout_tokens=corpus / "heldout.bin",
        token_dtype=manifest.dtype,
        work_dir=directory / "work",
        threads=site.threads,
        window_log=directory / "windows" if site.record_windows else None,
        engine=files.config.inner.engine,
    )


def open_site(
    files: RunFiles,
    name: str,
    url: str | None,
    ends_at: Instant | None,
    connect_s: float,
    link: TrainerLink | None = None,
    accumulate: int | None = None,
) -> Site:
    """Everything of a site session; nothing is registered and no trainer started yet.

    Args:
        link: another way to the trainer, for tests.
        accumulate: in the place of `site.accumulate`.
    """
    config = files.config
    site = config.site_named(name)
    if accumulate is not None:
        site = site.model_copy(update={"accumulate": accumulate})
    manifest = load_corpus(files, name)
    spool = Spool(files.resolve(site.dir) / name, config.spec_digest())
    clock, stopping, board = SystemClock(), threading.Event(), Board()
    ends: list[Callable[[], None]] = []
    entropy = random.Random(f"{name} {clock.now()}")
    address = url or site.url

    def wait(seconds: float) -> bool:
        return pause(seconds, stopping)

    way = Way(address, name, clock, entropy.random, wait)
    weights = way if site.blobs is None else Way(site.blobs, name, clock, entropy.random, wait)

    def begin_heartbeat(session: SessionId, interval_ms: int) -> None:
        control = way.control()
        control.rtt_ms = parts.api.rtt_ms  # a slow way is known since the registration
        api = SiteApi(control, FOREVER_S)
        beats = Heartbeat(api, session, interval_ms, board, entropy.random())
        ends.extend((beats.stop, api.close))
        beats.start()

    if link is None:
        settings = trainer_settings(files, manifest, name, spool.directory)
        link = ProcessLink(settings, spool.directory / "trainer.log", ranks=site.ranks, launch=site.launch)
    parts = Parts(
        config=config,
        site=site,
        name=SiteName(name),
        clock=clock,
        api=SiteApi(way.control(), FOREVER_S),
        blobs=weights.blobs(),
        link=link,
        spool=spool,
        board=board,
        order=BlockOrder(Corpus(manifest.train.windows, config.data.block_windows), config.run.seed),
        fingerprint=fingerprint(config, manifest),
        begin_heartbeat=begin_heartbeat,
        ends_at=ends_at,
        connect_s=connect_s,
        version=__version__,
    )
    if config.round.overlap:
        parts.beside = Beside(SiteApi(way.control(), FOREVER_S), weights.blobs(), in_a_thread, wait)
        ends.append(parts.beside.close)
    return Site(Agent(parts), parts, stopping, ends)


def tokenizer_path(files: RunFiles) -> Path:
    return files.corpus_dir() / TOKENIZER
