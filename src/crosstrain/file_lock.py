"""A lock on an open file, against threads and processes, for which nobody waits without end.

A process that is stopped (^Z, a suspended job, a node that pages) keeps its locks as long as it is there. Whoever finds a file
held by such a one is told after a while, and helps himself.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from collections.abc import Iterator
from weakref import WeakValueDictionary

from crosstrain.domain import timeouts


class _Threads:
    """What the threads of this process share of one file."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.stuck = False


_files: WeakValueDictionary[tuple[int, int], _Threads] = WeakValueDictionary()
_files_lock = threading.Lock()
_never = threading.Event()


class FileLock:
    """The lock of the file behind a descriptor; not for several threads at once, each opens the file for itself.

    Args:
        shared: beside others that hold it so; for a descriptor that cannot write.
    """

    def __init__(self, handle: int, *, shared: bool = False) -> None:
        self._handle, self._how = handle, fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        found = os.fstat(handle)
        with _files_lock:
            self._threads = _files.setdefault((found.st_dev, found.st_ino), _Threads())

    @contextlib.contextmanager
    def held(self) -> Iterator[bool]:
        """Holds it; False, and nothing is held, if a process has it that does not go on."""
        with self._threads.lock:
            got = self._take()
            try:
                yield got
            finally:
                if got:
                    fcntl.flock(self._handle, fcntl.LOCK_UN)

    def _take(self) -> bool:
        # Among our threads the other lock decides, so that this one is waited for only where another process is at work.
        for _ in range(1 if self._threads.stuck else round(timeouts.LOCK_STUCK_S / timeouts.LOCK_LOOK_S)):
            try:
                fcntl.flock(self._handle, self._how | fcntl.LOCK_NB)
            except BlockingIOError:
                _never.wait(timeouts.LOCK_LOOK_S)
            else:
                self._threads.stuck = False
                return True
        self._threads.stuck = True
        return False
