"""Times and durations as batch systems print them. Pure.

A printed time without a zone is local to whoever printed it; it becomes an epoch only where the caller names the zone.
Around the end of summer time such a reading can be an hour off, which is why every command of ours asks for epoch
seconds.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

UNSET = frozenset({"", "-", "--", "n/a", "none", "unknown", "(null)", "null", "0", "?", "not_set", "invalid"})
"""Lower-case words for "no time"."""

UNLIMITED = frozenset({"unlimited", "infinite"})

_EPOCH = re.compile(r"\d{9,11}(?:\.\d+)?")
_ISO = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d(?::\d\d)?)(?:\.\d+)?(Z|[+-]\d\d:?\d\d)?", re.IGNORECASE)
_CTIME = re.compile(r"[A-Z][a-z]{2} +([A-Z][a-z]{2}) +(\d{1,2}) +(\d\d:\d\d:\d\d)(?: +[A-Z]{3,5})? +(\d{4})")
_RELATIVE = re.compile(r"(?:(Tomorr|Ystday|[A-Z][a-z]{2}|\d{1,2} [A-Z][a-z]{2}) )?(\d\d:\d\d(?::\d\d)?)")
_DURATION = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d{1,2}))?(?::(\d{1,2}))?(?:\.\d+)?")
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


@dataclass(frozen=True, slots=True)
class Timestamp:
    """A printed time.

    Attributes:
        text: ISO 8601; ends in Z where it is UTC for certain, bare where it is somebody's local time.
        epoch: seconds since 1970, None while the zone is unknown.
        bare: seconds since 1970 as if the text were UTC; differences of two times of one printer are right but for
            changes of the clock.
    """

    text: str
    epoch: float | None
    bare: float

    def after(self, other: Timestamp) -> float:
        """Seconds from `other` to this."""
        if self.epoch is not None and other.epoch is not None:
            return self.epoch - other.epoch
        return self.bare - other.bare


def from_epoch(seconds: float) -> Timestamp:
    """Epoch seconds as a timestamp."""
    text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return Timestamp(text, seconds, seconds)


def timestamp(text: str, zone: tzinfo | None = None, now: datetime | None = None) -> Timestamp | None:
    """Reads a time in any of the forms of Slurm, PBS and Flux; None where there is none or it makes no sense.

    Args:
        zone: of times that carry none.
        now: local time of the printer without zone, for forms that say "Tomorr 10:00" or a bare hour.
    """
    text = text.strip()
    if text.lower() in UNSET:
        return None
    try:
        return _absolute(text, zone) or (None if now is None else _relative(text, zone, now))
    except (ValueError, OverflowError, OSError):
        return None


def _absolute(text: str, zone: tzinfo | None) -> Timestamp | None:
    if _EPOCH.fullmatch(text):
        return from_epoch(float(text) if "." in text else int(text))
    if found := _ISO.fullmatch(text):
        moment = datetime.fromisoformat(f"{found[1]}T{found[2]}")
        if found[3]:
            offset = found[3].upper().replace("Z", "+00:00")
            return from_epoch(datetime.fromisoformat(f"{moment.isoformat()}{offset}").timestamp())
        return _local(moment, zone, "minutes" if found[2].count(":") == 1 else "seconds")
    if found := _CTIME.fullmatch(text):
        moment = datetime.strptime(f"{found[4]} {found[1]} {found[2]} {found[3]}", "%Y %b %d %H:%M:%S")
        return _local(moment, zone)
    return None


def _relative(text: str, zone: tzinfo | None, now: datetime) -> Timestamp | None:
    found = _RELATIVE.fullmatch(text)
    if not found:
        return None
    clock = datetime.strptime(found[2], "%H:%M:%S" if found[2].count(":") == 2 else "%H:%M").time()
    day, date = found[1], now.date()
    if day == "Tomorr":
        date += timedelta(days=1)
    elif day == "Ystday":
        date -= timedelta(days=1)
    elif day in _DAYS:
        date += timedelta(days=(_DAYS.index(day) - date.weekday()) % 7)
    elif day is not None:
        date = datetime.strptime(f"{day} {now.year}", "%d %b %Y").date()
    return _local(datetime.combine(date, clock), zone)


def _local(moment: datetime, zone: tzinfo | None, timespec: str = "seconds") -> Timestamp:
    epoch = None if zone is None else moment.replace(tzinfo=zone).timestamp()
    return Timestamp(moment.isoformat(timespec=timespec), epoch, moment.replace(tzinfo=UTC).timestamp())


def duration_s(text: str, *, two: str = "minutes") -> int | None:
    """Seconds of ``[days-]hours:minutes:seconds``; None for UNLIMITED, NOT_SET, Partition_Limit and the like.

    Args:
        two: what the first of two numbers counts: ``minutes`` (Slurm's 10:00) or ``hours`` (PBS's 01:00).
    """
    found = _DURATION.fullmatch(text.strip())
    if not found:
        return None
    days, *numbers = (int(part) for part in found.groups(default="-1"))
    given = [number for number in numbers if number >= 0]
    if days >= 0:
        hours, minutes, seconds = [*given, 0, 0][:3]
    elif len(given) == 3:
        hours, minutes, seconds = given
    elif len(given) == 2:
        hours, minutes, seconds = (given[0], given[1], 0) if two == "hours" else (0, given[0], given[1])
    else:
        return None
    return 86400 * max(days, 0) + 3600 * hours + 60 * minutes + seconds


def is_unlimited(text: str) -> bool:
    """Whether a printed limit is a word for "no limit"."""
    return text.strip().lower() in UNLIMITED
