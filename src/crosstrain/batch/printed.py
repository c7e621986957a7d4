"""What every parser does to a program's output first: colours, carriage returns and other bytes that no scheduler means."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

LONGEST_LINE = 20_000
"""Characters of a line that are read: a node list of a whole machine is shorter."""

_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
_NO_NUMBER = re.compile(r"\d{60,}")
"""Python refuses to read numbers of thousands of digits; no scheduler prints sixty."""
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1e\x7f]")


@dataclass(frozen=True, slots=True)
class Output:
    """What a program printed and how it ended.

    Attributes:
        stdout, stderr: as text. A log that mixes the two goes into `stdout`.
        exit_code: negative for the signal that ended it.
        timed_out: it was ended by the caller's deadline.
    """

    stdout: str
    stderr: str = ""
    exit_code: int = 0
    timed_out: bool = False

    @property
    def both(self) -> str:
        """Both streams; where each verdict is looked for, since wrappers move lines between the two."""
        return f"{self.stderr}\n{self.stdout}"


def clean(text: str) -> str:
    """Without terminal escapes, carriage returns, byte order marks and control characters, but for the unit separator. A
    number that is too long to be one becomes a question mark."""
    text = _NO_NUMBER.sub("?", _ESCAPE.sub("", text.replace("\ufeff", "")))
    return _CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


def numbered_lines(text: str) -> Iterator[tuple[int, str]]:
    """Number and text of each line that holds something."""
    for number, line in enumerate(clean(text).split("\n"), 1):
        if line.strip():
            yield number, line[:LONGEST_LINE].rstrip()
