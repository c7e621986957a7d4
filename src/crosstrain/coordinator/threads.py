"""Threads of a purpose of their own, for an event loop: what waits for a disk or a bucket takes none from who does not."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from crosstrain.domain.ids import Digest
from crosstrain.errors import CrosstrainError

Result = TypeVar("Result")


class Threads:
    """At most so many threads; what finds none free waits for its turn."""

    def __init__(self, count: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(count, name)

    async def run(self, call: Callable[[], Result]) -> Result:
        """What `call` returns or raises. If nobody waits any more, it is over all the same before this is."""
        work = asyncio.get_running_loop().run_in_executor(self._pool, call)
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            while not work.done():  # it uses files that its caller closes next
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait({work})
            raise


class Jobs:
    """Long work, once for each blob: those who wait for the same one keep no thread."""

    def __init__(self, count: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(count, name)
        self._jobs: dict[Digest, Future[CrosstrainError | None]] = {}

    async def wait(self, digest: Digest, work: Callable[[], object], wait_s: float | None = None) -> bool:
        """Begins `work` for a blob unless that is under way.

        Args:
            wait_s: how long its end is waited for, None for ever.

        Returns:
            Whether it ended. Its outcome is told to whoever waits at the end, or asks first after it.

        Raises:
            CrosstrainError: what `work` raised.
        """
        job = self._jobs.get(digest)
        if job is None:
            job = self._jobs[digest] = self._pool.submit(_outcome, work)
        await asyncio.wait({asyncio.wrap_future(job)}, timeout=wait_s)
        if not job.done():
            return False
        if self._jobs.get(digest) is job:
            del self._jobs[digest]
        if (error := job.result()) is not None:
            raise error
        return True

    def forget(self, digest: Digest) -> None:
        """Drops an outcome that nobody asked for."""
        job = self._jobs.get(digest)
        if job is not None and job.done():
            del self._jobs[digest]


def _outcome(work: Callable[[], object]) -> CrosstrainError | None:
    try:
        work()
    except CrosstrainError as error:
        return error  # kept until somebody asks
    return None
