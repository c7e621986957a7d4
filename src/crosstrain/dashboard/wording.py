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


def hours(seconds: float | None) -> str:
    """A wait for people, to three digits; a dash for what is not known or never."""
    if seconds is None:
        return NOTHING
    length, name, digits = _unit(seconds)
    return f"{seconds / length:{digits}} {name}"


def span(low: float | None, high: float | None) -> str:
    """From one wait to another; the unit once if both have it."""
    if low is None or high is None:
        return f"{hours(low)} - {hours(high)}"
    length, name, digits = _unit(high)
    if low == 0:
        return f"0 - {hours(high)}"
    if _unit(low)[1] == name:
        return f"{low / length:{digits}} - {high / length:{digits}} {name}"
    return f"{hours(low)} - {hours(high)}"


def _unit(seconds: float) -> tuple[float, str, str]:
    """Seconds of the unit that a duration is told in, its name, and the format of the number."""
    if abs(seconds) >= 48 * 3600:
        return 86400.0, "d", "z.1f"
    return (3600.0, "h", "z.1f") if abs(seconds) >= 3600 else (60.0, "min", "z.0f")
