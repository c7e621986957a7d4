"""S3-compatible servers on loopback, as processes of their own: moto's, and Ceph's where it is installed.

Tests run on moto's, and those that are `on_every_server` on both. With `CROSSTRAIN_TEST_S3=ceph` all run on Ceph's.
"""

from __future__ import annotations

import itertools
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import httpx
import pytest
from tests import ceph

from crosstrain.batch.command import spawn
from crosstrain.clock import SystemClock, pause
from crosstrain.demo.prepare import free_port
from crosstrain.storage.s3_bucket import Place, S3Bucket

PATIENCE_S = 60.0
BUCKET = "runs"
SETTINGS = {"S3_UPLOAD_PART_MIN_SIZE": "1", "MOTO_S3_DEFAULT_KEY_BUFFER_SIZE": "5000000"}
"""Parts of any size, so that small blobs have several."""
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@dataclass
class Server:
    """A running server with one bucket; every test has a prefix of its own."""

    url: str
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def place(self) -> Place:
        """A place that is empty."""
        return Place(BUCKET, f"run {next(self._numbers)}/", self.url, "us-east-1")


@contextmanager
def serve(kind: str) -> Iterator[Server]:
    """Runs a server; skips the test where it or boto3 is not installed."""
    for module in ("boto3", *MODULES[kind]):
        if find_spec(module) is None:
            pytest.skip(f"{module} is not installed")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (CREDENTIALS | SETTINGS).items():
            patch.setenv(name, value)
        with SERVERS[kind]() as url:
            S3Bucket(Place(BUCKET, "", url, "us-east-1"))._client.create_bucket(Bucket=BUCKET)
            yield Server(url)


@contextmanager
def _moto() -> Iterator[str]:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory(prefix="ct-s3-") as directory:
        argv = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        child = spawn(argv, log=Path(directory) / "log", cwd=Path(directory))
        try:
            _wait(url, Path(directory) / "log")
            yield url
        finally:
            child.kill_group()
            child.wait(10)


@contextmanager
def _ceph(least_part: int) -> Iterator[str]:
    if absent := ceph.missing():
        pytest.skip(f"Ceph is not installed: there is no {', '.join(absent)}")
    with ceph.serve(least_part) as cluster:
        cluster.add_user(CREDENTIALS["AWS_ACCESS_KEY_ID"], CREDENTIALS["AWS_SECRET_ACCESS_KEY"])
        yield cluster.url


def _wait(url: str, log: Path) -> None:
    end = SystemClock().perf() + PATIENCE_S
    while True:
        try:
            if httpx.get(url, timeout=5).status_code < 500:
                return
        except httpx.TransportError:
            pass
        assert SystemClock().perf() < end, log.read_text()
        pause(0.05)


SERVERS = {"moto": _moto, "ceph": partial(_ceph, 1), "limits": partial(_ceph, 5 << 20)}
"""`limits` are those that Ceph has where nobody lifted them."""
MODULES = {"moto": ("moto", "flask", "flask_cors"), "ceph": (), "limits": ()}
CHOSEN = os.environ.get("CROSSTRAIN_TEST_S3", "moto")
on_every_server = pytest.mark.parametrize("s3", sorted({CHOSEN, "ceph"}), indirect=True)
