"""Numbers, moments and foreign sentences as a terminal can show them."""

from __future__ import annotations

from datetime import UTC, datetime

NOTHING = "-"


def clean(sentence: str) -> str:
    """A sentence from elsewhere on one line; characters that would move the cursor or change colours become spaces."""
    return " ".join("".join(sign if sign.isprintable() else " " for sign in sentence).split())


def number(value: float | None, digits: int = 2) -> str:
    return NOTHING if value is None else f"{value:,.{digits}f}"


def clock_time(instant: int) -> str:
    """Of the coordinator's clock, in UTC."""
    return datetime.fromtimestamp(instant / 1000, UTC).strftime("%H:%M:%S")


def duration(milliseconds: int) -> str:
    seconds = max(0, round(milliseconds / 1000))
    if seconds < 120:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 7200 else f"{seconds // 3600} h {seconds % 3600 // 60} min"
