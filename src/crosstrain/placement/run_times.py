"""How long jobs run, by how long such jobs ran before: limits say little, habits of their owners much.

A job's share of its limit is drawn from those of the same owner with the same limit, else from those of the same owner, else
from everybody's; the more there are of a kind, the likelier it is that they are drawn from. Users repeat themselves (Tsafrir,
Etsion and Feitelson, IEEE TPDS 2007), and drawing keeps what a mean would lose: many jobs fail at once, many run to their limit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass

NEWEST_RUNS = 2000
"""Jobs that are worth keeping: what it takes to know owners that come back after weeks."""
NEWEST_OF_KIND = 30
"""Of them, jobs of one owner that are drawn from."""
BACKING = 4.0
"""Jobs of a narrower kind that are as likely to be drawn from as all of the wider one."""


@dataclass(frozen=True, slots=True)
class PastRun:
    """A job that ended.

    Attributes:
        owner: whose.
        limit_s: its time limit.
        share: of the limit that it ran, above 0; more than 1 counts as 1.
    """

    owner: str
    limit_s: float
    share: float


class RunTimes:
    """Draws run times.

    Args:
        past: jobs that ended, newest last. Without any, every job is taken to run to its limit.
    """

    def __init__(self, past: Iterable[PastRun] = ()) -> None:
        shares = defaultdict[Hashable, list[float]](list)
        for run in past:
            for kind in _kinds(run.owner, run.limit_s):
                shares[kind].append(min(1.0, run.share))
        self._shares = {kind: all_ if kind is None else all_[-NEWEST_OF_KIND:] for kind, all_ in shares.items()}

    def draw(self, owner: str, limit_s: float, elapsed_s: float, uniform: Callable[[], float]) -> float:
        """Seconds that a job runs in all: not less than it has run, and not more than its limit if it is not past it.

        Args:
            elapsed_s: what it has run already.
            uniform: makes uniform numbers in [0, 1).
        """
        ran = elapsed_s / limit_s
        for kind in _kinds(owner, limit_s):
            shares = self._shares.get(kind, ())
            if ran > 0:
                shares = [share for share in shares if share > ran]
            if shares and (kind is None or uniform() * (len(shares) + BACKING) < len(shares)):
                return limit_s * shares[int(uniform() * len(shares))]
        return max(limit_s, elapsed_s)


def _kinds(owner: str, limit_s: float) -> tuple[Hashable, ...]:
    """From the narrowest kind to all jobs."""
    return (owner, limit_s), owner, None
