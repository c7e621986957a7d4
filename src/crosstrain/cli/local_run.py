"""What commands share that play a whole run on this machine: its directory, and its end."""

from __future__ import annotations

import contextlib
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from crosstrain.errors import CrosstrainError, EnvironmentFault, UsageError


@contextlib.contextmanager
def ends_with_its_children() -> Iterator[None]:
    """SIGTERM and a closed terminal become exceptions, so that the processes of the run are ended as after a Ctrl-C."""

    def leave(number: int, _frame: FrameType | None) -> None:
        sys.exit(128 + number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def run_directory(keep: Path | None) -> Iterator[Path]:
    """Where the run is: DIR, or a temporary directory that stays only if the logs in it explain a failure."""
    if keep is not None:
        yield _new_directory(keep)
        return
    directory = Path(tempfile.mkdtemp(prefix="crosstrain-run-"))
    remains = False
    try:
        yield directory
    except CrosstrainError as error:
        remains = (directory / "logs").exists()
        if remains:
            error.hint = f"{error.hint}; the run is in {directory}"
        raise
    finally:
        if not remains:
            shutil.rmtree(directory, ignore_errors=True)


def _new_directory(keep: Path) -> Path:
    try:
        keep.mkdir(parents=True, exist_ok=True)
        if any(keep.iterdir()):
            raise UsageError(f"{keep} is not empty.", "choose a new directory with --keep")
    except OSError as error:
        raise EnvironmentFault(f"The directory {keep} cannot be used: {error.strerror}.", "choose another") from error
    return keep.absolute()
