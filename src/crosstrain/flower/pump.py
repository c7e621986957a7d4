"""A node's side: one look into the mailbox beside a SuperNode, for one message of the ServerApp.

A ClientApp is a process of its own for every message, so nothing is remembered here: what was answered is in the mailbox,
what is being dealt with is in the `Delivery`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from crosstrain.clock import Clock, pause
from crosstrain.domain import timeouts
from crosstrain.domain.ids import Digest
from crosstrain.errors import UsageError
from crosstrain.flower.blob_parts import bytes_there, read_part, take_part
from crosstrain.flower.papers import Collection, Delivery, Part, bytes_of
from crosstrain.relay.moves import failure_of
from crosstrain.wire.mailbox import (
    FLOWER,
    Answer,
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
)

RELAY = "flower"
"""Our name in the mailbox: the same for all processes, so that each continues the pulse of the one before."""


def open_mailbox(directory: str) -> Mailbox:
    """The mailbox that the SuperNode's `--node-config` names.

    Raises:
        UsageError: it names none, or one that is not there.
        EnvironmentFault: it belongs to somebody else, or is open to others.
    """
    hint = "start flower-supernode with --node-config 'mailbox=\"/path\"', the directory of the sites' mailbox:/path"
    if not directory:
        raise UsageError("This SuperNode's configuration names no mailbox.", hint)
    if not Path(directory).is_dir():
        raise UsageError(f"There is no mailbox at {directory}.", f"make the directory with mode 0700; {hint}")
    return Mailbox(Path(directory))


class Pump:
    """Serves one `Delivery`.

    Args:
        host: shown to sites that wait.
    """

    def __init__(self, mailbox: Mailbox, clock: Clock, host: str) -> None:
        self._mailbox = mailbox
        self._clock = clock
        self._host = host
        self._files_now = 0.0
        self._shown_at = 0.0

    def serve(self, delivery: Delivery, data: memoryview) -> tuple[Collection, bytes]:
        """Puts what came into the mailbox, waits for letters, and takes them.

        Raises:
            UsageError: `data` is not what the delivery says.
            OSError: the mailbox cannot be read or written.
        """
        self._show_life(delivery.trouble)
        for part, piece in bytes_of(delivery.parts, data):
            take_part(self._mailbox.incoming, part, piece)
        totals = {part.digest: part.total for part in delivery.parts}
        self._tell_of_downloads(totals)
        for name, answer in delivery.answers.items():
            self._mailbox.box(name).put_answer(answer, RELAY)
        self._linger(delivery)
        self._tell_of_downloads(totals)
        collected = self._collect(delivery)
        self._clean()
        return collected

    def _show_life(self, trouble: str) -> None:
        before = self._mailbox.pulse()
        beat = before.beat + 1 if before else 1
        self._files_now = self._mailbox.put_pulse(
            Pulse(relay=RELAY, beat=beat, host=self._host, url=FLOWER, trouble=trouble)
        )
        self._shown_at = self._clock.perf()

    def _open_letters(self) -> Iterator[tuple[str, Letter, Answer | None]]:
        """Letters without a final answer, each with the newest answer in its box."""
        for name in self._mailbox.names():
            box = self._mailbox.box(name)
            letter, answer = box.letter(), box.answer()
            if letter is None or isinstance(letter.content, Nothing):
                continue
            answered = answer is not None and answer.number == letter.number
            if answered and answer is not None and isinstance(answer.content, Answered | Failed):
                continue
            if answered and answer is not None and isinstance(answer.content, Moved) and self._holds(letter):
                continue
            late = self._files_now - (box.written_at() or 0.0) > letter.patience_s + timeouts.SENDER_PULSE_S
            if not (late and isinstance(letter.content, Control)):
                yield name, letter, answer if answered else None

    def _holds(self, letter: Letter) -> bool:
        """Whether what was said to be done still is; a site throws a blob away that came damaged."""
        return not isinstance(letter.content, Download) or (self._mailbox.incoming / letter.content.digest).exists()

    def _tell_of_downloads(self, totals: dict[str, int]) -> None:
        """Tells those who want a blob how far it is; no word of the ServerApp is needed for that."""
        for name, letter, answer in self._open_letters():
            if not isinstance(letter.content, Download):
                continue
            digest = Digest(letter.content.digest)
            done = bytes_there(self._mailbox.incoming, digest)
            whole = (self._mailbox.incoming / digest).exists()
            state = Moved(total=done) if whole else Moving(done=done, total=totals.get(digest, 0))
            if (whole or done) and (answer is None or answer.content != state):
                self._mailbox.box(name).put_answer(Answer(number=letter.number, content=state), RELAY)

    def _linger(self, delivery: Delivery) -> None:
        started, look = self._clock.perf(), timeouts.FIRST_LOOK_S
        while not self._news(delivery):
            now = self._clock.perf()
            left = delivery.linger_s - (now - started)
            if left <= 0:
                return
            if now - self._shown_at >= timeouts.RELAY_PULSE_S:
                self._show_life(delivery.trouble)
            pause(min(look, left))
            look = min(timeouts.FLOWER_LOOK_S, timeouts.look_again_s(look))
        if delivery.linger_s > 0:
            pause(timeouts.FLOWER_GATHER_S)

    def _news(self, delivery: Delivery) -> bool:
        return any(delivery.in_hand.get(name) != letter.number for name, letter, _ in self._open_letters())

    def _collect(self, delivery: Delivery) -> tuple[Collection, bytes]:
        waiting, letters, has = {}, {}, {}
        wants = list(delivery.wants)
        for name, letter, _ in self._open_letters():
            waiting[name] = letter.number
            if isinstance(letter.content, Download):
                has[letter.content.digest] = bytes_there(self._mailbox.incoming, Digest(letter.content.digest))
            if delivery.in_hand.get(name) == letter.number:
                continue
            letters[name] = letter
            if isinstance(letter.content, Upload) and delivery.batch_bytes:
                # Its first part goes along, so that a small blob takes one message.
                wants.append(Part(digest=letter.content.digest, offset=0, length=delivery.batch_bytes))
        parts, data = self._read(wants, delivery.batch_bytes)
        return Collection(waiting=waiting, letters=letters, parts=parts, has=has), data

    def _read(self, wants: list[Part], room: int) -> tuple[tuple[Part, ...], bytes]:
        parts, pieces = [], []
        for want in wants:
            if room == 0:
                break
            try:
                part, piece = read_part(
                    self._mailbox.outgoing, Digest(want.digest), want.offset, min(room, want.length)
                )
            except FileNotFoundError as error:
                self._refuse_uploads(want.digest, failure_of(error))
                continue
            room -= len(piece)
            parts.append(part)
            pieces.append(piece)
        return tuple(parts), b"".join(pieces)

    def _refuse_uploads(self, digest: str, failed: Failed) -> None:
        for name, letter, _ in self._open_letters():
            if isinstance(letter.content, Upload) and letter.content.digest == digest:
                self._mailbox.box(name).put_answer(Answer(number=letter.number, content=failed), RELAY)

    def _clean(self) -> None:
        """Removes what nobody wants any more, by the rules of a relay."""
        named = set()
        for name in self._mailbox.names():
            box = self._mailbox.box(name)
            with contextlib.suppress(FileNotFoundError):
                if self._files_now - (box.written_at() or box.directory.stat().st_mtime) > timeouts.SENDER_GONE_S:
                    box.remove()
            letter = box.letter()
            if letter is not None and isinstance(letter.content, Upload | Download):
                named.add(Digest(letter.content.digest))
        for path, digest in tuple(self._mailbox.blobs()):
            with contextlib.suppress(FileNotFoundError):
                if digest not in named and self._files_now - path.stat().st_mtime > timeouts.BLOB_KEPT_S:
                    path.unlink()
