"""What the doctor says: one line per thing that was looked at."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How bad it is."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line.

    Attributes:
        name: what was looked at.
        sentence: what was found.
        advice: what to do, empty if nothing.
    """

    level: Level
    name: str
    sentence: str
    advice: str = ""
