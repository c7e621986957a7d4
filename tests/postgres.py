"""A PostgreSQL server of the test session's own: on a socket in a temporary directory, without fsync, gone at the end."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from crosstrain.batch.command import run, spawn
from crosstrain.clock import SystemClock, pause

PATIENCE_S = 60.0
ACCOUNT = "postgres"
"""Whose processes the server's are when the tests run as root, whom it refuses."""


def programs() -> Path | None:
    """Where initdb and postgres are, None if they are not installed."""
    places = [Path(found).parent for found in [shutil.which("initdb")] if found]
    debian = Path("/usr/lib/postgresql")
    places += sorted(debian.glob("*/bin"), key=lambda path: int(path.parent.name), reverse=True)
    return next((place for place in places if (place / "initdb").exists() and (place / "postgres").exists()), None)


class Server:
    """A running server; every test gets a schema of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._numbers = itertools.count(1)

    def address(self, **parameters: str) -> str:
        """The database's address, with libpq parameters."""
        query = "&".join(f"{name}={value}" for name, value in {"host": str(self.directory), **parameters}.items())
        return f"postgresql://tester@/postgres?{query}"

    def fresh(self) -> str:
        """The address of an empty schema."""
        name = f"t{next(self._numbers)}"
        self.execute(f"CREATE SCHEMA {name}")
        return self.address(options=f"-csearch_path%3D{name}")

    def execute(self, statement: str) -> list[tuple[object, ...]]:
        with psycopg.connect(self.address(), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []


@contextmanager
def serve(binaries: Path) -> Iterator[Server]:
    memory = Path("/dev/shm")
    directory = Path(tempfile.mkdtemp(prefix="ct-pg-", dir=memory if os.access(memory, os.W_OK) else None))
    # The server goes when the session does, also when that is killed.
    prefix = ["setpriv", "--pdeathsig", "INT"] if shutil.which("setpriv") else []
    if os.geteuid() == 0:
        account = pwd.getpwnam(ACCOUNT)
        os.chown(directory, account.pw_uid, account.pw_gid)
        prefix += [f"--reuid={ACCOUNT}", f"--regid={ACCOUNT}", "--init-groups"]
    data = directory / "data"
    settings = [
        "listen_addresses=",
        "fsync=off",
        "synchronous_commit=off",
        "full_page_writes=off",
        "shared_buffers=16MB",
    ]
    try:
        initdb = [str(binaries / "initdb"), "-D", str(data), "-U", "tester", "-A", "trust", "--no-sync", "--locale=C"]
        made = run([*prefix, *initdb, "-E", "UTF8"], timeout=PATIENCE_S)
        assert made.code == 0, made.stderr
        options = [word for setting in settings for word in ("-c", setting)]
        argv = [*prefix, str(binaries / "postgres"), "-D", str(data), "-k", str(directory), *options]
        child = spawn(argv, log=directory / "log")
        try:
            server = Server(directory)
            _await(server)
            yield server
        finally:
            child.kill_group()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _await(server: Server) -> None:
    clock = SystemClock()
    deadline = clock.perf() + PATIENCE_S
    while True:
        try:
            server.execute("SELECT 1")
        except psycopg.OperationalError:
            assert clock.perf() < deadline, (server.directory / "log").read_text()
            pause(0.02)
        else:
            return
