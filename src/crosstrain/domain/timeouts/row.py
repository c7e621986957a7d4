"""One row of the table."""

from __future__ import annotations

from dataclasses import dataclass

FIXED = "fixed"


@dataclass(frozen=True, slots=True)
class Timeout:
    """Something that is waited for.

    Attributes:
        name: what it is.
        seconds: how long.
        rule: how that is derived, in words; `FIXED` if it is the same for all runs.
        reason: why so.
        key: the key of the run file that must not be set shorter, empty if none does.
        topic: the part of the table.
    """

    name: str
    seconds: float
    rule: str
    reason: str
    key: str = ""
    topic: str = ""


def fixed(name: str, seconds: float, reason: str, key: str = "") -> Timeout:
    """A row that follows from nothing that differs between runs."""
    return Timeout(name, seconds, FIXED, reason, key)
