"""A mailbox: a directory on a file system that compute nodes without network share with a node that has one.

    relay.json                     the relay's sign of life: a counter that moves (`Pulse`)
    senders/NAME/letter.json       what one sender wants now (`Letter`)
    senders/NAME/answer.json       what became of the letter of that number (`Answer`)
    outgoing/DIGEST                blobs on their way to the coordinator
    incoming/DIGEST                blobs that came from it

A sender has one letter at a time, so files never pile up; a new letter withdraws the one before. Files are replaced by
rename, under names that stay: a network file system looks again at a name that it opens, but may believe for a minute that
one it never saw does not exist. Nothing is a path of the sender's choice, and nothing of another user is read.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from crosstrain.domain import timeouts
from crosstrain.domain.ids import Digest
from crosstrain.errors import EnvironmentFault, UsageError

log = logging.getLogger(__name__)

SCHEME = "mailbox:"
FLOWER = "Flower"
"""What a pulse names in place of an address when a Flower federation carries the letters."""
LARGEST_LETTER = 16 << 20
"""Bytes; the longest control message is a status of some hundred kilobytes."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")

Content = TypeVar("Content", bound=BaseModel)
Number = Annotated[int, Field(ge=0, lt=2**53)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Paper(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Control(Paper):
    """A control request; `path` lies below the coordinator's address and carries the query."""

    kind: Literal["control"] = "control"
    method: Literal["GET", "POST"]
    path: Annotated[str, Field(pattern=r"^/v1/[A-Za-z0-9/_-]*(\?[A-Za-z0-9=&_-]*)?$")]
    headers: dict[str, str] = {}
    body: str = ""


class Upload(Paper):
    """The blob that lies in `outgoing` is to come to the coordinator."""

    kind: Literal["upload"] = "upload"
    digest: Sha256


class Download(Paper):
    """The blob is to come into `incoming`."""

    kind: Literal["download"] = "download"
    digest: Sha256


class Nothing(Paper):
    """The letter before is withdrawn."""

    kind: Literal["nothing"] = "nothing"


class Letter(Paper):
    """What a sender wants.

    Attributes:
        number: grows by one with every letter of the sender.
        renewed: how often the sender said that it still waits.
        patience_s: how long the sender waits, from the moment it wrote.
    """

    number: Number
    renewed: Number = 0
    patience_s: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    content: Annotated[Control | Upload | Download | Nothing, Field(discriminator="kind")]


class Answered(Paper):
    """The coordinator's answer to a control request, or the relay's own 502 when there is none."""

    kind: Literal["answered"] = "answered"
    status: Annotated[int, Field(ge=100, le=599)]
    media_type: str = "application/json"
    body: str = ""


class Moving(Paper):
    """A blob is under way: bytes there, bytes in all (0 if unknown)."""

    kind: Literal["moving"] = "moving"
    done: Number = 0
    total: Number = 0


class Moved(Paper):
    """The blob is where it was to go."""

    kind: Literal["moved"] = "moved"
    total: Number = 0


class Failed(Paper):
    """The transfer ended with an error; `error` is its class in `errors.py`."""

    kind: Literal["failed"] = "failed"
    error: str
    message: str
    hint: str = ""
    reason: str = ""
    status: int = 409


class Answer(Paper):
    number: Number
    content: Annotated[Answered | Moving | Moved | Failed, Field(discriminator="kind")]


class Pulse(Paper):
    """The relay's sign of life.

    Attributes:
        relay: a number of this process's own; a newer relay puts its own here, and the older one ends.
        beat: moves while it lives.
        trouble: why it does not reach the coordinator, empty if it does.
        ended: it left by itself.
    """

    relay: str
    beat: Number
    host: str
    url: str
    trouble: str = ""
    ended: bool = False


def mailbox_of(url: str | Sequence[str]) -> Path | None:
    """The directory of a `mailbox:DIR` address; None for other addresses.

    Raises:
        UsageError: a relative path, or a mailbox among other addresses.
    """
    given = [part.strip() for part in (url.split(",") if isinstance(url, str) else url)]
    if not any(part.startswith(SCHEME) for part in given):
        return None
    directory = given[0].removeprefix(SCHEME)
    if len(given) > 1 or not Path(directory).is_absolute():
        raise UsageError(
            f"Expected one mailbox with an absolute path, found {', '.join(given)!r}.",
            'set `site.url` to "mailbox:/path/that/both/nodes/see" alone; the relay gets the addresses',
        )
    return Path(directory)


class Mailbox:
    """The files of a mailbox, which is made if it is not there.

    Raises:
        EnvironmentFault: it cannot be made, belongs to somebody else, or is open to others.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.senders = directory / "senders"
        self.outgoing = directory / "outgoing"
        self.incoming = directory / "incoming"
        for place in (directory, self.senders, self.outgoing, self.incoming):
            _make_private(place)

    def pulse(self) -> Pulse | None:
        return read_json(self.directory / "relay.json", Pulse)

    def put_pulse(self, pulse: Pulse) -> float:
        """Shows that the relay lives; returns the moment by the file system's clock, seconds since 1970."""
        path = self.directory / "relay.json"
        write_json(path, pulse, pulse.relay)
        return path.stat().st_mtime

    def names(self) -> tuple[str, ...]:
        """All senders that there are."""
        with os.scandir(self.senders) as entries:
            found = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        return tuple(sorted(name for name in found if _NAME.fullmatch(name)))

    def box(self, name: str) -> SenderBox:
        return SenderBox(self.senders / name)

    def blobs(self) -> Iterator[tuple[Path, Digest]]:
        """All files of blobs, parts of them included, and the blob that each belongs to."""
        for place in (self.outgoing, self.incoming):
            for path in place.iterdir():
                if match := re.match(r"\.?([0-9a-f]{64})", path.name):
                    yield path, Digest(match[1])


class SenderBox:
    """One sender's letter and the answer to it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._letter = directory / "letter.json"
        self._answer = directory / "answer.json"

    def open(self) -> None:
        """Makes the box. Both files are there from the beginning, so that neither side remembers one as missing.

        Raises:
            EnvironmentFault: it cannot be made.
        """
        _make_private(self.directory)
        if self._answer.exists():
            return
        try:
            write_json(self._answer, Answer(number=0, content=Moving()), "opening")
        except OSError as error:
            raise EnvironmentFault(
                f"The mailbox {self.directory.parent.parent} cannot be written: {error.strerror}.",
                "free space there, or choose another directory",
            ) from error

    def write(self, letter: Letter) -> None:
        """Puts a letter in; makes the box again if it was cleared away."""
        try:
            write_json(self._letter, letter, "sender")
        except FileNotFoundError:
            self.open()
            write_json(self._letter, letter, "sender")

    def letter(self) -> Letter | None:
        return read_json(self._letter, Letter)

    def written_at(self) -> float | None:
        """When the sender wrote last, by the file system's clock; None if there is no letter."""
        try:
            return self._letter.stat().st_mtime
        except OSError:
            return None

    def put_answer(self, answer: Answer, writer: str) -> None:
        """Answers; nothing happens if the sender is gone."""
        with contextlib.suppress(FileNotFoundError):
            write_json(self._answer, answer, writer)

    def answer(self) -> Answer | None:
        return read_json(self._answer, Answer)

    def remove(self) -> None:
        with contextlib.suppress(OSError):
            for path in self.directory.iterdir():
                path.unlink(missing_ok=True)
            self.directory.rmdir()


def write_json(path: Path, document: BaseModel, writer: str) -> None:
    """Replaces a file as a whole; readers see the one before or this one."""
    part = path.with_name(f".{path.name}.{writer}")
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(document.model_dump_json().encode())
    part.replace(path)


def read_json(path: Path, model: type[Content]) -> Content | None:
    """What a file says; None if there is none, or nothing that this version understands."""
    try:
        handle = open_own(path)
    except OSError:
        return None
    with os.fdopen(handle, "rb") as file:
        data = file.read(LARGEST_LETTER + 1)
    if len(data) > LARGEST_LETTER:
        return None
    try:
        return model.model_validate_json(data)
    except ValidationError:
        return None


def await_file(path: Path, wait: Callable[[float], bool], left_s: float = math.inf) -> bool:
    """Waits for a file of which the other side told: a shared file system may show it later than the letter.

    Args:
        wait: sleeps that many seconds; returns True when nobody waits any more.
        left_s: seconds of the caller's time.

    Returns:
        Whether it is there.
    """
    waited, look = 0.0, timeouts.FIRST_LOOK_S
    while not path.exists():
        if waited >= min(timeouts.FILE_LATE_S, left_s) or wait(look):
            return False
        waited, before, look = waited + look, waited, timeouts.look_again_s(look)
        if before < timeouts.LONGEST_LOOK_S <= waited:
            log.warning("%s does not show on this node yet; waiting up to %.0f s", path, timeouts.FILE_LATE_S)
    return True


def open_own(path: Path) -> int:
    """A descriptor for reading a plain file of this user.

    Raises:
        OSError: there is none, it is a link, a device, or somebody else's.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
        os.close(handle)
        raise PermissionError(f"{path} is not a plain file of this user")
    return handle


def _make_private(directory: Path) -> None:
    try:
        directory.mkdir(mode=0o700, parents=False, exist_ok=True)
        found = directory.lstat()
    except OSError as error:
        raise EnvironmentFault(
            f"The mailbox {directory} cannot be made: {error.strerror}.",
            "give a directory below one that exists, that this user can write, and that both nodes see",
        ) from error
    if not stat.S_ISDIR(found.st_mode):
        raise EnvironmentFault(f"The mailbox {directory} is no directory.", "choose another")
    if found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise EnvironmentFault(
            f"The mailbox {directory} belongs to user {found.st_uid} with mode {stat.S_IMODE(found.st_mode):04o}; "
            f"expected user {os.geteuid()} and mode 0700.",
            "whoever can write there can act as the site: chmod 700, or choose another directory",
        )
