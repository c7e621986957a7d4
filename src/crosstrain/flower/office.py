"""The ServerApp's side: does at the coordinator what the letters of all nodes ask.

`Office` is what the nodes share: the way to the coordinator and the blobs that are under way. A `Desk` is one node. Nothing
here outlives the run of the ServerApp, and need not: a letter without an answer comes again.
"""

from __future__ import annotations

import logging
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

from crosstrain.clock import Clock
from crosstrain.domain import timeouts
from crosstrain.domain.ids import Digest
from crosstrain.errors import Refused
from crosstrain.flower.blob_parts import bytes_there, read_part, take_part
from crosstrain.flower.papers import Collection, Delivery, Part, bytes_of
from crosstrain.relay.forward import Forwarder
from crosstrain.relay.moves import MakeBlobs, Move, failure_of
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
    Upload,
)

log = logging.getLogger(__name__)

REQUESTS_AT_ONCE = 32
Direction = Literal["upload", "download"]


class Office:
    """What all nodes share.

    Args:
        mirror: a mailbox of the ServerApp's own, for blobs on their way; it is nobody else's.
        inline: whether blobs may pass through Flower at all.
        batch_bytes: the most that one message carries of them.
        linger_s: how long a node waits for a letter before it replies without one.
    """

    def __init__(
        self,
        mirror: Mailbox,
        forwarder: Forwarder,
        make_blobs: MakeBlobs,
        clock: Clock,
        *,
        inline: bool,
        batch_bytes: int,
        linger_s: float,
    ) -> None:
        self.mirror = mirror
        self.clock = clock
        self.inline = inline
        self.batch_bytes = batch_bytes
        self.linger_s = linger_s
        self._forwarder = forwarder
        self._make_blobs = make_blobs
        self._threads = ThreadPoolExecutor(REQUESTS_AT_ONCE, "control")
        self._moves: dict[tuple[Direction, Digest], Move] = {}
        self._wanted_at: dict[Digest, float] = {}

    def __str__(self) -> str:
        return str(self._forwarder)

    @property
    def trouble(self) -> str:
        """Why the newest request did not reach the coordinator, empty if it did."""
        return self._forwarder.trouble

    def pass_on(self, control: Control, patience_s: float) -> Future[Answered]:
        """The coordinator's answer, or that it cannot be reached."""
        return self._threads.submit(self._forwarder.pass_on, control, patience_s)

    def move(self, direction: Direction, digest: Digest) -> Move:
        """The transfer between mirror and coordinator that is under way, or a new one."""
        found = self._moves.get((direction, digest))
        # What was uploaded before may be lost at the coordinator; that is why it comes again.
        if found is None or isinstance(found.state, Failed) or (direction == "upload" and found.over):
            found = self._moves[direction, digest] = Move(self.mirror, direction, digest, self._make_blobs)
            found.start()
        return found

    def tidy(self, wanted: set[Digest]) -> None:
        """Lets go of blobs that no letter has named for a while; `wanted` are those that one names now."""
        now = self.clock.perf()
        self._wanted_at |= dict.fromkeys(wanted, now)
        for key, move in tuple(self._moves.items()):
            if key[1] not in wanted:
                move.cancel()
                del self._moves[key]
        for path, digest in tuple(self.mirror.blobs()):
            if now - self._wanted_at.setdefault(digest, now) > timeouts.BLOB_KEPT_S:
                path.unlink(missing_ok=True)
                del self._wanted_at[digest]

    def close(self) -> None:
        for move in self._moves.values():
            move.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._forwarder.close()


@dataclass(slots=True)
class _Task:
    """A letter that is being dealt with.

    Attributes:
        answer: how it ended, or how far it is.
        reply: the control request under way.
        move: the transfer under way; None while an upload still comes from the node.
        offset: how much of a download the node has.
    """

    letter: Letter
    answer: Answered | Moving | Moved | Failed | None = None
    reply: Future[Answered] | None = None
    move: Move | None = None
    offset: int = 0

    @property
    def digest(self) -> Digest | None:
        content = self.letter.content
        return Digest(content.digest) if isinstance(content, Upload | Download) else None

    @property
    def over(self) -> bool:
        return isinstance(self.answer, Answered | Moved | Failed)


