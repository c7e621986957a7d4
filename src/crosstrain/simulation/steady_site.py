"""A site that trains at a constant rate and nothing else: requests, leases and heartbeats are real, the training is time.

Every delta is the same small file, so that a day of a large deployment takes seconds; what is leased, lost and merged does
not depend on what the deltas hold.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from crosstrain.config import RunConfig
from crosstrain.domain.block import Corpus
from crosstrain.domain.ids import Digest, Instant, SessionId, Token
from crosstrain.domain.phase import digest_windows, sum_windows, window_numbers
from crosstrain.domain.site import Phase
from crosstrain.simulation.network import SimulatedLine, SimulatedTransport, Weather
from crosstrain.simulation.nodes import NO_DEADLINE_S, URL, CoordinatorNode
from crosstrain.simulation.world import Actor, World
from crosstrain.site.order import BlockOrder
from crosstrain.storage.object_store import digest_file
from crosstrain.storage.weights_file import Entry, WeightsWriter
from crosstrain.wire import messages
from crosstrain.wire.client import ControlClient
from crosstrain.wire.crew import InTurn
from crosstrain.wire.site_api import SiteApi
from crosstrain.wire.transfer import BlobClient

BOOT_S = 120.0
"""From a job's start to its first question."""
EXCHANGE_S = 15.0
"""For a delta upwards, and for the next weights down."""
POLL_S = 10.0


@dataclass(frozen=True, slots=True)
class SteadyTraits:
    """One site.

    Attributes:
        rate: blocks per second while it trains.
    """

    name: str
    ranks: int
    windows_per_step: int
    rate: float
    rtt_ms: float


