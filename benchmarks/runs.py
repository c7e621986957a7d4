"""What the load goes to: a coordinator with many sites, a server that does nothing, and a bare SQLite file."""

from __future__ import annotations

import json
import sqlite3
import sys
import time
from pathlib import Path
from socket import create_connection, create_server
from typing import Any, Self

import httpx
import numpy as np
from load import Load, request
from sqlalchemy import Connection

from crosstrain import __version__
from crosstrain.assembly import DATABASE, OBJECTS, RunFiles, build_service, fingerprint, load_corpus, open_run
from crosstrain.batch.command import Child, spawn
from crosstrain.clock import SystemClock
from crosstrain.coordinator import leases
from crosstrain.coordinator.service import Service
from crosstrain.corpus.manifest import BuildRecord, Manifest, SplitRecord, digest_content
from crosstrain.domain.ids import SessionId, Token
from crosstrain.runfile import Local, write_run_file
from crosstrain.storage.database import Work, open_sqlite
from crosstrain.storage.object_store import LocalObjectStore, digest_file
from crosstrain.storage.weights_file import Entry, WeightsWriter
from crosstrain.wire.messages import PROTOCOL, NextReply, NextRequest, ReleaseRequest

BLOCKS = 1_000_000
BLOCK_WINDOWS = 8
GRANTS = 400
"""Sites that give their leases back and ask again, in one measurement of grants."""
NO_DIGEST = "0" * 64


class Server:
    """A process that listens on a port of its own."""

    def __init__(self) -> None:
        with create_server(("127.0.0.1", 0)) as probe:
            self.port: int = probe.getsockname()[1]
        self._child: Child | None = None

    def start(self, argv: list[str], log: Path, program: str = sys.executable) -> None:
        self._child = spawn([program, *argv], log=log)
        for _ in range(600):
            try:
                create_connection(("127.0.0.1", self.port)).close()
                return
            except ConnectionError:
                if self._child.poll() is not None:
                    raise RuntimeError(log.read_text()) from None
                time.sleep(0.05)
        raise RuntimeError(f"nothing listens on port {self.port}")

    @property
    def pid(self) -> int:
        assert self._child is not None
        return self._child.pid

    def __exit__(self, *_: object) -> None:
        if self._child is not None:
            self._child.kill_group()


class EmptyServer(Server):
    """`serve_empty`, with the settings of `crosstrain coordinator`."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._log = directory / "empty.log"

    def __enter__(self) -> Self:
        self.start([str(Path(__file__).with_name("empty_server.py")), str(self.port)], self._log)
        return self


class Coordinator(Server):
    """A coordinator process of 10^6 blocks whose sites all hold a lease, and have been measured before."""

    def __init__(self, directory: Path, sites: int) -> None:
        super().__init__()
        self._directory = directory
        self._files = prepare(directory, self.port)
        self._sites = sites
        self._held: dict[int, int] = {}

    def __enter__(self) -> Self:
        self._start()
        with httpx.Client(base_url=f"http://127.0.0.1:{self.port}/v1/", timeout=60) as http:
            sessions = [self._register(http, number) for number in range(self._sites)]
            self._make_generation_0(http, sessions[0])
        self.__exit__()
        measured(self._files.coordinator_dir / DATABASE)
        self._start()
        with Load() as load:
            self._lease(load, sessions)
        return self

    def _start(self) -> None:
        self.start(["-m", "crosstrain", "-q", "coordinator", str(self._files.path)], self._directory / "log")

    def heartbeats(self) -> list[bytes]:
        """One of each site, as a training site sends it."""
        return [
            request(
                f"/v1/sessions/{session}/beat",
                {
                    "phase": "training",
                    "done": 7,
                    "total": 20,
                    "token": token,
                    "blocks": 3,
                    "kept": None,
                    "loss": 4.5,
                    "detail": f"lease {token}, 3 of 10 blocks",
                    "rtt_ms": 70.0,
                },
            )
            for session, token in self._held.items()
        ]

    def grant_rate(self, load: Load) -> float:
        """Grants per second, to sites that gave their leases back before."""
        sessions = list(self._held)[:GRANTS]
        load.once(self.port, [self._release(session, self._held[session]) for session in sessions])
        return self._lease(load, sessions)

    def service(self) -> Service:
        """The same run in this process, for its transactions without HTTP; ends the coordinator's process."""
        self.__exit__()
        directory = self._files.coordinator_dir
        database, objects = open_sqlite(directory / DATABASE), LocalObjectStore(directory / OBJECTS)
        manifest = load_corpus(self._files)
        return build_service(self._files.config, manifest, database, objects, directory / "work", SystemClock())

    def transaction_rate(self, service: Service, together: int) -> float:
        """Grants per second without HTTP, so many in each transaction."""
        sessions = list(self._held)[:GRANTS]
        now = service.clock.now()
        for session in sessions:
            release = ReleaseRequest(session=session, reason="measured")
            with service.database.write() as connection:
                leases.release(service, connection, Token(self._held[session]), release, now)
        asks = [self._ask(service, SessionId(session)) for session in sessions]
        begun = time.perf_counter()
        outcomes = [
            outcome
            for first in range(0, len(asks), together)
            for outcome in service.database.write_all(asks[first : first + together])
        ]
        taken = time.perf_counter() - begun
        for session, outcome in zip(sessions, outcomes, strict=True):
            assert outcome.value is not None and outcome.value.lease is not None, outcome
            self._held[session] = outcome.value.lease.token
        return len(sessions) / taken

    def _ask(self, service: Service, session: SessionId) -> Work[NextReply]:
        def ask(connection: Connection) -> NextReply:
            return leases.next_work(service, connection, session, NextRequest(holds=0), service.clock.now())

        return ask

    def rss_mib(self) -> float:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * 4096 / 2**20

    def _lease(self, load: Load, sessions: list[int]) -> float:
        asks = [request(f"/v1/sessions/{session}/next", {"holds": 0}) for session in sessions]
        rate, bodies = load.once(self.port, asks)
        # Load deals the requests out to its processes, which answer out of order: the database knows who holds what.
        assert all(json.loads(body)["work"] == "train" for body in bodies), bodies[0]
        with sqlite3.connect(f"file:{self._files.coordinator_dir / DATABASE}?mode=ro", uri=True) as database:
            self._held.update(database.execute("SELECT session, token FROM leases WHERE state = 'live'").fetchall())
        database.close()
        return rate

    def _release(self, session: int, token: int) -> bytes:
        return request(f"/v1/leases/{token}/release", {"session": session, "reason": "measured"})

    def _register(self, http: httpx.Client, number: int) -> int:
        document: dict[str, Any] = {
            "protocol": PROTOCOL,
            "version": __version__,
            "site": f"site-{number:04d}",
            "ranks": 4,
            "windows_per_step": 4,
            "fingerprint": fingerprint(self._files.config, load_corpus(self._files)).model_dump(),
        }
        return int(http.post("sessions", json=document).raise_for_status().json()["session"])

    def _make_generation_0(self, http: httpx.Client, session: int) -> None:
        path = self._directory / "weights"
        with WeightsWriter(path, [Entry("w", "F32", (8,))]) as writer:
            writer.write("w", np.ones(8, np.float32))
        digest = digest_file(path)
        data = path.read_bytes()
        http.put(f"blobs/{digest}?offset=0&total={len(data)}", content=data).raise_for_status()
        http.post(f"sessions/{session}/initial", json={"weights": digest}).raise_for_status()


