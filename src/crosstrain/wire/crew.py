"""Who works at a transfer: several threads, or the caller alone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from crosstrain.domain.timeouts import CREW_LOOK_S


@dataclass(frozen=True, slots=True)
class Labour:
    """What is to be done.

    Attributes:
        work: takes a function that it calls after every request.
        look: called now and then and at the end, by the caller's thread; what it raises ends the work.
        end: makes whoever works stop soon.
    """

    work: Callable[[Callable[[], None]], None]
    look: Callable[[], None]
    end: Callable[[], None]


class Crew(Protocol):
    """Does the same work several times at once."""

    most: int
    """How many workers there may be."""

    def run(self, labour: Labour, count: int) -> None:
        """Returns when all workers did, or raises what the first of them raised."""
        ...


class Threads:
    """A thread for every worker; the caller's looks after them."""

    most = 16

    def run(self, labour: Labour, count: int) -> None:
        changed = threading.Event()
        errors: list[BaseException] = []

        def work() -> None:
            try:
                labour.work(lambda: None)
            except BaseException as error:  # noqa: BLE001 - raised again by the caller's thread
                errors.append(error)
                labour.end()
            finally:
                changed.set()

        threads = [threading.Thread(target=work, name=f"transfer-{number}", daemon=True) for number in range(count)]
        for thread in threads:
            thread.start()
        try:
            while any(thread.is_alive() for thread in threads):
                changed.wait(CREW_LOOK_S)
                changed.clear()
                labour.look()
        except BaseException:
            labour.end()
            raise
        finally:
            for thread in threads:
                thread.join()
        if errors:
            raise errors[0]
        labour.look()


class InTurn:
    """The caller does everything: for a world with one thread and a clock of its own."""

    most = 1

    def run(self, labour: Labour, count: int) -> None:
        for _ in range(count):
            labour.work(labour.look)
        labour.look()
