"""A Ceph cluster of the tests' own with its S3 gateway: one monitor, one daemon that keeps objects in memory, one gateway."""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from crosstrain.batch.command import Child, run, spawn
from crosstrain.clock import SystemClock, pause
from crosstrain.demo.prepare import free_port

PATIENCE_S = 60.0
PROGRAMS = ("ceph", "ceph-authtool", "ceph-mon", "ceph-osd", "monmaptool", "radosgw", "radosgw-admin")
"""Debian's packages ceph-mon, ceph-osd and radosgw have them."""
SETTINGS = """\
[global]
fsid = {fsid}
mon host = v2:127.0.0.1:{monitor}
public addr = 127.0.0.1
keyring = {directory}/keyring
admin socket =
run dir = {directory}
log file = {directory}/$name.log
mon cluster log file = {directory}/cluster.log
mon data = {directory}/mon
mon data avail crit = 0
paxos propose interval = 0.02
paxos min wait = 0.01
mon allow pool size one = true
osd data = {directory}/osd
osd objectstore = memstore
osd crush chooseleaf type = 0
osd pool default size = 1
osd pool default pg num = 1
osd pool default pg autoscale mode = off
rgw frontends = beast endpoint=127.0.0.1:{port} tcp_nodelay=1
rgw multipart min part size = {least_part}
"""
"""Waiting for more changes before a change is agreed on is for many monitors: with it a start takes 20 s."""
CAPABILITIES = {
    "mon.": ("mon", "allow *"),
    "client.admin": ("mon", "allow *", "osd", "allow *"),
    "osd.0": ("mon", "allow profile osd", "osd", "allow *"),
}


def missing() -> list[str]:
    """Programs that are not installed."""
    return [name for name in PROGRAMS if shutil.which(name) is None]


class Ceph:
    """A running cluster, whose gateway can be ended and started again.

    Attributes:
        url: the gateway's.
    """

    def __init__(self, directory: Path, least_part: int) -> None:
        self._directory, self._port = directory, free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self._daemons: dict[str, Child] = {}
        self._conf = directory / "ceph.conf"
        self._fsid, self._monitor = str(uuid.uuid4()), free_port()
        self._conf.write_text(
            SETTINGS.format(
                fsid=self._fsid, monitor=self._monitor, port=self._port, directory=directory, least_part=least_part
            )
        )

    def start(self) -> None:
        monmap, keyring, osd = str(self._directory / "monmap"), str(self._directory / "keyring"), str(uuid.uuid4())
        create = ["--create-keyring"]
        for name, capabilities in CAPABILITIES.items():
            pairs = zip(capabilities[::2], capabilities[1::2], strict=True)
            caps = [word for pair in pairs for word in ("--cap", *pair)]
            self._call("ceph-authtool", *create, keyring, "--gen-key", "-n", name, *caps)
            create = []
        address = f"[v2:127.0.0.1:{self._monitor}]"
        self._call("monmaptool", "--create", "--addv", "a", address, "--fsid", self._fsid, monmap)
        for place in ("mon", "osd"):
            (self._directory / place).mkdir()
        self._call("ceph-mon", "-i", "a", "--mkfs", "--monmap", monmap, "--keyring", keyring)
        self._spawn("ceph-mon", "-i", "a")
        self._call("ceph", "--connect-timeout", "30", "osd", "new", osd)
        self._call("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", osd)
        self._spawn("ceph-osd", "-i", "0")
        self.start_gateway()

    def start_gateway(self) -> None:
        """Starts the gateway and waits for its answer."""
        self._spawn("radosgw", "-n", "client.admin")
        end = SystemClock().perf() + PATIENCE_S
        while True:
            try:
                if httpx.get(self.url, timeout=5).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            assert SystemClock().perf() < end, self._said("radosgw")
            pause(0.05)

    def end(self, program: str) -> None:
        """Ends a daemon at once."""
        self._daemons.pop(program).kill_group()

    def end_all(self) -> None:
        for program in list(self._daemons):
            self.end(program)

    def add_user(self, name: str, secret: str) -> None:
        """An account whose access key is its name."""
        self._call(
            "radosgw-admin", "user", "create", "--uid", name, "--display-name", name, "--access-key", name,
            "--secret", secret,
        )  # fmt: skip

    def _call(self, program: str, *words: str) -> str:
        done = run([program, "-c", str(self._conf), *words], timeout=PATIENCE_S)
        assert done.code == 0, f"{program} {' '.join(words)}: {done.stderr}"
        return done.stdout

    def _spawn(self, program: str, *words: str) -> None:
        # It goes when the session does, also when that is killed.
        prefix = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        argv = [*prefix, program, "-c", str(self._conf), "-f", *words]
        self._daemons[program] = spawn(argv, log=self._directory / f"{program}.out")

    def _said(self, program: str) -> str:
        return (self._directory / f"{program}.out").read_text()


@contextmanager
def serve(least_part: int) -> Iterator[Ceph]:
    """Runs a cluster.

    Args:
        least_part: bytes that every part but the last of an upload must have.
    """
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="ct-ceph-", dir=memory if os.access(memory, os.W_OK) else None) as name:
        cluster = Ceph(Path(name), least_part)
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.end_all()
