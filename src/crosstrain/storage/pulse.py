"""The sign of life that a coordinator leaves in the run's row."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, select, update

from crosstrain.storage import schema

_PULSE = select(schema.run.c.term, schema.run.c.beat)
_BEAT = update(schema.run).values(beat=schema.run.c.beat + 1)


@dataclass(frozen=True, slots=True)
class Pulse:
    """What a living coordinator moves: the term it writes with, and a counter."""

    term: int
    beat: int


@dataclass(frozen=True, slots=True)
class Claim:
    """The decision to write with `term`, right if the run still shows the pulse `after`."""

    after: Pulse
    term: int


def pulse(connection: Connection) -> Pulse:
    """The newest sign of life; all zero when there is no run yet."""
    row = connection.execute(_PULSE).one_or_none()
    return Pulse(0, 0) if row is None else Pulse(int(row.term), int(row.beat))


def beat(connection: Connection) -> None:
    """Gives a sign of life."""
    connection.execute(_BEAT)
