"""A site without a trainer: one process that sends the real messages and moves the real blobs, told when by a pipe."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from synthetic import stamp, write_weights

from crosstrain import __version__
from crosstrain.clock import SystemClock, pause
from crosstrain.domain.ids import Digest, SessionId, Token
from crosstrain.storage.object_store import digest_file
from crosstrain.wire import messages
from crosstrain.wire.client import ControlClient
from crosstrain.wire.crew import Labour, Threads
from crosstrain.wire.site_api import SiteApi
from crosstrain.wire.transfer import BlobClient

DEADLINE_S = 600.0
WINDOWS_PER_STEP = 4


@dataclass(frozen=True)
class SiteSpec:
    """Where a site is and what it registers with; `url` may change from one exchange to the next."""

    number: int
    url: str
    directory: Path
    fingerprint: dict[str, Any]
    block_windows: int
    seq_len: int
    mib: float


@dataclass(frozen=True)
class Moments:
    """When each step of one exchange was done, on the system's monotonic clock."""

    begun: float
    downloaded: float
    uploaded: float
    contributed: float
    published: float


class ExchangeSite:
    """One session."""

    def __init__(self, spec: SiteSpec) -> None:
        self._spec = spec
        self._entropy = random.Random(spec.number)
        self._api = SiteApi(ControlClient(spec.url, SystemClock(), self._entropy.random, pause), DEADLINE_S)
        self._delta = spec.directory / "delta.safetensors"
        self._base = spec.directory / "base.safetensors"
        self._digest = Digest("")
        spec.directory.mkdir(parents=True)
        request = messages.RegisterRequest(
            protocol=messages.PROTOCOL,
            version=__version__,
            site=f"site-{spec.number}",
            ranks=4,
            windows_per_step=WINDOWS_PER_STEP,
            fingerprint=messages.Fingerprint.model_validate(spec.fingerprint),
        )
        self._session = SessionId(self._api.register(request, DEADLINE_S).session)

    def initialise(self) -> None:
        """Makes generation 0."""
        path = self._spec.directory / "initial.safetensors"
        write_weights(path, self._spec.mib, "F32", 1.0)
        digest = digest_file(path)
        reply = self._api.next_work(self._session, messages.NextRequest(holds=None))
        assert reply.work == "initialise", reply
        blobs = open_blobs(self._spec.url, self._entropy, None)
        blobs.upload(path, digest, DEADLINE_S, _ignore)
        blobs.close()
        self._api.initial(self._session, messages.InitialRequest(weights=digest))
        path.unlink()

    def prepare(self, number: int) -> None:
        """Writes the delta that the next exchange will send; none may be there already."""
        if not self._delta.exists():
            write_weights(self._delta, self._spec.mib, "BF16", 1e-3)
        stamp(self._delta, 8 * number + self._spec.number)
        self._digest = digest_file(self._delta)  # which a site knows: it hashes a delta while it writes it

    def clear(self) -> None:
        """Removes what an exchange downloaded."""
        self._base.unlink(missing_ok=True)

    def exchange(self, url: str, streams: int | None) -> Moments:
        """From the published generation to the next one, with no training between."""
        blobs = open_blobs(url, self._entropy, streams)
        begun = time.perf_counter()
        offer = self._api.next_work(self._session, messages.NextRequest(holds=None))
        assert offer.work == "adopt" and offer.weights is not None and offer.generation is not None, offer
        blobs.download(Digest(offer.weights), self._base, DEADLINE_S, _ignore)
        downloaded = time.perf_counter()
        lease = self._lease(offer.generation)
        blobs.upload(self._delta, self._digest, DEADLINE_S, _ignore)
        uploaded = time.perf_counter()
        reply = self._api.contribute(Token(lease.token), self._contribution(lease, self._digest))
        assert reply.accepted, reply
        contributed = time.perf_counter()
        self._await_generation(offer.generation + 1)
        blobs.close()
        return Moments(begun, downloaded, uploaded, contributed, time.perf_counter())

    def _lease(self, generation: int) -> messages.LeaseInfo:
        """Sites that came together are let in together, so nobody has to ask twice."""
        reply = self._api.next_work(self._session, messages.NextRequest(holds=generation))
        assert reply.lease is not None, reply
        return reply.lease

    def _contribution(self, lease: messages.LeaseInfo, delta: Digest) -> messages.ContributionRequest:
        blocks = sum(stop - start for _, start, stop in lease.spans)
        windows = blocks * self._spec.block_windows
        return messages.ContributionRequest(
            session=self._session,
            generation=lease.generation,
            blocks=blocks,
            windows=windows,
            tokens=windows * self._spec.seq_len,
            steps=windows // WINDOWS_PER_STEP,
            delta=delta,
            windows_digest=f"{windows}:{0:032x}",
        )

    def _await_generation(self, generation: int) -> None:
        while True:
            reply = self._api.next_work(self._session, messages.NextRequest(holds=None))
            if reply.work != "wait":
                assert reply.generation == generation, reply
                return
            pause(reply.poll_ms / 1000)


class Streams(Threads):
    """As many streams as are said, whatever the line."""

    def __init__(self, count: int) -> None:
        self.most = count

    def run(self, labour: Labour, count: int) -> None:
        super().run(labour, max(count, self.most))


def open_blobs(url: str, entropy: random.Random, streams: int | None) -> BlobClient:
    """A client of the blobs as a site has it; `streams` None leaves the number to it."""
    crew = None if streams is None else Streams(streams)
    return BlobClient(url, SystemClock(), entropy.random, pause, crew=crew)


def _ignore(_there: int, _total: int) -> None:
    pass


def serve(pipe: Connection, spec: SiteSpec) -> None:
    """Answers orders ("name", arguments...) until there are no more."""
    site = ExchangeSite(spec)
    pipe.send(None)
    while (order := pipe.recv()) is not None:
        name, *arguments = order
        pipe.send(getattr(site, name)(*arguments))
