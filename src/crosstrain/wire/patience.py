"""How long a transfer is tried again, and at which address."""

from __future__ import annotations

import copy
import logging
import threading
from collections.abc import Callable, Sequence

from crosstrain.clock import Clock
from crosstrain.domain.timeouts import FIRST_RETRY_S, LONGEST_RETRY_S, PAUSE_LOOK_S
from crosstrain.errors import Unreachable
from crosstrain.wire.addresses import Turns
from crosstrain.wire.deadline import Deadline
from crosstrain.wire.line import Line, LineBrokenError
from crosstrain.wire.reach import Reach

log = logging.getLogger(__name__)


class TryAgainError(Exception):
    """The server cannot serve right now."""


Task = Callable[[Line], None]


class Lines:
    """One worker's lines, one to each address, opened when it is its turn."""

    def __init__(self, urls: Sequence[str], open_line: Callable[[str], Line]) -> None:
        self._urls, self._open_line = urls, open_line
        self._lines: dict[int, Line] = {}

    def at(self, index: int) -> Line:
        if index not in self._lines:
            self._lines[index] = self._open_line(self._urls[index])
        return self._lines[index]

    def close(self) -> None:
        for line in tuple(self._lines.values()):
            line.close()


class Patience:
    """The time that one transfer has; its workers share it.

    Args:
        wait, jitter: as for `ControlClient`.
        what: the transfer, in one word.
    """

    def __init__(
        self,
        clock: Clock,
        jitter: Callable[[], float],
        wait: Callable[[float], bool],
        turns: Turns,
        deadline_s: float,
        what: str,
    ) -> None:
        self._jitter, self._wait, self._turns = jitter, wait, turns
        self._deadline, self._what = Deadline(clock, deadline_s), what
        self._tried = self._ended = False
        self._trouble = ""
        self._told: set[str] = set()
        self._telling = threading.Lock()
        self._reach: Reach | None = None

    def another(self) -> Patience:
        """For another attempt at the whole transfer, with what is left of the time."""
        return copy.copy(self)

    def elsewhere(self, reach: Reach) -> Patience:
        """For another server, which has one address and may be out of reach: with what is left of the time."""
        other = copy.copy(self)
        other._turns, other._reach = Turns(1), reach
        return other

    def work(
        self, lines: Lines, next_task: Callable[[], Task | None], moved: Callable[[], int], look: Callable[[], None]
    ) -> None:
        """Does tasks until there is none, each at the address whose turn it is, with pauses after those that failed.

        Args:
            moved: how many bytes the transfer brought where they belong; a line that breaks after some is no reason for long
                pauses, and an answer without any is no end of the trouble.
            look: called after every task.

        Raises:
            OutOfReachError: nothing arrives there.
            Unreachable: not done before the deadline, or the process is to stop.
        """
        pause, stuck = FIRST_RETRY_S, moved()
        self._trouble = ""
        while (task := next_task()) is not None:
            if self._tried and not self._deadline.left_s:
                raise self._over(self._trouble or "it was under way")
            before, at = moved(), self._turns.at
            self._tried = True
            try:
                task(lines.at(at))
            except (LineBrokenError, TryAgainError) as error:
                trouble = self._trouble = str(error)
                if self._reach is not None:
                    self._reach.failed(moved(), trouble)
                if moved() == stuck:
                    self._tell(trouble)
                stuck = moved()
                if self._turns.failed(at):
                    self._rest(FIRST_RETRY_S if moved() > before else pause)
                    pause = min(LONGEST_RETRY_S, 2 * pause)
            else:
                self._turns.answered()
                if moved() > before:
                    self._trouble, pause = "", FIRST_RETRY_S
                    self._told.clear()
            look()

    def end(self) -> None:
        """Nobody waits for the transfer any more."""
        self._ended = True

    def _tell(self, trouble: str) -> None:
        """Logs a trouble that is new since bytes arrived, so that a transfer that stands still for minutes has a reason."""
        with self._telling:
            new = trouble not in self._told
            self._told.add(trouble)
        if new:
            log.info("the %s stands still, trying again: %s", self._what, trouble)

    def _rest(self, pause: float) -> None:
        rest = min(self._deadline.left_s, pause * (0.5 + self._jitter()))
        if not rest:
            raise self._over(self._trouble)
        while rest > 0 and not self._ended:
            if self._wait(min(rest, PAUSE_LOOK_S)):
                raise self._over(self._trouble)
            rest -= PAUSE_LOOK_S

    def _over(self, reason: str) -> Unreachable:
        return Unreachable(
            f"The {self._what} was not done within {self._deadline.seconds:.0f} s ({reason}).",
            "it continues from where it stopped when it is tried again",
        )
