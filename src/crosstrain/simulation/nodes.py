"""Simulated machines: one coordinator and the sites, made of production parts, that crash and come back."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import Engine

from crosstrain.assembly import begin_service
from crosstrain.clock import Clock
from crosstrain.config import RunConfig
from crosstrain.coordinator.service import Service
from crosstrain.coordinator.tick import Loop
from crosstrain.domain.block import Corpus
from crosstrain.domain.ids import Instant, SessionId, SiteName
from crosstrain.errors import CrosstrainError, EnvironmentFault, Superseded
from crosstrain.simulation.durable import SteppedDatabase, SteppedObjects, SteppedSpool, Steps
from crosstrain.simulation.faults import SiteTraits
from crosstrain.simulation.network import CoordinatorDownError, Reply, SimulatedLine, SimulatedTransport, answer
from crosstrain.simulation.trainer import Exports, SimulatedLink
from crosstrain.simulation.world import Actor, Killed, World
from crosstrain.site.agent import Agent
from crosstrain.site.courier import Beside
from crosstrain.site.heartbeat import Board, Heartbeat
from crosstrain.site.machine import Parts
from crosstrain.site.order import BlockOrder
from crosstrain.wire.client import ControlClient
from crosstrain.wire.crew import InTurn
from crosstrain.wire.messages import Fingerprint
from crosstrain.wire.site_api import SiteApi
from crosstrain.wire.transfer import BlobClient

TICK_S = 5.0
URL = "http://coordinator"
NO_DEADLINE_S = 1e9


class ProcessEnded(BaseException):
    """The coordinator's process ended in the middle of something."""


