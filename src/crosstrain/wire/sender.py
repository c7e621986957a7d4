"""A site's side of a mailbox: control messages as an `httpx` transport, blobs as what `BlobClient` does."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import httpx

from crosstrain.clock import Clock, pause
from crosstrain.disk import sync_directory
from crosstrain.domain import timeouts
from crosstrain.domain.ids import Digest
from crosstrain.errors import CrosstrainError, EnvironmentFault, IntegrityError, Refused, Unreachable
from crosstrain.wire.blobs import Progress
from crosstrain.wire.deadline import Deadline
from crosstrain.wire.mailbox import (
    FLOWER,
    Answered,
    Control,
    Download,
    Failed,
    Letter,
    Mailbox,
    Moved,
    Moving,
    Nothing,
    Pulse,
    Upload,
    await_file,
)

log = logging.getLogger(__name__)

WELL = "waiting for the relay on"
"""A relay that lives and reaches the coordinator: nothing to tell, unless it takes long."""
CARRIED_HEADERS = frozenset({"authorization", "content-type", "user-agent"})


class Sender:
    """One letter at a time, and what is known of the relay that should take it.

    Args:
        name: no other sender of this mailbox has it.
    """

    def __init__(self, mailbox: Mailbox, name: str, clock: Clock) -> None:
        self._mailbox = mailbox
        self._box = mailbox.box(name)
        self._clock = clock
        self._letter = Letter(number=0, patience_s=0, content=Nothing())
        self._sent_at = self._written_at = self._heard_at = clock.perf()
        self._heard: Answered | Moving | Moved | Failed | None = None
        self._fault = ""
        self._pulse: Pulse | None = None
        self._pulse_at = clock.perf()
        self._looked_at = 0.0
        self._said = ""
        self._box.open()

    def send(self, content: Control | Upload | Download | Nothing, patience_s: float) -> None:
        self._sent_at = self._heard_at = self._clock.perf()
        self._heard = None
        self._write(Letter(number=self._letter.number + 1, patience_s=patience_s, content=content))

    def answer(self) -> Answered | Moving | Moved | Failed | None:
        """What came of the letter, None if nothing yet. Says in the log what it waits for."""
        found, now = self._box.answer(), self._clock.perf()
        content = found.content if found is not None and found.number == self._letter.number else None
        if content != self._heard:
            self._heard, self._heard_at = content, now
        if content is not None and not isinstance(content, Moving):
            self._said = ""
            return content
        if self._fault:
            self._write(self._letter)
        elif now - self._written_at >= timeouts.SENDER_PULSE_S:
            self._write(self._letter.model_copy(update={"renewed": self._letter.renewed + 1}))
        # A transfer that moves says so by its progress.
        quiet_s = 2 * timeouts.LONGEST_LOOK_S if content is None else timeouts.RELAY_SILENT_S
        if now - max(self._heard_at, self._looked_at) >= quiet_s:
            sentence = self.waits_for()
            if not sentence.startswith(WELL) or now - self._sent_at >= timeouts.RELAY_SILENT_S:
                self._say(sentence)
        return content

    def waits_for(self) -> str:
        """One sentence: what is known of the relay."""
        now, found = self._clock.perf(), self._mailbox.pulse()
        self._looked_at = now
        if self._fault:
            return self._fault
        if found != self._pulse:
            self._pulse, self._pulse_at = found, now
        start = f"start `crosstrain relay --mailbox {self._mailbox.directory}` on a node with network"
        if self._pulse is not None and self._pulse.url == FLOWER:
            start = "see whether its SuperNode and the run of the Flower app are up"
        if self._pulse is None:
            return f"no relay was ever at the mailbox {self._mailbox.directory}; {start}"
        if self._pulse.ended:
            return f"the relay on {self._pulse.host} ended; {start}"
        silent = now - self._pulse_at
        if silent >= timeouts.RELAY_SILENT_S:
            return f"the relay on {self._pulse.host} has shown no sign of life for {silent:.0f} s; {start}"
        if self._pulse.trouble:
            return f"the relay on {self._pulse.host} does not reach the coordinator: {self._pulse.trouble}"
        return f"{WELL} {self._pulse.host}"

    def close(self) -> None:
        self._box.remove()

    def _write(self, letter: Letter) -> None:
        """Puts the letter into the box; what a shared file system refuses for a while is tried again."""
        self._letter, self._written_at = letter, self._clock.perf()
        try:
            self._box.write(letter)
            self._fault = ""
        except (OSError, EnvironmentFault) as error:
            reason = error.message if isinstance(error, EnvironmentFault) else f"{error.strerror}."
            self._fault = f"the mailbox {self._mailbox.directory} cannot be written: {reason}"

    def _say(self, sentence: str) -> None:
        kind = sentence.partition(" for ")[0]
        if kind != self._said:
            self._said = kind
            log.warning("%s", sentence)


class MailboxTransport(httpx.BaseTransport):
    """Carries control requests as letters; an answer that does not come in time is a read timeout."""

    def __init__(self, mailbox: Mailbox, name: str, clock: Clock) -> None:
        self._sender = Sender(mailbox, name, clock)
        self._clock = clock

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        patience_s = float(request.extensions.get("timeout", {}).get("read") or timeouts.REQUEST_S)
        headers = {name: value for name, value in request.headers.items() if name in CARRIED_HEADERS}
        path = request.url.raw_path.decode()
        method = "POST" if request.method == "POST" else "GET"
        body = request.read().decode()
        started, look = self._clock.perf(), timeouts.FIRST_LOOK_S
        self._sender.send(Control(method=method, path=path, headers=headers, body=body), patience_s)
        while (answer := self._sender.answer()) is None:
            left = patience_s - (self._clock.perf() - started)
            if left <= 0:
                reason = self._sender.waits_for()
                self._sender.send(Nothing(), 0)
                raise httpx.ReadTimeout(reason, request=request)
            pause(min(look, left))
            look = timeouts.look_again_s(look)
        if not isinstance(answer, Answered):
            raise httpx.RemoteProtocolError(f"the relay answered {answer.kind!r}", request=request)
        return httpx.Response(
            answer.status, headers={"content-type": answer.media_type}, content=answer.body.encode(), request=request
        )

    def close(self) -> None:
        self._sender.close()


class MailboxBlobs:
    """Blobs by way of the mailbox: files are linked where both sides see them, else copied; the relay moves the bytes.

    Args:
        wait: sleeps that many seconds; returns True when the process is to stop.
    """

    def __init__(self, mailbox: Mailbox, name: str, clock: Clock, wait: Callable[[float], bool]) -> None:
        self._mailbox = mailbox
        self._sender = Sender(mailbox, name, clock)
        self._clock = clock
        self._wait = wait

    def upload(self, path: Path, digest: Digest, deadline_s: float, progress: Progress) -> None:
        """Makes the coordinator hold the blob.

        Raises:
            Refused, IntegrityError: the relay's transfer was refused.
            EnvironmentFault: the mailbox has no room for the file.
            Unreachable: not done before the deadline; says what is known of the relay.
        """
        place, time = self._mailbox.outgoing / digest, Deadline(self._clock, deadline_s)
        try:
            self._offer(path, place, digest, time, progress)
        except IntegrityError as error:
            log.warning("%s Putting it into the mailbox again.", error.message)
            self._offer(path, place, digest, time, progress)
        with contextlib.suppress(OSError):  # the relay removes it later
            place.unlink()

    def download(self, digest: Digest, target: Path, deadline_s: float, progress: Progress) -> None:
        """Puts the blob at `target`, complete or not at all. Raises as `upload` does."""
        place, time = self._mailbox.incoming / digest, Deadline(self._clock, deadline_s)
        for _attempt in ("as it lies in the mailbox", "fetched again"):
            self._carry(Download(digest=digest), time, progress, "download")
            shows = await_file(place, self._wait, time.left_s)
            if shows and _take(place, target, digest):
                self._sender.send(Nothing(), 0)
                return
        found = "has another digest in the mailbox" if shows else "does not show in the mailbox on this node"
        raise IntegrityError(
            f"Blob {digest[:12]} {found}, also after it was fetched again.",
            "the shared file system loses files or bytes; ask its operators",
        )

    def close(self) -> None:
        self._sender.close()

    def _offer(self, path: Path, place: Path, digest: Digest, time: Deadline, progress: Progress) -> None:
        _put(path, place)
        self._carry(Upload(digest=digest), time, progress, "upload")

    def _carry(self, content: Upload | Download, time: Deadline, progress: Progress, what: str) -> None:
        look = timeouts.FIRST_LOOK_S
        self._sender.send(content, time.left_s)
        while True:
            answer = self._sender.answer()
            if isinstance(answer, Moved):
                progress(answer.total, answer.total)
                return
            if isinstance(answer, Failed):
                raise _error_of(answer)
            if isinstance(answer, Moving):
                progress(answer.done, answer.total)
            left = time.left_s
            if left <= 0 or self._wait(min(look, left)):
                reason = self._sender.waits_for()
                self._sender.send(Nothing(), 0)
                raise Unreachable(
                    f"The {what} was not done within {time.seconds:.0f} s ({reason}).",
                    "it continues from where it stopped when it is tried again",
                )
            look = timeouts.look_again_s(look)


def _error_of(failed: Failed) -> CrosstrainError:
    match failed.error:
        case "Refused":
            return Refused(failed.message, failed.hint, kind=failed.reason, status=failed.status)
        case "IntegrityError":
            return IntegrityError(failed.message, failed.hint)
        case "EnvironmentFault":
            return EnvironmentFault(failed.message, failed.hint)
        case _:
            return Unreachable(failed.message, failed.hint)


def _put(path: Path, place: Path) -> None:
    """Makes the file visible in the mailbox: by a second name, or by a copy if it lies on another file system."""
    part = place.with_name(f".{place.name}.new")
    try:
        part.unlink(missing_ok=True)
        try:
            os.link(path, part)
        except OSError:
            shutil.copyfile(path, part)
            part.chmod(0o600)
        part.replace(place)
    except OSError as error:
        _discard(part)
        raise EnvironmentFault(
            f"{path} cannot be put into the mailbox {place.parent.parent}: {error.strerror}.",
            "free space there, or choose another directory",
        ) from error


def _take(place: Path, target: Path, digest: Digest) -> bool:
    """Makes the blob the site's own; False if it is not there any more or has changed."""
    part = target.with_name(f"{target.name}.part")
    try:
        part.unlink(missing_ok=True)
        try:
            os.link(place, part)
        except FileNotFoundError:
            return False
        except OSError:
            shutil.copyfile(place, part)
        with part.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
            os.fsync(file.fileno())
        if found != digest:
            part.unlink()
            place.unlink(missing_ok=True)
            return False
        part.replace(target)
        sync_directory(target.parent)
    except OSError as error:
        _discard(part)
        raise EnvironmentFault(
            f"{target} cannot be written: {error.strerror}.", "free space, or set another `site.dir`"
        ) from error
    return True


def _discard(part: Path) -> None:
    with contextlib.suppress(OSError):  # of a file system that refuses this too, the first refusal is told
        part.unlink()
