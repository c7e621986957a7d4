"""Where a simulation leaves its files, and how it keeps quiet."""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MEMORY = Path("/dev/shm")
"""Scratch files go here where it exists: thousands of fsyncs cost nothing there."""


@contextmanager
def scratch() -> Iterator[Path]:
    """A directory that is gone afterwards."""
    directory = Path(tempfile.mkdtemp(prefix="crosstrain-", dir=MEMORY if MEMORY.is_dir() else None))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def quiet() -> Iterator[None]:
    """The production parts log nothing meanwhile."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