class CoordinatorNode:
    """The coordinator's machine: its database and blobs outlive its processes.

    Args:
        committed: called after every commit.
    """

    def __init__(
        self,
        world: World,
        config: RunConfig,
        fingerprint: Fingerprint,
        engine: Engine,
        directory: Path,
        committed: Callable[[], None],
    ) -> None:
        self._world = world
        self._config = config
        self._fingerprint = fingerprint
        self._engine = engine
        self._directory = directory
        self._committed = committed
        self._actor: Actor | None = None
        self._zombie: Service | None = None
        self._zombie_random = random.Random(0)
        self.service: Service | None = None
        self.steps = Steps(self._end)
        self.full_until = Instant(0)
        self.stalled_until = Instant(0)
        self.started_at = Instant(0)
        self.restart_after_ms = 1000
        self.tick_s = TICK_S
        self._restarting = False
        self.heard: dict[int, tuple[Instant, Instant, tuple[str, int]]] = {}
        """Lease -> (last heartbeat that named it, last progress, (phase, done))."""

    def start(self) -> None:
        """A new process on the stored state."""
        database = SteppedDatabase(self._engine, self.steps, self._committed)
        objects = SteppedObjects(self._directory / "objects", self.steps, lambda: self._world.now() < self.full_until)
        clock: Clock = self._world
        try:
            self.service = begin_service(
                self._config, self._fingerprint, database, objects, self._directory / "work", clock
            )
        except ProcessEnded:
            return
        self.started_at = self._world.now()
        service, loop = self.service, Loop(self.service, self.tick_s)
        self._actor = self._world.spawn("coordinator", lambda: self._work(service, loop))

    def crash(self, restart_after_ms: int) -> None:
        """Kills the process; a new one starts later."""
        self.restart_after_ms = restart_after_ms
        self._die()

    def replace(self, stays_ms: int) -> None:
        """Starts a second coordinator on the same state while the first goes on for a while."""
        old = self.service
        if old is None:
            return
        self._zombie = old
        self.start()
        self._world.after(stays_ms, self._bury)

    def serve(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Reply:
        """One request; now and then a zombie gets it."""
        if self._world.now() < self.stalled_until:
            raise CoordinatorDownError
        service = self.service
        if self._zombie is not None and self._zombie_random.random() < 0.3:
            service = self._zombie
        if service is None:
            raise CoordinatorDownError
        try:
            reply = answer(service, method, path, body, headers)
        except ProcessEnded:
            raise CoordinatorDownError from None
        if service is self.service and reply[0] == 200:
            self._note(path, body)
        return reply

    def _note(self, path: str, body: bytes) -> None:
        """Keeps when each lease was named by a heartbeat, for the check that none was given up too early."""
        match path.split("/"):
            case ["", "v1", "sessions", _, "beat"]:
                beat = json.loads(body)
                token, told, now = beat["token"], (beat["phase"], beat["done"]), self._world.now()
                before = self.heard.get(token)
                progressed = before[1] if before and before[2] == told else now
                self.heard[token] = (now, progressed, told)

    def _work(self, service: Service, loop: Loop) -> None:
        actor = self._actor
        assert actor is not None
        while service is self.service or service is self._zombie:
            try:
                if self._world.now() >= self.stalled_until:
                    loop.step(self._world.now())
            except EnvironmentFault:
                actor.sleep(5.0)
            except ProcessEnded:
                return
            except Superseded:
                return
            actor.sleep(self.tick_s)

    def _end(self) -> None:
        self._die()
        raise ProcessEnded

    def _die(self) -> None:
        self.service = self._zombie = None
        if self._actor is not None:
            self._actor.kill()
            self._actor = None
        if not self._restarting:
            self._restarting = True
            self._world.after(self.restart_after_ms, self._restart)

    def _restart(self) -> None:
        self._restarting = False
        self.start()

    def _bury(self) -> None:
        self._zombie = None


class SiteNode:
    """A site's machine: its directory outlives its jobs.

    Args:
        windows: N of the corpus.
    """

    def __init__(
        self,
        world: World,
        config: RunConfig,
        fingerprint: Fingerprint,
        traits: SiteTraits,
        directory: Path,
        coordinator: CoordinatorNode,
        exports: Exports,
        seed: int,
    ) -> None:
        self._world = world
        self._config = config
        self._fingerprint = fingerprint
        self._traits = traits
        self._directory = directory
        self._coordinator = coordinator
        self._exports = exports
        self._random = random.Random(f"site {traits.name} {seed}")
        self._actors: list[Actor] = []
        self._agent: Agent | None = None
        self.cut_until = Instant(0)
        self.steps = Steps(self._end)
        self.link: SimulatedLink | None = None
        self.restart_after_ms = 30_000
        self.finished = False
        self.gave_up: CrosstrainError | None = None

    @property
    def name(self) -> str:
        return self._traits.name

    @property
    def running(self) -> bool:
        return self._agent is not None

    def start(self, walltime_s: float | None = None) -> None:
        """A batch job begins."""
        if self.finished or self.running:
            return
        self._agent = self._build(None if walltime_s is None else Instant(self._world.now() + round(1000 * walltime_s)))
        agent = self._agent
        self._spawn("agent", lambda: self._work(agent))

    def crash(self, restart_after_ms: int) -> None:
        """Kills agent and trainer; the next job begins later."""
        self.restart_after_ms = restart_after_ms
        self._die()

    def freeze(self, ms: int) -> None:
        for actor in self._actors:
            actor.freeze(ms)

    def cut_off(self, ms: int) -> None:
        self.cut_until = Instant(self._world.now() + ms)

    def end_soon(self, walltime_s: float) -> None:
        """The scheduler says that the job ends; it is killed then if it still runs."""
        agent = self._agent
        if agent is None:
            return
        agent.stop_reason = "its job ends"
        self._world.after(1000 * walltime_s, lambda: self._kill_if_same(agent))

    def _kill_if_same(self, agent: Agent) -> None:
        if self._agent is agent:
            self._die()

    def _spawn(self, role: str, body: Callable[[], None]) -> Actor:
        actor = self._world.spawn(f"{self.name} {role}", body)
        self._actors.append(actor)
        return actor

    def _work(self, agent: Agent) -> None:
        actor = self._mine("agent")
        try:
            while True:
                rest = agent.step()
                if rest.over:
                    break
                actor.sleep(max(rest.seconds, 0.001))
            agent.leave("done")
        except CrosstrainError as error:
            self.gave_up = error
            agent.leave("it failed")
        self._leave()

    def _leave(self) -> None:
        """The job ended by itself; the next one, if one is needed, was queued ahead."""
        self._agent = None
        self._stop_actors()
        self._world.after(self.restart_after_ms, self.start)

    def _beat(self, heartbeat: Heartbeat, interval_s: float) -> None:
        actor = self._mine("heartbeat")
        while not heartbeat.stopped:
            heartbeat.step()
            actor.sleep(interval_s)

    def _mine(self, role: str) -> Actor:
        return next(actor for actor in reversed(self._actors) if actor.name == f"{self.name} {role}")

    def _end(self) -> None:
        self._die()
        raise Killed(self.name)

    def _die(self) -> None:
        if self._agent is None:
            return
        self._agent = None
        self._stop_actors()
        self._world.after(self.restart_after_ms, self.start)

    def _stop_actors(self) -> None:
        for actor in self._actors:
            actor.kill()
        self._actors = []

    def _build(self, ends_at: Instant | None) -> Agent:
        config, clock, board = self._config, self._world, Board()

        def actor() -> Actor:
            return self._mine("agent")

        def transport(who: Callable[[], Actor]) -> SimulatedTransport:
            return SimulatedTransport(
                self._world,
                who,
                self._traits.weather,
                self._random,
                self._coordinator.serve,
                lambda: self._world.now() < self.cut_until,
            )

        def line(url: str) -> SimulatedLine:
            return SimulatedLine(url, transport(actor))

        def run_errand(errand: Callable[[], None]) -> None:
            self._spawn("courier", errand)

        def courier() -> Actor:
            return self._mine("courier")

        def courier_line(url: str) -> SimulatedLine:
            return SimulatedLine(url, transport(courier))

        def client(who: Callable[[], Actor]) -> ControlClient:
            return ControlClient(URL, clock, self._random.random, _waits(who), transport(who))

        def begin_heartbeat(session: SessionId, interval_ms: int) -> None:
            api = SiteApi(client(lambda: self._mine("heartbeat")), NO_DEADLINE_S)
            heartbeat = Heartbeat(api, session, interval_ms, board, 0.5)
            self._spawn("heartbeat", lambda: self._beat(heartbeat, interval_ms / 1000))

        beside = Beside(
            SiteApi(client(courier), NO_DEADLINE_S),
            BlobClient(URL, clock, self._random.random, _waits(courier), courier_line, InTurn()),
            run_errand,
            _waits(courier),
        )
        seq_len = self._fingerprint.seq_len
        self.link = SimulatedLink(actor, clock.now, self._traits.step_s, seq_len, self._exports)
        corpus = Corpus(self._fingerprint.windows, self._fingerprint.block_windows)
        return Agent(
            Parts(
                config=config,
                site=config.site_named(self.name),
                name=SiteName(self.name),
                clock=clock,
                api=SiteApi(client(actor), NO_DEADLINE_S),
                blobs=BlobClient(URL, clock, self._random.random, _waits(actor), line, InTurn()),
                link=self.link,
                spool=SteppedSpool(self._directory, config.spec_digest(), self.steps),
                board=board,
                order=BlockOrder(corpus, config.run.seed),
                fingerprint=self._fingerprint,
                begin_heartbeat=begin_heartbeat,
                ends_at=ends_at,
                connect_s=NO_DEADLINE_S,
                version="simulated",
                beside=beside if config.round.overlap else None,
            )
        )


def _waits(who: Callable[[], Actor]) -> Callable[[float], bool]:
    def wait(seconds: float) -> bool:
        who().sleep(seconds)
        return False

    return wait
