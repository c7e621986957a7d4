"""Worker processes that never outlive their parent, however it ends.

Every worker waits on a pipe that only the parent can write to. When the parent closes it (an error, Ctrl-C) or dies (any
signal), the worker sees the end of the pipe and exits at once. Processes are spawned, not forked: the parent may have
threads, and Python 3.12 warns about forking then.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from ctypes import c_uint64
from multiprocessing.connection import Connection
from multiprocessing.sharedctypes import Synchronized
from types import TracebackType
from typing import TypeVar

from crosstrain.corpus.records import Advance
from crosstrain.domain.timeouts import WORKERS_LOOK_S
from crosstrain.errors import EnvironmentFault

Task = TypeVar("Task")
Result = TypeVar("Result")

_QUEUED_PER_WORKER = 2


class Workers:
    """Runs functions of (task, advance) in `count` processes, or in this one if count is 1."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Workers:
        if self._count > 1:
            context = multiprocessing.get_context("spawn")
            reader, self._lifeline = context.Pipe(duplex=False)
            self._counter: Synchronized[int] = context.Value(c_uint64, 0)
            self._pool = ProcessPoolExecutor(
                self._count, mp_context=context, initializer=_begin, initargs=(reader, self._counter)
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is None:
            return
        self._pool.shutdown(wait=kind is None, cancel_futures=True)
        self._lifeline.close()
        self._pool.shutdown(wait=True)

    def run(
        self,
        function: Callable[[Task, Advance], Result],
        tasks: Sequence[Task],
        finished: Callable[[int, Result], None],
        advanced: Advance,
    ) -> None:
        """Calls `finished` with each task's number and result, as they come; `advanced` with bytes as they are done.

        Raises:
            CrosstrainError: the first that a task raised.
            EnvironmentFault: a worker was killed.
        """
        if self._pool is None:
            for number, task in enumerate(tasks):
                finished(number, function(task, advanced))
            return
        try:
            self._run_pool(self._pool, function, tasks, finished, advanced)
        except BrokenProcessPool as error:
            raise EnvironmentFault(
                "A worker process was killed.",
                "it may have needed too much memory: give fewer --workers; finished work is used again",
            ) from error

    def _run_pool(
        self,
        pool: ProcessPoolExecutor,
        function: Callable[[Task, Advance], Result],
        tasks: Sequence[Task],
        finished: Callable[[int, Result], None],
        advanced: Advance,
    ) -> None:
        running: dict[Future[Result], int] = {}
        waiting = iter(enumerate(tasks))
        counted = self._counter.value
        while True:
            while len(running) < self._count * _QUEUED_PER_WORKER and (item := next(waiting, None)):
                running[pool.submit(_call, function, item[1])] = item[0]
            if not running:
                return
            done, _ = wait(running, timeout=WORKERS_LOOK_S, return_when=FIRST_COMPLETED)
            now = self._counter.value
            advanced(now - counted)
            counted = now
            for future in done:
                finished(running.pop(future), future.result())


_advance: Advance


def _begin(lifeline: Connection, counter: Synchronized[int]) -> None:
    global _advance

    def add(count: int) -> None:
        with counter.get_lock():
            counter.value += count

    def follow_parent() -> None:
        lifeline.poll(None)
        os._exit(1)

    _advance = add
    # Ctrl-C reaches the whole process group; the parent answers it and the lifeline ends the workers without a traceback.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The processes are the parallelism; threads inside each would only compete.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    threading.Thread(target=follow_parent, daemon=True).start()


def _call(function: Callable[[Task, Advance], Result], task: Task) -> Result:
    return function(task, _advance)