class SteadySite:
    """A site's batch jobs, one after the other; killed ones say nothing, and what they trained and did not send is lost."""

    def __init__(
        self,
        world: World,
        config: RunConfig,
        identity: messages.Fingerprint,
        traits: SteadyTraits,
        directory: Path,
        coordinator: CoordinatorNode,
        seed: int,
    ) -> None:
        self._world, self._config, self._identity, self.traits = world, config, identity, traits
        self._coordinator = coordinator
        self._random = random.Random(f"steady site {traits.name} {seed}")
        self._corpus = Corpus(identity.windows, identity.block_windows)
        self._order = BlockOrder(self._corpus, config.run.seed)
        directory.mkdir(parents=True)
        self._initial = _weights(directory / "initial.safetensors", 1.0)
        self._delta = _weights(directory / "delta.safetensors", 0.001)
        self._actor: Actor | None = None
        self._holds: int | None = None
        self._ends_at: Instant | None = None

    def start(self, ends_at: Instant | None = None) -> None:
        """A job begins; one whose end is given asks for no more than fits, and leaves."""
        self._holds, self._ends_at = None, ends_at
        self._actor = self._world.spawn(self.traits.name, self._job)

    def kill(self) -> None:
        """The job is gone, without a word."""
        if self._actor is not None:
            self._actor.kill()
            self._actor = None

    # -- one job ------------------------------------------------------------------------------------------------------

    def _job(self) -> None:
        actor = self._actor
        assert actor is not None

        def wait(seconds: float) -> bool:
            actor.sleep(seconds)
            return False

        weather = Weather(self.traits.rtt_ms)
        line = SimulatedTransport(
            self._world, lambda: actor, weather, self._random, self._coordinator.serve, lambda: False
        )
        api = SiteApi(ControlClient(URL, self._world, self._random.random, wait, line), NO_DEADLINE_S)
        blobs = BlobClient(URL, self._world, self._random.random, wait, lambda url: SimulatedLine(url, line), InTurn())
        actor.sleep(BOOT_S)
        session = SessionId(api.register(self._registration(), NO_DEADLINE_S).session)
        while self._step(actor, api, blobs, session):
            pass

    def _step(self, actor: Actor, api: SiteApi, blobs: BlobClient, session: SessionId) -> bool:
        """Asks once and does what it is told; False at the end of the run or of the job."""
        fits = self._blocks_that_fit()
        if fits == 0:
            api.end(session, "its job ends", NO_DEADLINE_S)
            return False
        reply = api.next_work(session, messages.NextRequest(holds=self._holds, max_blocks=fits))
        match reply.work:
            case "initialise":
                self._upload(blobs, self._initial)
                api.initial(session, messages.InitialRequest(weights=digest_file(self._initial)))
            case "adopt":
                actor.sleep(EXCHANGE_S)
                self._holds = reply.generation
            case "train":
                assert reply.lease is not None
                self._train(actor, api, blobs, session, reply.lease)
                self._holds = None
            case "wait":
                actor.sleep(POLL_S)
                api.beat(session, messages.BeatRequest(phase=Phase.WAITING, rtt_ms=api.rtt_ms), NO_DEADLINE_S)
            case "finished":
                return False
        return True

    def _blocks_that_fit(self) -> int | None:
        if self._ends_at is None:
            return None
        left_s = (self._ends_at - self._world.now()) / 1000 - 2 * EXCHANGE_S
        return max(0, math.floor(left_s * self.traits.rate))

    def _train(
        self, actor: Actor, api: SiteApi, blobs: BlobClient, session: SessionId, lease: messages.LeaseInfo
    ) -> None:
        """Until the lease is trained, or the coordinator says enough."""
        blocks = sum(stop - start for _, start, stop in lease.spans)
        begun, kept, done = self._world.perf(), None, 0
        beat_s = self._config.lease.heartbeat_s
        while done < blocks:
            actor.sleep(min(beat_s, max(0.001, begun + blocks / self.traits.rate - self._world.perf())))
            trained = (self._world.perf() - begun) * self.traits.rate
            done = min(blocks, math.floor(trained + 1e-6))
            request = messages.BeatRequest(
                phase=Phase.TRAINING,
                done=math.floor(1000 * trained),
                token=lease.token,
                blocks=done,
                kept=kept,
                rtt_ms=api.rtt_ms,
            )
            heard = api.beat(session, request, NO_DEADLINE_S)
            if not heard.lease_alive:
                return
            if heard.shed and kept is None and blocks - done > 1:
                kept = blocks = done + (blocks - done + 1) // 2
            if heard.drain:
                blocks = min(blocks, done + 1)
        actor.sleep(EXCHANGE_S)
        self._upload(blobs, self._delta)
        seconds = self._world.perf() - begun
        api.contribute(Token(lease.token), self._contribution(session, lease, blocks, seconds))

    def _contribution(
        self, session: SessionId, lease: messages.LeaseInfo, blocks: int, seconds: float
    ) -> messages.ContributionRequest:
        windows = list(window_numbers(self._order.windows(lease.spans)[:blocks]))
        return messages.ContributionRequest(
            session=session,
            generation=lease.generation,
            blocks=blocks,
            windows=len(windows),
            tokens=len(windows) * self._identity.seq_len,
            steps=math.ceil(len(windows) / self.traits.windows_per_step),
            delta=digest_file(self._delta),
            windows_digest=digest_windows(len(windows), sum_windows(windows)),
            seconds=seconds,
        )

    def _registration(self) -> messages.RegisterRequest:
        return messages.RegisterRequest(
            protocol=messages.PROTOCOL,
            version="simulated",
            site=self.traits.name,
            ranks=self.traits.ranks,
            windows_per_step=self.traits.windows_per_step,
            fingerprint=self._identity,
        )

    def _upload(self, blobs: BlobClient, path: Path) -> None:
        blobs.upload(path, Digest(digest_file(path)), NO_DEADLINE_S, lambda *_: None)


def _weights(path: Path, value: float) -> Path:
    with WeightsWriter(path, [Entry("w", "F32", (4,))]) as writer:
        writer.write("w", np.full(4, value, np.float32))
    return path