def prepare(directory: Path, port: int, rounds: int = 100, lease: str = "", outer_round: str = "") -> RunFiles:
    """A run file, and of its corpus what a coordinator reads: the manifest.

    Args:
        lease, outer_round: further lines of `[lease]` and `[round]`.
    """
    corpus = directory / "corpus"
    corpus.mkdir()
    windows = BLOCKS * BLOCK_WINDOWS
    split = SplitRecord(tokens=windows + 1, windows=windows, documents=1, sha256=NO_DIGEST)
    manifest = Manifest(
        seq_len=1,
        dtype="uint16",
        vocab_size=256,
        eot_token_id=0,
        train=split,
        heldout=split,
        heldout_rule="documents",
        tokenizer_sha256=NO_DIGEST,
        content_sha256=digest_content(1, "uint16", split, split),
        sources=(),
        duplicates=0,
        duplicates_dropped=0,
        build=BuildRecord(options={}, inputs_sha256=NO_DIGEST),
        created_with=__version__,
    )
    manifest.save(corpus)
    path = directory / "RUN.toml"
    # Nothing may lapse while a measurement leaves the sites silent.
    patience = f"ttl_floor_s = 3600.0\nphase_patience_s = 36000.0\n{lease}"
    url = f"http://127.0.0.1:{port}"
    local = Local(url, port, rounds, heldout_windows=0, lease=patience, outer_round=outer_round)
    write_run_file(path, "ledger", "tiny", corpus, manifest, local)
    return open_run(path)


def measured(database: Path) -> None:
    """Gives every site a rate, as its first contributed phase would."""
    with sqlite3.connect(database) as connection:
        connection.execute("UPDATE sites SET rate = 0.5 + (rowid % 7) / 10.0, progress_ms = 200.0, rtt_ms = 70.0")
    connection.close()


def bare_inserts(directory: Path, seconds: float) -> float:
    """One-row transactions per second of a single client. More clients would be slower: SQLite lets one write at a time, and
    whoever finds the lock taken sleeps."""
    connection = sqlite3.connect(directory / "bare.sqlite", isolation_level=None)
    for pragma in ("journal_mode=WAL", "synchronous=FULL"):
        connection.execute(f"PRAGMA {pragma}")
    connection.execute("CREATE TABLE IF NOT EXISTS rows (id INTEGER PRIMARY KEY, text TEXT)")
    count, begun = 0, time.perf_counter()
    while (taken := time.perf_counter() - begun) < seconds:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO rows (text) VALUES (?)", ("a row as long as a short sentence",))
        connection.execute("COMMIT")
        count += 1
    connection.close()
    return count / taken
