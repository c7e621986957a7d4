"""The least that moving these bytes can cost: nginx with sendfile and WebDAV, curl, and fsync of every file at both ends.

There is no digest in it, no judgement and no control message; and instead of a merge, copies of files of the same size.
"""

from __future__ import annotations

import getpass
import itertools
import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from ballast import warm
from exchange import Cost, Exchanges
from processes import cpu_seconds, family, usage
from runs import Server

from crosstrain.batch.command import run
from crosstrain.coordinator.nginx import Front, nginx_configuration
from crosstrain.disk import sync_directory
from crosstrain.errors import EnvironmentFault

CURL = ("curl", "--silent", "--show-error", "--fail", "--max-time", "600")

CONFIG = """
daemon off;
{user}
worker_processes 2;
pid {directory}/nginx.pid;
error_log {directory}/error.log;
events {{}}
http {{
  access_log off;
  client_body_temp_path {directory}/incoming;
  proxy_temp_path {directory}/proxied;
  {server}
}}
"""
STORE = """server {{
    listen 127.0.0.1:{port}{tls};
    sendfile on;
    tcp_nopush on;
    client_max_body_size 0;
    root {directory}/files;
    location / {{ dav_methods PUT; create_full_put_path on; }}
  }}"""


@dataclass(frozen=True)
class Certificate:
    """Self-signed, for 127.0.0.1."""

    certificate: Path
    key: Path


def make_certificate(directory: Path) -> Certificate:
    """Raises EnvironmentFault: openssl is missing or refuses."""
    made = Certificate(directory / "certificate.pem", directory / "key.pem")
    argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    argv += ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    done = run([*argv, "-keyout", str(made.key), "-out", str(made.certificate)], timeout=30)
    if done.code:
        raise EnvironmentFault(f"openssl made no certificate: {done.stderr}", "is its version 3?")
    return made


class Nginx(Server):
    """An nginx with a directory and a port of its own."""

    def __init__(self, directory: Path, certificate: Certificate | None) -> None:
        super().__init__()
        self._directory, self._certificate = directory, certificate
        self.url = f"{'https' if certificate else 'http'}://127.0.0.1:{self.port}"

    def serve(self, server: str) -> None:
        """Starts it.

        Args:
            server: what is in the http block of its configuration.
        """
        program = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
        if program is None or shutil.which("curl") is None:
            raise EnvironmentFault("nginx or curl is not installed.", "on Debian: apt-get install nginx-light curl")
        self._directory.mkdir(exist_ok=True)
        # Workers of a master that root started belong to nobody otherwise, who may not write here.
        user = f"user {getpass.getuser()};" if os.geteuid() == 0 else ""
        config = self._directory / "nginx.conf"
        config.write_text(CONFIG.format(directory=self._directory, user=user, server=server))
        self.start(["-c", str(config), "-p", str(self._directory)], self._directory / "log", program)


class TlsFront(Nginx):
    """TLS before a coordinator, as `crosstrain nginx` configures it."""

    def __init__(self, directory: Path, coordinator: Exchanges, certificate: Certificate) -> None:
        super().__init__(directory, certificate)
        self._front = Front(
            run="transfer",
            listen=f"127.0.0.1:{self.port}",
            name="127.0.0.1",
            certificate=certificate.certificate,
            key=certificate.key,
            backend=coordinator.url.removeprefix("http://"),
            objects=coordinator.objects,
        )

    def __enter__(self) -> Self:
        self.serve(nginx_configuration(self._front))
        return self


