"""Who is alive, told by the operating system or by the database server instead of by clocks.

Every term has a lock of its own. A coordinator process takes the lock of the term it is going to write with, keeps it as
long as it lives, and loses it when it dies, however that is: so a lock that can be taken belongs to nobody alive. As no
lock is used for two terms, a process that is stuck holds up no later term.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Protocol

from crosstrain.disk import disk_faults


class TermLock(Protocol):
    """This process's locks.

    Raises:
        EnvironmentFault: from any method, when the disk or the server refuses.
    """

    def take(self, term: int) -> bool:
        """Takes the lock of a term if nobody else has it; returns whether it is ours now. One that was lost with its
        connection is taken again."""
        ...

    def release(self, term: int) -> None:
        """Lets go of the lock of a term, which need not be ours."""
        ...

    def close(self) -> None:
        """Lets go of all."""
        ...


class FileTermLock:
    """Byte N of a file is the lock of term N; the kernel frees it with the process. For processes of one machine."""

    def __init__(self, path: Path) -> None:
        with disk_faults(path):
            self._file: int | None = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._path = path

    def take(self, term: int) -> bool:
        assert self._file is not None
        try:
            with disk_faults(self._path):
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, term)
        except BlockingIOError:
            return False
        return True

    def release(self, term: int) -> None:
        assert self._file is not None
        with disk_faults(self._path):
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, term)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
