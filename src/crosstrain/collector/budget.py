"""Which question may be asked of a scheduler now. Pure: functions of what was asked before and the present.

Polling overloads controllers, and accounts have been banned for it. So a site has one budget over all invocations: looks are
`every_s` apart, each makes at most one probe, and probes of one shape are `shape_every_s` apart; both are stretched by a random
share, so that many users' cron jobs do not fall on one second. Failures double the distance. What is spent is written down
before it is spent: a crash does not give it back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from crosstrain.domain.ids import Instant

MOST_DOUBLINGS = 6
LONGEST_MS = 6 * 3_600_000
"""Back-off ends here, unless the budget itself is wider."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What a site may be asked; see `BatchSection`."""

    every_s: float
    shape_every_s: float
    jitter: float


@dataclass(frozen=True, slots=True)
class Mark:
    """One kind of question.

    Attributes:
        at: when it was asked last.
        due_at: when it may be asked again.
        failures: in a row.
    """

    at: Instant
    due_at: Instant
    failures: int = 0


@dataclass(frozen=True, slots=True)
class Spent:
    """All that was asked of a site.

    Attributes:
        look: of looks at the scheduler, whatever they ask.
        probes: by the name of the shape.
    """

    look: Mark | None = None
    probes: Mapping[str, Mark] = field(default_factory=dict)


def settled(spent: Spent, now: Instant) -> Spent:
    """The same on a clock that may have been set back: a question of the future counts as asked now, so that nothing is asked
    too early, and nothing has to wait until the old time comes again."""
    look = None if spent.look is None else _settled(spent.look, now)
    return Spent(look, {name: _settled(mark, now) for name, mark in spent.probes.items()})


def _settled(mark: Mark, now: Instant) -> Mark:
    ahead = mark.at - now
    return mark if ahead <= 0 else replace(mark, at=now, due_at=Instant(mark.due_at - ahead))


def may_look(spent: Spent, now: Instant) -> bool:
    """Whether the scheduler may be asked anything."""
    return spent.look is None or now >= spent.look.due_at


def next_probe(spent: Spent, names: Sequence[str], now: Instant) -> str | None:
    """The shape to probe in this look: of those that are due the one that was asked longest ago, in the order given."""
    due = [name for name in names if name not in spent.probes or now >= spent.probes[name].due_at]
    return min(due, key=lambda name: spent.probes[name].at if name in spent.probes else Instant(-1), default=None)


def looked(spent: Spent, budget: Budget, now: Instant, draw: float) -> Spent:
    """The scheduler is about to be asked.

    Args:
        draw: in [0, 1).
    """
    failures = spent.look.failures if spent.look else 0
    return replace(spent, look=_mark(budget.every_s, budget.jitter, failures, now, draw))


def probed(spent: Spent, name: str, budget: Budget, now: Instant, draw: float) -> Spent:
    """A shape is about to be probed. `draw` as for `looked`."""
    failures = spent.probes[name].failures if name in spent.probes else 0
    mark = _mark(budget.shape_every_s, budget.jitter, failures, now, draw)
    return replace(spent, probes={**spent.probes, name: mark})


def look_ended(spent: Spent, budget: Budget, failed: bool, draw: float) -> Spent:
    """The scheduler answered, or did not: then the next look is put off."""
    if spent.look is None:
        return spent
    return replace(spent, look=_ended(spent.look, budget.every_s, budget.jitter, failed, draw))


def probe_ended(spent: Spent, name: str, budget: Budget, failed: bool, draw: float) -> Spent:
    """A probe brought an estimate or did not: then the next one of this shape is put off."""
    mark = _ended(spent.probes[name], budget.shape_every_s, budget.jitter, failed, draw)
    return replace(spent, probes={**spent.probes, name: mark})


def _ended(mark: Mark, every_s: float, jitter: float, failed: bool, draw: float) -> Mark:
    if not failed:
        return replace(mark, failures=0)
    return _mark(every_s, jitter, min(mark.failures + 1, MOST_DOUBLINGS), mark.at, draw)


def _mark(every_s: float, jitter: float, failures: int, now: Instant, draw: float) -> Mark:
    least = 1000 * every_s
    put_off = min(least * 2**failures, max(least, LONGEST_MS))
    return Mark(now, Instant(now + round(put_off * (1 + jitter * draw))), failures)
