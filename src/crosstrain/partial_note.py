"""Which bytes of a file that comes in pieces (partial_file.py) are there: one line of JSON beside it.

NAME.held   {"digest": "ab12...", "total": 1048576, "identity": "9f03...", "held": [[first, behind the last], ...]}
"""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from crosstrain.domain.byte_ranges import ByteRanges
from crosstrain.domain.ids import Digest

READ_BYTES = 1 << 12
"""Of the note at a time: most have a few hundred."""


@dataclass(frozen=True, slots=True)
class Record:
    """What is noted about a file.

    Attributes:
        total: length of the whole file in bytes.
        identity: of this attempt; a file that was thrown away and begun again has another.
    """

    digest: Digest
    total: int
    held: ByteRanges = field(default_factory=ByteRanges)
    identity: str = field(default_factory=lambda: secrets.token_hex(8))

    @property
    def complete(self) -> bool:
        return self.held.covers(0, self.total)


class Note:
    """A note that stays open between its uses, because there are several for every MiB that comes, and each opening lets go of
    the interpreter. Whoever uses it holds the lock of the file that it is of, and has seen that its name means that file: so
    the open note is the one that the name means, too.

    Raises:
        OSError: from any method, as the file system says.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle: int | None = None
        self._line = b""
        self._record: Record | None = None

    def read(self) -> Record | None:
        """What is noted; None if nothing is, or nothing that can be understood."""
        line = _line(self._opened())
        if line != self._line:
            self._line, self._record = line, _understood(line)
        return self._record

    def write(self, record: Record) -> None:
        """In place, by one write, which a killed process has done or not; what a longer line left behind it is not read."""
        document = {
            "digest": record.digest,
            "total": record.total,
            "identity": record.identity,
            "held": record.held.spans,
        }
        line = json.dumps(document).encode()
        os.pwrite(self._opened(), line + b"\n", 0)
        self._line, self._record = line, record

    def close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _opened(self) -> int:
        if self._handle is None:
            self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        return self._handle


def read_note(path: Path) -> Record | None:
    """As `Note.read`, of one that may not be there."""
    try:
        return _understood(path.read_bytes().partition(b"\n")[0])
    except FileNotFoundError:
        return None


def _line(handle: int) -> bytes:
    line, end, read = b"", b"", b"more"
    while read and not end:
        read = os.pread(handle, READ_BYTES, len(line))
        piece, end, _ = read.partition(b"\n")
        line += piece
    return line


def _understood(line: bytes) -> Record | None:
    try:
        document = json.loads(line)
        held = ByteRanges.of(document["held"])
        record = Record(Digest(document["digest"]), int(document["total"]), held, str(document["identity"]))
    except (ValueError, TypeError, KeyError):
        return None
    return record if all(stop <= record.total for _, stop in held.spans) else None
