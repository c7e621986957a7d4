"""Requests that write at the same time share a transaction, and so its fsync (docs/decisions/0014-group-commit.md)."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, TypeVar

from crosstrain.coordinator.service import Service
from crosstrain.storage.database import Outcome, Work

T = TypeVar("T")
Member = tuple[Work[Any], "asyncio.Future[Any]"]

LARGEST = 64
"""Pieces of work in one transaction. Others that want to write wait for it."""


class GroupCommit:
    """A queue in front of the database's writer. While one transaction is committed, the next one's work gathers."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._lock = threading.Lock()
        self._waiting: list[Member] = []
        self._running = False

    async def write(self, work: Work[T]) -> T:
        """What `work` returns, once it is committed.

        Raises:
            Superseded, EnvironmentFault: nothing was written; what `work` raised otherwise, with what it wrote undone.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        with self._lock:
            self._waiting.append((work, future))
            idle, self._running = not self._running, True
        if idle:
            # After what this turn of the loop has already read: those requests belong to the same group.
            loop.call_soon(loop.run_in_executor, None, self._run, loop)
        return await future

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        while group := self._take():
            outcomes = self._commit([work for work, _ in group])
            loop.call_soon_threadsafe(_answer, [future for _, future in group], outcomes)

    def _take(self) -> list[Member]:
        with self._lock:
            group, self._waiting = self._waiting[:LARGEST], self._waiting[LARGEST:]
            self._running = bool(group)
            return group

    def _commit(self, works: list[Work[Any]]) -> list[Outcome[Any]]:
        try:
            return self._service.database.write_all(works)
        except Exception as error:  # noqa: BLE001 - raised to each of those who wait
            return [Outcome(error=error)] * len(works)


def _answer(futures: list[asyncio.Future[Any]], outcomes: list[Outcome[Any]]) -> None:
    for future, outcome in zip(futures, outcomes, strict=True):
        if future.cancelled():
            continue
        if outcome.error is None:
            future.set_result(outcome.value)
        else:
            future.set_exception(outcome.error)
