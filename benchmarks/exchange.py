"""Whole exchanges of crosstrain: a real coordinator process, and sites without trainers in processes of their own."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Self

from ballast import warm
from exchange_site import Moments, SiteSpec, serve
from processes import cpu_seconds, family, usage
from runs import BLOCK_WINDOWS, Server, prepare

from crosstrain.assembly import DATABASE, OBJECTS, fingerprint, load_corpus

ENDLESS = 1_000_000
LEASE = "heartbeat_s = 0.4"
"""A waiting site asks four times as often, so that it learns of the new generation within 0.1 s."""


@dataclass(frozen=True)
class Cost:
    """What one exchange took.

    Attributes:
        download_s: from the first site's question until the last site has the weights, None if unknown.
        transfer_s: until the last byte of the last delta is there, verified and durable.
        judged_s: until the last contribution is accepted.
        exchange_s: until the last site knows of the next generation; merge and publication are in.
        server_cpu_s, client_cpu_s: of all processes on each side.
        server_peak_mib, client_peak_mib: resident set since the process began; of clients the largest one, None if unknown.
    """

    download_s: float | None
    transfer_s: float
    judged_s: float
    exchange_s: float
    server_cpu_s: float
    client_cpu_s: float
    server_peak_mib: float
    client_peak_mib: float | None


class ExchangeCoordinator(Server):
    """The coordinator of a run that begins when all sites are there."""

    def __init__(self, directory: Path, sites: int) -> None:
        super().__init__()
        self._log = directory / "coordinator.log"
        self.files = prepare(directory, self.port, ENDLESS, LEASE, f"start_when_sites = {sites}")

    def __enter__(self) -> Self:
        self.start(["-m", "crosstrain", "-q", "coordinator", str(self.files.path)], self._log)
        return self

    @property
    def weights(self) -> Path:
        """What sites download next."""
        digest = self._newest()[0]
        return self.files.coordinator_dir / OBJECTS / digest[:2] / digest

    def drop_old_blobs(self) -> None:
        """Removes what only past generations used, so that the disk holds one exchange and not all of them."""
        kept = self._newest()
        for path in (self.files.coordinator_dir / OBJECTS).glob("[0-9a-f][0-9a-f]/*"):
            if path.name not in kept:
                path.unlink()

    def _newest(self) -> tuple[str, ...]:
        with closing(sqlite3.connect(f"file:{self.files.coordinator_dir / DATABASE}?mode=ro", uri=True)) as database:
            query = "SELECT weights, master, momentum FROM generations ORDER BY number DESC LIMIT 1"
            return tuple(database.execute(query).fetchone())


class SiteProcess:
    """A site at the other end of a pipe."""

    def __init__(self, spec: SiteSpec) -> None:
        context = get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process: BaseProcess = context.Process(target=serve, args=(theirs, spec), daemon=True)
        self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def pipe(self) -> Connection:
        return self._pipe

    def order(self, *words: Any) -> None:
        self._pipe.send(words)

    def close(self) -> None:
        self._process.kill()
        self._process.join()


class Exchanges:
    """A run whose sites exchange when they are told to.

    Args:
        mib: size of the model in bf16.
    """

    def __init__(self, directory: Path, mib: float, sites: int) -> None:
        directory.mkdir()
        self._coordinator = ExchangeCoordinator(directory, sites)
        files = self._coordinator.files
        manifest = load_corpus(files)
        identity = fingerprint(files.config, manifest).model_dump()
        self.url = f"http://127.0.0.1:{self._coordinator.port}"
        self.objects = files.coordinator_dir / OBJECTS
        self._specs = [
            SiteSpec(number, self.url, directory / f"site-{number}", identity, BLOCK_WINDOWS, manifest.seq_len, mib)
            for number in range(sites)
        ]
        self._sites: list[SiteProcess] = []
        self._done = 0

    def __enter__(self) -> Self:
        self._coordinator.__enter__()
        try:
            self._sites = [SiteProcess(spec) for spec in self._specs]
            self._answers()
            self._sites[0].order("initialise")
            self._sites[0].pipe.recv()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for site in self._sites:
            site.close()
        self._coordinator.__exit__()

    def prepare(self) -> None:
        """What must be there before an exchange, and is not a part of it."""
        self._done += 1
        self._all("prepare", self._done)
        warm([self._coordinator.weights])

    def clear(self) -> None:
        """Removes what an exchange made and the next one does not need."""
        self._coordinator.drop_old_blobs()
        self._all("clear")

    def run(self, streams: int | None = None, proxy: Server | None = None, url: str = "") -> Cost:
        """One exchange of all sites.

        Args:
            streams: of each transfer; None takes the client's default.
            proxy, url: another way to the coordinator, whose processor time is the server's then.
        """
        before = self._cpu(proxy)
        moments: list[Moments] = self._all("exchange", url or self.url, streams)
        after = self._cpu(proxy)
        begun = min(each.begun for each in moments)
        return Cost(
            download_s=max(each.downloaded for each in moments) - begun,
            transfer_s=max(each.uploaded for each in moments) - begun,
            judged_s=max(each.contributed for each in moments) - begun,
            exchange_s=max(each.published for each in moments) - begun,
            server_cpu_s=after[0] - before[0],
            client_cpu_s=after[1] - before[1],
            server_peak_mib=usage(self._coordinator.pid).peak_mib,
            client_peak_mib=max(usage(site.pid).peak_mib for site in self._sites),
        )

    def _cpu(self, proxy: Server | None) -> tuple[float, float]:
        servers = family(self._coordinator.pid) + (family(proxy.pid) if proxy else [])
        return sum(map(cpu_seconds, servers)), sum(cpu_seconds(site.pid) for site in self._sites)

    def _all(self, *order: Any) -> list[Any]:
        for site in self._sites:
            site.order(*order)
        return self._answers()

    def _answers(self) -> list[Any]:
        return [site.pipe.recv() for site in self._sites]
