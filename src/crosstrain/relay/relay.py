"""The relay: looks into a mailbox and does what the letters ask, on a node that reaches the coordinator.

It keeps nothing in memory that matters. Killed at any moment, the next one finds the letters, answers those that were not
answered, and continues transfers where they stopped. Of two relays the newer one serves; the older one ends.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from crosstrain.clock import Clock
from crosstrain.domain import timeouts
from crosstrain.domain.ids import Digest
from crosstrain.errors import Superseded
from crosstrain.relay.forward import Forwarder
from crosstrain.relay.moves import Direction, MakeBlobs, Move
from crosstrain.wire.mailbox import (
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

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Known:
    """What the relay knows of one sender.

    Attributes:
        number, renewed: of the newest letter that was taken up.
        look_s: the pause before the next look.
        next_look: when that is, monotonic seconds.
        move: which transfer the letter waits for.
        told: what its newest answer says of it.
        told_at: when that was.
        fault: what the file system said of its box last.
    """

    look_s: float = timeouts.FIRST_LOOK_S
    next_look: float = 0.0
    number: int = -1
    renewed: int = 0
    move: Move | None = None
    told: object = None
    told_at: float = 0.0
    fault: str = ""
    busy: threading.Event = field(default_factory=threading.Event)


class Relay:
    """Serves one mailbox; driven by `step`.

    Args:
        me: a name of this process's own.
        host: shown to those who wait.
    """

    def __init__(
        self, mailbox: Mailbox, forwarder: Forwarder, make_blobs: MakeBlobs, clock: Clock, me: str, host: str
    ) -> None:
        self._mailbox = mailbox
        self._forwarder = forwarder
        self._make_blobs = make_blobs
        self._clock = clock
        self._pulse = Pulse(relay=me, beat=0, host=host, url=str(forwarder).rpartition("@")[2])
        self._fault = ""
        self._pulse_due = 0.0
        self._files_now = 0.0
        self._list_due = 0.0
        self._clean_due = clock.perf() + timeouts.CLEAN_EVERY_S
        self._known: dict[str, _Known] = {}
        self._moves: dict[tuple[Direction, Digest], Move] = {}
        self._wanted_at: dict[Digest, float] = {}

    def step(self) -> float:
        """Looks once at everything that is due; returns the seconds until something is.

        Raises:
            Superseded: a newer relay serves this mailbox.
        """
        now = self._clock.perf()
        try:
            self._look_at_all(now)
        except OSError as error:
            # A shared file system has bad moments; everything that was missed is still there at the next look.
            if str(error) != self._fault:
                log.warning("the mailbox %s: %s; trying again", self._mailbox.directory, error)
            self._fault = str(error)
            return timeouts.LONGEST_LOOK_S
        self._fault = ""
        due = min([self._pulse_due, self._list_due, *(known.next_look for known in self._known.values())])
        return max(timeouts.FIRST_LOOK_S / 2, due - self._clock.perf())

    def _look_at_all(self, now: float) -> None:
        if now >= self._pulse_due:
            self._show_life(now)
        if now >= self._list_due:
            self._list_due = now + timeouts.LONGEST_LOOK_S
            self._list()
        for name, known in self._known.items():
            if now >= known.next_look:
                self._look_or_say(name, known, now)
        self._drop_moves()
        if now >= self._clean_due:
            self._clean_due = now + timeouts.CLEAN_EVERY_S
            self._clean(now)

    def leave(self) -> None:
        """Says that it ends, unless a newer relay serves."""
        with contextlib.suppress(OSError):
            found = self._mailbox.pulse()
            if found is not None and found.relay == self._pulse.relay:
                self._mailbox.put_pulse(self._pulse.model_copy(update={"ended": True}))

    # -- life -------------------------------------------------------------------------------------------------------

    def _show_life(self, now: float) -> None:
        found = self._mailbox.pulse()
        if self._pulse.beat and found is not None and found.relay != self._pulse.relay:
            raise Superseded(
                f"A newer relay, on {found.host}, serves the mailbox {self._mailbox.directory}.", "one is enough"
            )
        update = {"beat": self._pulse.beat + 1, "trouble": self._forwarder.trouble}
        self._pulse = self._pulse.model_copy(update=update)
        self._files_now = self._mailbox.put_pulse(self._pulse)
        self._pulse_due = now + timeouts.RELAY_PULSE_S

    def _list(self) -> None:
        names = self._mailbox.names()
        for name in self._known.keys() - set(names):
            del self._known[name]
        for name in names:
            self._known.setdefault(name, _Known())

    # -- letters ----------------------------------------------------------------------------------------------------

    def _look_or_say(self, name: str, known: _Known, now: float) -> None:
        """Looks into one box; what is wrong with it holds up no other."""
        try:
            self._look(name, known, now)
            known.fault = ""
        except OSError as error:
            known.next_look = now + timeouts.LONGEST_LOOK_S
            if str(error) != known.fault:
                log.warning("the box of %s: %s; trying again", name, error)
            known.fault = str(error)

    def _look(self, name: str, known: _Known, now: float) -> None:
        letter = self._mailbox.box(name).letter()
        if letter is not None and not known.busy.is_set() and _is_news(known, letter):
            known.look_s = timeouts.FIRST_LOOK_S
            self._take_up(name, known, letter)
        else:
            known.look_s = timeouts.look_again_s(known.look_s)
        if known.move is not None:
            self._tell(name, known, now)
        known.next_look = now + known.look_s

    def _take_up(self, name: str, known: _Known, letter: Letter) -> None:
        known.number, known.renewed, known.move, known.told = letter.number, letter.renewed, None, None
        box = self._mailbox.box(name)
        answered = box.answer()
        done = answered is not None and answered.number == letter.number and not isinstance(answered.content, Moving)
        written_at = box.written_at()
        match letter.content:
            case Nothing():
                return
            case Control() if not done and not self._too_late(written_at, letter):
                known.busy.set()
                work = partial(self._pass_on, name, known, letter, letter.content)
                threading.Thread(target=work, name=f"control {name}", daemon=True).start()
            case Upload(digest=digest) if not done:
                known.move = self._move("upload", Digest(digest))
            case Download(digest=digest) if not done or not (self._mailbox.incoming / digest).exists():
                known.move = self._move("download", Digest(digest))

    def _too_late(self, written_at: float | None, letter: Letter) -> bool:
        """Whether its sender gave up before this relay came. Both moments are the file system's."""
        return written_at is None or self._files_now - written_at > letter.patience_s + timeouts.SENDER_PULSE_S

    def _pass_on(self, name: str, known: _Known, letter: Letter, control: Control) -> None:
        try:
            self._answer(name, letter.number, self._forwarder.pass_on(control, letter.patience_s))
        except OSError as error:
            log.error("the answer to %s cannot be written: %s", name, error)
        finally:
            known.busy.clear()

    def _answer(self, name: str, number: int, content: Answered | Moving | Moved | Failed) -> None:
        """Answers, unless a newer relay serves: one that was stopped meanwhile would write over the answer to a later letter."""
        found = self._mailbox.pulse()
        if found is None or found.relay == self._pulse.relay:
            self._mailbox.box(name).put_answer(Answer(number=number, content=content), self._pulse.relay)

    # -- blobs ------------------------------------------------------------------------------------------------------

    def _move(self, direction: Direction, digest: Digest) -> Move:
        """The transfer that is under way, or a new one."""
        found = self._moves.get((direction, digest))
        if found is None or found.over:
            found = Move(self._mailbox, direction, digest, self._make_blobs)
            self._moves[direction, digest] = found
            found.start()
        return found

    def _tell(self, name: str, known: _Known, now: float) -> None:
        """Writes down how far the sender's transfer is: its end at once, its progress with the pulse."""
        assert known.move is not None
        state = known.move.state
        if not isinstance(state, Moving):
            self._answer(name, known.number, state)
            known.move = None
        elif known.told != state and now - known.told_at >= timeouts.RELAY_PULSE_S:
            self._answer(name, known.number, state)
            known.told, known.told_at = state, now
        known.look_s = min(known.look_s, timeouts.RELAY_PULSE_S / 4)

    def _drop_moves(self) -> None:
        wanted = {id(known.move) for known in self._known.values() if known.move is not None}
        for key, move in tuple(self._moves.items()):
            if id(move) not in wanted:
                move.cancel()
                del self._moves[key]

    # -- what nobody wants any more ---------------------------------------------------------------------------------

    def _clean(self, now: float) -> None:
        """Removes boxes whose sender renewed nothing for an hour, and blobs that no letter has named for ten minutes."""
        named = set()
        for name in self._mailbox.names():
            box = self._mailbox.box(name)
            written_at, letter = box.written_at(), box.letter()
            if self._files_now - (written_at or box.directory.stat().st_mtime) > timeouts.SENDER_GONE_S:
                log.info("%s wrote nothing for an hour; its files are removed", name)
                box.remove()
            elif letter is not None and isinstance(letter.content, Upload | Download):
                named.add(Digest(letter.content.digest))
        moving = {digest for _, digest in self._moves}
        for path, digest in self._mailbox.blobs():
            if digest in named or digest in moving:
                self._wanted_at[digest] = now
            elif now - self._wanted_at.setdefault(digest, now) > timeouts.BLOB_KEPT_S and not self._grows(path):
                path.unlink(missing_ok=True)

    def _grows(self, path: Path) -> bool:
        """Whether somebody writes the file: copying a large one into the mailbox takes longer than unwanted ones are kept."""
        try:
            return self._files_now - path.stat().st_mtime <= timeouts.BLOB_KEPT_S
        except FileNotFoundError:
            return False


def _is_news(known: _Known, letter: Letter) -> bool:
    """A new letter, or one that is renewed although it was answered: then the answer was lost."""
    return letter.number != known.number or (known.move is None and letter.renewed != known.renewed)
