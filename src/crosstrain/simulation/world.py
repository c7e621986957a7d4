"""A virtual clock, a heap of timed events, and actors that run one at a time: a run is a function of its seed.

An actor is a thread that holds the baton while it runs and gives it back when it sleeps, so production code that blocks
(retries, waits) runs unchanged, and never two pieces of it at once. Killing an actor raises `Killed` where it sleeps or at
its next durable step.
"""

from __future__ import annotations

import heapq
import random
import threading
from collections.abc import Callable

from crosstrain.domain.ids import Instant

START = Instant(1_800_000_000_000)


class Killed(BaseException):
    """The process this actor stands for is gone. Not an Exception: no handler of production code may survive it."""


class ActorFailedError(Exception):
    """Production code raised something that its callers do not handle: a bug."""


class World:
    """Time, events and actors.

    Attributes:
        random: the world's own generator; draws from it happen in the order of events.
        after_event: called after every event, for invariants.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(f"world {seed}")
        self.after_event: Callable[[], None] = lambda: None
        self.events = 0
        self._now = START
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._number = 0
        self._actors: list[Actor] = []
        self._failure: ActorFailedError | None = None

    def now(self) -> Instant:
        return self._now

    def perf(self) -> float:
        return self._now / 1000

    def at(self, when: int, action: Callable[[], None]) -> None:
        """Runs `action` at an instant, after everything that was planned for the same one before."""
        self._number += 1
        heapq.heappush(self._heap, (max(int(when), self._now), self._number, action))

    def after(self, ms: float, action: Callable[[], None]) -> None:
        self.at(round(self._now + ms), action)

    def spawn(self, name: str, body: Callable[[], None]) -> Actor:
        """Starts an actor; its body begins at once, in the order of events."""
        actor = Actor(self, name, body)
        self._actors.append(actor)
        self.at(self._now, actor.resume)
        return actor

    def run(self, until: Callable[[], bool], limit: int) -> bool:
        """Runs events until `until()` or the instant `limit`; returns whether `until()` came true."""
        while not until():
            if not self._heap or self._heap[0][0] > limit:
                self._now = Instant(max(self._now, limit))
                return until()
            when, _, action = heapq.heappop(self._heap)
            self._now = Instant(when)
            action()
            self.events += 1
            if self._failure is not None:
                raise self._failure
            self.after_event()
        return True

    def failed(self, name: str, error: BaseException) -> None:
        """An actor ended by an error that production code did not expect."""
        self._failure = ActorFailedError(f"{name}: {error!r}")
        self._failure.__cause__ = error

    def close(self) -> None:
        """Ends all actors, so that no thread is left behind."""
        for actor in self._actors:
            actor.kill()
            actor.resume()
            actor.join()
        self._heap.clear()


class Actor:
    """One thread of control of a simulated process."""

    def __init__(self, world: World, name: str, body: Callable[[], None]) -> None:
        self._world = world
        self.name = name
        # Bare locks, held when made, are the baton: a Semaphore costs five times as much per hand-over.
        self._mine, self._worlds = threading.Lock(), threading.Lock()
        self._mine.acquire()
        self._worlds.acquire()
        self._killed = False
        self._frozen_until = 0
        self._sleep = 0
        self.over = False
        self._thread = threading.Thread(target=self._run, args=(body,), name=name, daemon=True)
        self._started = False

    def resume(self) -> None:
        """Gives the baton to the actor until it sleeps or ends."""
        if self.over:
            return
        if self._world.now() < self._frozen_until and not self._killed:
            self._world.at(self._frozen_until, self.resume)
            return
        if not self._started:
            self._started = True
            self._thread.start()
        self._mine.release()
        self._worlds.acquire()

    def sleep(self, seconds: float) -> None:
        """Gives the baton back for `seconds` of virtual time. Only the actor itself may call it."""
        self.check()
        self._world.after(1000 * seconds, self._wakes(self._sleep))
        self._yield()

    def freeze(self, ms: int) -> None:
        """Stops the actor where it is (SIGSTOP) for a time, after which it goes on as if nothing had happened."""
        self._frozen_until = self._world.now() + ms

    def kill(self) -> None:
        """Makes the actor's next sleep or durable step its last; it gets the baton once more to unwind."""
        if not self.over:
            self._killed = True
            self._world.at(self._world.now(), self.resume)

    def join(self) -> None:
        """Waits for the thread of an actor that is over."""
        if self._started:
            self._thread.join()

    def check(self) -> None:
        """A point at which a killed actor ends."""
        if self._killed:
            raise Killed(self.name)

    def _wakes(self, number: int) -> Callable[[], None]:
        def wake() -> None:
            if number == self._sleep:  # not woken by a kill meanwhile
                self.resume()

        return wake

    def _yield(self) -> None:
        self._worlds.release()
        self._mine.acquire()
        self._sleep += 1
        self.check()

    def _run(self, body: Callable[[], None]) -> None:
        self._mine.acquire()
        try:
            self.check()
            body()
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001 - raised where the world runs
            self._world.failed(self.name, error)
        self.over = True
        self._worlds.release()
