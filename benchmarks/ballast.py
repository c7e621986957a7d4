"""Memory in the same state for everything that is compared.

A virtual machine may give its free memory back to the host (free page reporting), and whoever is handed such memory next waits for
the host: on the machine of docs/measurements.md for 2 s of processor time for a GiB. What it costs to write a file then depends on
how much memory was freed before, by whom and how long ago: the same exchange of nginx took 10 s and 25 s. So free memory is held here
from the moment that it becomes free, and handed out bit by bit while something is measured.

What is held counts as no memory for dirty pages (vm.dirty_ratio), so whoever leaves writing to the end is throttled earlier; `--no-ballast`
tells what that comes to.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

CHUNK_BYTES = 128 << 20
LEAST_FREE_BYTES = 512 << 20
"""Left free: the system begins to look for pages to free somewhere below it."""
LOOK_S = 0.01
MADV_POPULATE_WRITE = 23
"""linux/mman.h, since 5.14; Python has no name for it."""


class Ballast:
    """Holds memory; one for a whole benchmark.

    Args:
        most: bytes to hold at most; none with 0.
    """

    def __init__(self, most: int) -> None:
        self._most = most // CHUNK_BYTES
        self._chunks: list[mmap.mmap] = []

    def take(self) -> None:
        """Takes what is free now."""
        while len(self._chunks) < self._most and _free_bytes() >= LEAST_FREE_BYTES + CHUNK_BYTES:
            self._chunks.append(_touched(CHUNK_BYTES))

    @contextlib.contextmanager
    def handed_out(self) -> Iterator[None]:
        """Gives memory back as it is used up."""
        over = threading.Event()

        def hand_out() -> None:
            while not over.wait(LOOK_S):
                while self._chunks and _free_bytes() < LEAST_FREE_BYTES:
                    self._chunks.pop().close()

        thread = threading.Thread(target=hand_out)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def close(self) -> None:
        """Gives all of it back."""
        while self._chunks:
            self._chunks.pop().close()


def _touched(length: int) -> mmap.mmap:
    memory = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    try:
        memory.madvise(MADV_POPULATE_WRITE)
    except OSError as error:
        if error.errno != errno.EINVAL:  # that of an older kernel
            raise
        for page in range(0, length, mmap.PAGESIZE):
            memory[page] = 1
    return memory


def warm(paths: Iterable[Path]) -> None:
    """Reads files, so that they are in the page cache."""
    buffer = memoryview(bytearray(1 << 20))
    for path in paths:
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def _free_bytes() -> int:
    """What this machine has, and what a container around us may still have."""
    free = _kib_of("MemFree") << 10
    limit, used = (_number(Path("/sys/fs/cgroup", name)) for name in ("memory.max", "memory.current"))
    return free if limit is None or used is None else min(free, limit - used)


def _kib_of(wanted: str) -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, amount = line.partition(":")
        if name == wanted:
            return int(amount.split()[0])
    raise OSError(f"/proc/meminfo has no {wanted}")


def _number(path: Path) -> int | None:
    """None where there is none, or no limit."""
    text = path.read_text().strip() if path.exists() else "max"
    return None if text == "max" else int(text)
