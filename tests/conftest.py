"""Fixtures and settings for all tests."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from tests import s3 as s3_server
from tests.databases import KINDS, SHARED, Backend, backends
from tests.postgres import Server, programs, serve

from crosstrain.batch.command import run

# The same examples every time: a failure in CI is a failure here. HYPOTHESIS_PROFILE=search looks for new ones.
_COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]}
settings.register_profile("fixed", max_examples=25, derandomize=True, database=None, **_COMMON)
settings.register_profile("search", max_examples=1000, **_COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))

# A shell that starts the suite in the background has it ignore ^C, and so would every process that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

_MEMORY = Path("/dev/shm")
_TOGETHER = ("slurm", "flower")
"""Directories whose tests share an expensive fixture, and so a worker."""
_ALONE = ("simulation",)
"""Directories whose tests share nothing, and last long."""
_FIRST = ("slurm", "system", "simulation", "relay", "collector", "site")
"""The long ones, so that no worker is left alone with one at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long tests first."""
    place = {name: number for number, name in enumerate(_FIRST)}
    items.sort(key=lambda item: place.get(_directory(item.nodeid), len(_FIRST)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """The tests of a file in one worker. xdist's own groups are names that it appends to a test's, which pytest 9.2 does not let it."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            directory = _directory(nodeid)
            if directory in _ALONE:
                return nodeid
            return directory if directory in _TOGETHER else nodeid.partition("::")[0]

    return ByFile(config, log)


def _directory(nodeid: str) -> str:
    return nodeid.split("/")[1]


@pytest.fixture
def fast_tmp(tmp_path: Path) -> Iterator[Path]:
    """A directory where fsync costs nothing, for tests that write hundreds of blobs; `tmp_path` where there is none."""
    if not os.access(_MEMORY, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="crosstrain-", dir=_MEMORY) as directory:
        yield Path(directory)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """The session's PostgreSQL server, started for the first test that needs one."""
    binaries = programs()
    if binaries is None:
        pytest.skip("PostgreSQL is not installed: there is neither initdb on PATH nor Debian's in /usr/lib/postgresql")
    with serve(binaries) as server:
        yield server


@pytest.fixture(scope="session")
def s3_servers() -> Iterator[Callable[[str], s3_server.Server]]:
    """The session's S3-compatible servers by their kinds, each started for the first test that needs it."""
    with ExitStack() as running:
        yield cache(lambda kind: running.enter_context(s3_server.serve(kind)))


@pytest.fixture
def s3(request: pytest.FixtureRequest, s3_servers: Callable[[str], s3_server.Server]) -> s3_server.Server:
    return s3_servers(getattr(request, "param", s3_server.CHOSEN))


@pytest.fixture(params=KINDS)
def new_backend(request: pytest.FixtureRequest, fast_tmp: Path) -> Iterator[Callable[[], Backend]]:
    """Makes empty databases of each kind."""
    with backends(request.param, fast_tmp, lambda: request.getfixturevalue("postgres")) as make:
        yield make


@pytest.fixture(params=SHARED)
def shared_backend(request: pytest.FixtureRequest, fast_tmp: Path) -> Iterator[Backend]:
    """An empty database that several processes can open, of each kind."""
    with backends(request.param, fast_tmp, lambda: request.getfixturevalue("postgres")) as make:
        yield make()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 160 MiB."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root may mount a file system that fills up")
    made = run(["mount", "-t", "tmpfs", "-o", "size=160m", "none", str(tmp_path)], timeout=10)
    if made.code:
        pytest.skip(f"mount says: {made.stderr.strip()}")
    yield tmp_path
    run(["umount", str(tmp_path)], timeout=10)


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A directory in which nobody may write, also not root: a file system that is mounted so."""
    place = tmp_path / "read-only"
    place.mkdir(mode=0o500)
    if os.geteuid() != 0:
        yield place
        return
    made = run(["mount", "-t", "tmpfs", "-o", "ro,size=1m", "none", str(place)], timeout=10)
    if made.code:
        pytest.skip(f"mount says: {made.stderr.strip()}")
    yield place
    run(["umount", str(place)], timeout=10)
