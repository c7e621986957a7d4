"""Blobs that a relay moves between its mailbox and the coordinator: each in a thread, each once, whoever asked for it."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from typing import Literal

from crosstrain.clock import pause
from crosstrain.domain.ids import Digest
from crosstrain.domain.timeouts import FOREVER_S
from crosstrain.errors import CrosstrainError, IntegrityError, Refused
from crosstrain.wire.blobs import Blobs
from crosstrain.wire.mailbox import Failed, Mailbox, Moved, Moving, await_file, open_own

log = logging.getLogger(__name__)

Direction = Literal["upload", "download"]
MakeBlobs = Callable[[Callable[[float], bool]], Blobs]
"""A client with connections of its own, given what to wait with."""


class Move:
    """One blob, one direction. What it says may be read from any thread."""

    def __init__(self, mailbox: Mailbox, direction: Direction, digest: Digest, make_blobs: MakeBlobs) -> None:
        self._mailbox = mailbox
        self._direction = direction
        self._digest = digest
        self._make_blobs = make_blobs
        self._cancelled = threading.Event()
        self.state: Moving | Moved | Failed = Moving()

    def start(self) -> None:
        # A daemon: the relay may end, or be killed, at any byte. The next one asks what is there and goes on.
        threading.Thread(target=self._run, name=f"{self._direction} {self._digest[:12]}", daemon=True).start()

    def cancel(self) -> None:
        """Nobody waits for it any more."""
        self._cancelled.set()

    @property
    def over(self) -> bool:
        return not isinstance(self.state, Moving)

    def _run(self) -> None:
        log.info("%s of %s begins", self._direction, self._digest[:12])
        blobs = self._make_blobs(self._pause)
        try:
            self.state = Moved(total=self._move(blobs))
            log.info("%s of %s is done", self._direction, self._digest[:12])
        except _WithdrawnError:
            self.state = Failed(error="Unreachable", message="The sender withdrew its letter.")
        except (CrosstrainError, OSError) as error:
            self.state = failure_of(error)
            log.warning("%s of %s: %s", self._direction, self._digest[:12], error)
        except Exception as error:
            self.state = failure_of(error)
            log.exception("%s of %s", self._direction, self._digest[:12])
        finally:
            blobs.close()

    def _move(self, blobs: Blobs) -> int:
        if self._direction == "upload":
            path = self._mailbox.outgoing / self._digest
            await_file(path, self._pause)
            os.close(open_own(path))
            # The sender's patience counts: its letter is withdrawn when that is over, and with it the move.
            blobs.upload(path, self._digest, FOREVER_S, self._progress)
        else:
            path = self._mailbox.incoming / self._digest
            if not path.exists():
                blobs.download(self._digest, path, FOREVER_S, self._progress)
            os.close(open_own(path))
        return path.stat().st_size

    def _progress(self, done: int, total: int) -> None:
        if self._cancelled.is_set():
            raise _WithdrawnError
        self.state = Moving(done=done, total=total)

    def _pause(self, seconds: float) -> bool:
        return pause(seconds, self._cancelled)


class _WithdrawnError(Exception):
    """Ends a transfer that nobody waits for."""


def failure_of(error: Exception) -> Failed:
    """The answer that carries an error to the sender."""
    match error:
        case Refused():
            return Failed(
                error="Refused", message=error.message, hint=error.hint, reason=error.kind, status=error.status
            )
        case CrosstrainError():
            return Failed(error=type(error).__name__, message=error.message, hint=error.hint)
        case FileNotFoundError():
            lost = IntegrityError("The file is not in the mailbox any more.", "it is put there again by a new attempt")
            return failure_of(lost)
        case _:
            return Failed(error="EnvironmentFault", message=f"The relay failed: {error}.", hint="see the relay's log")