class Desk:
    """One node's letters."""

    def __init__(self, office: Office) -> None:
        self._office = office
        self._tasks: dict[str, _Task] = {}

    @property
    def idle(self) -> bool:
        """Whether no sender of this node waits for anything."""
        return not self._tasks

    @property
    def wanted(self) -> set[Digest]:
        """Blobs that letters name."""
        return {task.digest for task in self._tasks.values() if task.digest is not None}

    @property
    def answering(self) -> bool:
        """Whether an answer of the coordinator is to be expected at any moment."""
        self._look()
        return any(task.reply is not None for task in self._tasks.values())

    def take(self, collection: Collection, data: memoryview) -> None:
        """Takes up what came from the node.

        Raises:
            UsageError: `data` is not what the collection says.
        """
        for name in tuple(self._tasks):
            if collection.waiting.get(name) != self._tasks[name].letter.number:
                del self._tasks[name]  # answered, or withdrawn
        for name, letter in collection.letters.items():
            if name not in self._tasks:
                self._tasks[name] = self._begin(letter)
        for part, piece in bytes_of(collection.parts, data):
            take_part(self._office.mirror.outgoing, part, piece)
        for task in self._tasks.values():
            if isinstance(task.letter.content, Download):
                task.offset = collection.has.get(task.letter.content.digest, 0)
        totals = {part.digest: part.total for part in collection.parts}
        for task in self._tasks.values():
            self._receive(task, totals)

    def delivery(self) -> tuple[Delivery, bytes]:
        """What the node is to get next."""
        self._look()
        answers = {
            name: Answer(number=task.letter.number, content=task.answer)
            for name, task in self._tasks.items()
            if task.answer is not None and not (isinstance(task.letter.content, Download) and not task.over)
        }
        wants = self._wants()
        parts, data = self._parts()
        pending = any(not task.over for task in self._tasks.values())
        moving = bool(wants or parts)
        delivery = Delivery(
            answers=answers,
            in_hand={name: task.letter.number for name, task in self._tasks.items()},
            parts=parts,
            wants=wants,
            batch_bytes=self._office.batch_bytes if self._office.inline else 0,
            linger_s=0.0
            if moving
            else min(timeouts.FLOWER_SOON_S, self._office.linger_s)
            if pending
            else self._office.linger_s,
            trouble=self._office.trouble,
        )
        return delivery, data

    def _begin(self, letter: Letter) -> _Task:
        match letter.content:
            case Control() as control:
                return _Task(letter, reply=self._office.pass_on(control, letter.patience_s))
            case Upload() | Download() if not self._office.inline:
                return _Task(letter, answer=_no_blobs())
            case Download(digest=digest):
                return _Task(letter, move=self._office.move("download", Digest(digest)))
            case _:
                return _Task(letter)

    def _receive(self, task: _Task, totals: dict[str, int]) -> None:
        """An upload that comes from the node: how far it is, and on to the coordinator once it is whole."""
        if not isinstance(task.letter.content, Upload) or task.move is not None or task.over:
            return
        digest, place = Digest(task.letter.content.digest), self._office.mirror.outgoing
        if (place / digest).exists():
            task.move = self._office.move("upload", digest)
        else:
            known = task.answer.total if isinstance(task.answer, Moving) else 0
            task.answer = Moving(done=bytes_there(place, digest), total=totals.get(digest, known))

    def _look(self) -> None:
        """Takes in what ended meanwhile."""
        for task in self._tasks.values():
            if task.reply is not None and task.reply.done():
                error = task.reply.exception()
                if error is None:
                    task.answer = task.reply.result()
                else:
                    log.error("a request could not be passed on", exc_info=error)
                    task.answer = failure_of(error) if isinstance(error, Exception) else None
                task.reply = None
            if task.move is None or task.over:
                continue
            if isinstance(task.letter.content, Upload) or isinstance(task.move.state, Failed):
                task.answer = task.move.state
            if isinstance(task.letter.content, Upload) and isinstance(task.answer, Moved):
                (self._office.mirror.outgoing / task.letter.content.digest).unlink(missing_ok=True)

    def _wants(self) -> tuple[Part, ...]:
        found: dict[Digest, Part] = {}
        for task in self._tasks.values():
            if isinstance(task.letter.content, Upload) and task.move is None and not task.over:
                digest = Digest(task.letter.content.digest)
                have = bytes_there(self._office.mirror.outgoing, digest)
                found[digest] = Part(digest=digest, offset=have, length=self._office.batch_bytes)
        return tuple(found.values())

    def _parts(self) -> tuple[tuple[Part, ...], bytes]:
        parts: list[Part] = []
        pieces: list[bytes] = []
        room, seen = self._office.batch_bytes, set()
        for task in self._tasks.values():
            digest = task.digest
            if task.move is None or digest in seen or not isinstance(task.letter.content, Download):
                continue
            if not isinstance(task.move.state, Moved) or room == 0:
                continue
            assert digest is not None
            seen.add(digest)
            part, piece = read_part(self._office.mirror.incoming, digest, task.offset, room)
            room -= part.length
            parts.append(part)
            pieces.append(piece)
        return tuple(parts), b"".join(pieces)


def _no_blobs() -> Failed:
    return failure_of(
        Refused(
            "This Flower run carries no weights.",
            "set `site.blobs` to the coordinator's https:// address, or start the run with "
            "--run-config 'weights=\"inline\"'",
            kind="no-weights-inline",
        )
    )