class Floor(Nginx):
    """nginx over a directory, and as many uploading and downloading sites as are wanted.

    Args:
        wire: the file that every site downloads, and as many bytes as every site uploads.
        merged: files as large as those that a merge writes.
        certificate: None speaks plain HTTP.
    """

    def __init__(
        self, directory: Path, wire: Path, merged: Sequence[int], sites: int, certificate: Certificate | None
    ) -> None:
        super().__init__(directory, certificate)
        self._wire, self._merged, self._sites = wire, merged, sites
        self._bytes = wire.stat().st_size

    def __enter__(self) -> Self:
        files = self._directory / "files"
        files.mkdir(parents=True)
        os.link(self._wire, files / "base")
        tls = ""
        if made := self._certificate:
            tls = f" ssl; ssl_certificate {made.certificate}; ssl_certificate_key {made.key}"
        self.serve(STORE.format(directory=self._directory, port=self.port, tls=tls))
        return self

    def prepare(self, streams: int) -> None:
        """Cuts what the sites send, and has all that is sent in the page cache."""
        for site in range(self._sites):
            (self._directory / f"got-{site}").mkdir(exist_ok=True)
        for number, (begin, end) in enumerate(self._ranges(streams)):
            self._part(streams, number).parent.mkdir(exist_ok=True)
            if not self._part(streams, number).exists():
                copy_durably(self._wire, self._part(streams, number), [(begin, end)])
        warm([self._wire, *(self._part(streams, number) for number in range(streams))])

    def clear(self) -> None:
        """Removes what an exchange made."""
        shutil.rmtree(self._directory / "files" / "deltas", ignore_errors=True)
        for site in range(self._sites):
            shutil.rmtree(self._directory / f"got-{site}", ignore_errors=True)
        for made in self._directory.glob("merged-*"):
            made.unlink()

    def run(self, streams: int) -> Cost:
        """One exchange of all sites: each downloads, then uploads; at the end the merge's bytes are written.

        Args:
            streams: ranges or parts of a file that one site moves at a time, each with a curl of its own.
        """
        workers = family(self.pid)
        before = sum(cpu_seconds(pid) for pid in workers)
        begun = time.perf_counter()
        with ThreadPoolExecutor(self._sites) as pool:
            done = list(pool.map(lambda site: self._exchange(site, streams), range(self._sites)))
        transferred = time.perf_counter()
        for number, size in enumerate(self._merged):
            pieces = [(0, min(self._bytes, size - begin)) for begin in range(0, size, self._bytes)]
            copy_durably(self._wire, self._directory / f"merged-{number}", pieces)
        ended = time.perf_counter()
        return Cost(
            download_s=max(downloaded for downloaded, _ in done) - begun,
            transfer_s=transferred - begun,
            judged_s=transferred - begun,
            exchange_s=ended - begun,
            server_cpu_s=sum(cpu_seconds(pid) for pid in workers) - before,
            client_cpu_s=sum(used for _, used in done),
            server_peak_mib=usage(self.pid).peak_mib,
            client_peak_mib=None,
        )

    def _exchange(self, site: int, streams: int) -> tuple[float, float]:
        """When the download was done, and the CPU seconds of the curls."""
        got = self._directory / f"got-{site}"

        def download(number: int) -> float:
            begin, end = self._ranges(streams)[number]
            words = ["--range", f"{begin}-{end - 1}"] if streams > 1 else []
            used = self._curl(*words, "--output", str(got / str(number)), f"{self.url}/base")
            sync_file(got / str(number))
            return used

        def upload(number: int) -> float:
            name = f"deltas/{site}-{number}"
            used = self._curl("--upload-file", str(self._part(streams, number)), f"{self.url}/{name}")
            sync_file(self._directory / "files" / name)
            return used

        with ThreadPoolExecutor(streams) as pool:
            down = list(pool.map(download, range(streams)))
            downloaded = time.perf_counter()
            up = list(pool.map(upload, range(streams)))
        sync_directory(self._directory / "files" / "deltas")
        return downloaded, sum(down) + sum(up)

    def _curl(self, *words: str) -> float:
        """Runs curl; its CPU seconds. Raises EnvironmentFault: it failed."""
        trusted = ["--cacert", str(self._certificate.certificate)] if self._certificate else []
        process = subprocess.Popen([*CURL, *trusted, *words], stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise EnvironmentFault(f"curl {' '.join(words)} ended with code {process.returncode}.")
        return used.ru_utime + used.ru_stime

    def _ranges(self, streams: int) -> list[tuple[int, int]]:
        cuts = [self._bytes * number // streams for number in range(streams + 1)]
        return list(itertools.pairwise(cuts))

    def _part(self, streams: int, number: int) -> Path:
        return self._directory / f"parts-{streams}" / str(number)


def copy_durably(source: Path, target: Path, pieces: Sequence[tuple[int, int]]) -> None:
    """Writes pieces of a file, [begin, end) each, one after the other to a new one, without a copy in this process."""
    target.unlink(missing_ok=True)
    with source.open("rb") as reader, target.open("wb") as writer:
        for begin, end in pieces:
            at = begin
            while at < end:
                at += os.sendfile(writer.fileno(), reader.fileno(), at, end - at)
        os.fsync(writer.fileno())


def sync_file(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
