"""A coordinator process whose turn it may not be: it waits beside the living one, and takes over when that one dies.

Dead is a coordinator whose term's lock is free: then its successor starts at once. Stuck is one that holds its lock and
moves its pulse no more: then the successor waits for `coordinator.takeover_s`, by its own clock alone. In doubt the term
decides: whoever is superseded cannot write (docs/decisions/0010-standby.md).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import UTC, datetime

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from crosstrain.clock import Clock, pause
from crosstrain.coordinator.routes import build_app, problem_of
from crosstrain.coordinator.service import Service
from crosstrain.coordinator.tick import Loop
from crosstrain.domain import timeouts
from crosstrain.errors import EnvironmentFault, Refused, Superseded
from crosstrain.storage import pulse
from crosstrain.storage.database import Database
from crosstrain.storage.object_store import ObjectStore
from crosstrain.storage.pulse import Claim, Pulse
from crosstrain.storage.term_lock import TermLock

log = logging.getLogger(__name__)

CANDIDATES = 16
"""Terms that may be locked by processes that got stuck while they took over."""


class Watch:
    """Decides when this process may take the run over; it only looks and locks."""

    def __init__(self, database: Database, lock: TermLock, clock: Clock, takeover_s: float) -> None:
        self._database = database
        self._lock = lock
        self._clock = clock
        self._takeover_s = takeover_s
        self._seen: Pulse | None = None
        self._moved_at = 0.0

    def look(self) -> Claim | None:
        """One look at the run; the claim's lock is ours when there is one.

        Raises:
            EnvironmentFault: the database does not answer.
        """
        now = self._clock.perf()  # before the look: what is frozen in between must not see an old pulse at a late time
        with self._database.read() as connection:
            seen = pulse.pulse(connection)
        if seen != self._seen:
            self._seen, self._moved_at = seen, now
        if now - self._moved_at >= self._takeover_s:
            terms = range(seen.term + 1, seen.term + 1 + CANDIDATES)
        elif seen.term == 0 or self._is_free(seen.term):
            terms = range(seen.term + 1, seen.term + 2)
        else:
            return None
        return next((Claim(seen, term) for term in terms if self._lock.take(term)), None)

    def give_up(self, claim: Claim) -> None:
        """Another was faster."""
        self._lock.release(claim.term)

    @property
    def reason(self) -> str:
        """What this process waits for."""
        if self._seen is None:
            return "it has not seen the run's database yet"
        still = self._clock.perf() - self._moved_at
        return (
            f"the coordinator of term {self._seen.term} lives, seen {still:.0f} s ago; this one takes over when that one "
            f"dies, or shows no sign of life for {self._takeover_s:g} s"
        )

    def _is_free(self, term: int) -> bool:
        free = self._lock.take(term)
        if free:
            self._lock.release(term)
        return free


class Heart:
    """Moves the pulse of the term, from a thread of its own: a merge may keep the loop for minutes."""

    def __init__(self, database: Database, lock: TermLock, takeover_s: float) -> None:
        self._database = database
        self._lock = lock
        self._interval_s = timeouts.pulse_s(takeover_s)

    def beat(self) -> None:
        """Moves the pulse once.

        Raises:
            Superseded: another coordinator took the run over.
        """
        assert self._database.term is not None
        self._lock.take(self._database.term)  # again, if it was lost with its connection
        with self._database.write() as connection:
            pulse.beat(connection)

    def run(self, stopping: threading.Event) -> None:
        """Beats until it is told to stop.

        Raises:
            Superseded: as `beat`.
        """
        while not stopping.is_set():
            try:
                self.beat()
            except EnvironmentFault as error:
                log.error("%s", error)
            pause(self._interval_s, stopping)


class Process:
    """What a coordinator process serves and does: a standby's answer, then the run.

    Args:
        begin: opens the run and takes it over; raises Superseded if another was faster.
    """

    def __init__(
        self,
        database: Database,
        lock: TermLock,
        clock: Clock,
        takeover_s: float,
        begin: Callable[[Claim], Service],
    ) -> None:
        self._watch = Watch(database, lock, clock, takeover_s)
        self._heart = Heart(database, lock, takeover_s)
        self._database = database
        self._lock = lock
        self._begin = begin
        self._poll_s = timeouts.standby_look_s(takeover_s)
        self._since = datetime.fromtimestamp(clock.now() / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        self._trouble = ""
        self._loop: Loop | None = None
        self._objects: ObjectStore | None = None
        self._app: ASGIApp | None = None
        self._stopping = threading.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The application that is served."""
        app = self._app or JSONResponse(
            (problem := problem_of(self._not_yet())).model_dump(),
            problem.status,
            {"retry-after": "1"},
            media_type="application/problem+json",
        )
        await app(scope, receive, send)

    def attempt(self) -> bool:
        """Takes the run over if nobody else serves it; returns whether this process does now."""
        claim = self._watch.look()
        if claim is None:
            return False
        try:
            service = self._begin(claim)
        except Superseded as error:
            log.info("%s", error.message)
            self._watch.give_up(claim)
            return False
        except BaseException:
            self._watch.give_up(claim)
            raise
        self._loop, self._objects = Loop(service), service.objects
        self._app = build_app(service)
        log.info("serving the run with term %d", claim.term)
        return True

    def run(self) -> None:
        """Waits for its turn, then serves until stopped.

        Raises:
            Superseded: another coordinator took the run over.
        """
        if self._loop is None:
            log.info("standby: %s", self._watch.reason)
        while self._loop is None:
            if pause(self._poll_s, self._stopping):
                return
            try:
                self.attempt()
                self._trouble = ""
            except EnvironmentFault as error:
                if error.message != self._trouble:
                    log.error("%s", error)
                self._trouble = error.message
        self._serve(self._loop)

    def stop(self) -> None:
        """Ends `run` soon, from any thread; what waits for a bucket is not waited for."""
        self._stopping.set()
        if self._loop is not None:
            self._loop.stop()
        if self._objects is not None:
            self._objects.close()

    def close(self) -> None:
        """After `run` ended."""
        self._lock.close()
        self._database.close()

    def _serve(self, loop: Loop) -> None:
        heart = threading.Thread(target=self._live, args=(loop,), name="heart")
        heart.start()
        try:
            if self._stopping.is_set():
                loop.stop()
            loop.run()
        except Exception:
            self._heart.beat()  # who is superseded fails in many ways; only this one says why
            raise
        finally:
            loop.stop()
            heart.join()
        if loop.failure is not None:
            raise loop.failure

    def _live(self, loop: Loop) -> None:
        try:
            self._heart.run(loop.stopping)
        except Superseded as error:
            loop.failure = error
            loop.stop()

    def _not_yet(self) -> Refused:
        return Refused(
            f"This coordinator is a standby since {self._since}: {self._trouble or self._watch.reason}.",
            "ask the other coordinator, or try again",
            kind="standby",
            status=503,
        )
