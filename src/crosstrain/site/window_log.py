"""What each rank writes about the windows it trains, and what that says about the weights a lease was contributed from.

    load GENERATION                               the weights are those of a generation
    restore GENERATION STEP                       ... or of a checkpoint, made before that global step
    move GENERATION                               ... or those held, moved to a generation with all that was trained since
    run TOKEN                                     what follows is trained under this lease
    ahead TOKEN                                   ... and is all of it, whatever the weights were trained on before
    TOKEN GENERATION STEP RANK WINDOW ...         one optimiser step; written before it is taken

Steps that were taken and then lost with a process stay in the log; the next `restore` says from where on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from crosstrain.disk import disk_faults
from crosstrain.domain.ids import Token
from crosstrain.domain.phase import PhasePlan
from crosstrain.errors import IntegrityError
from crosstrain.site.settings import window_log_path
from crosstrain.site.trainer import Position


class WindowLog:
    """Appends to the log of one rank; nothing is written without a path.

    Args:
        path: as `TrainerSettings.window_log`.
    """

    def __init__(self, path: Path | None, rank: int) -> None:
        self._path = path and window_log_path(path, rank)
        self._rank = rank

    def loaded(self, position: Position) -> None:
        self._write("load", position.generation)

    def moved(self, position: Position) -> None:
        self._write("move", position.generation)

    def restored(self, position: Position) -> None:
        self._write("restore", position.generation, position.global_step)

    def begun(self, plan: PhasePlan) -> None:
        self._write("ahead" if plan.ahead else "run", plan.token)

    def step(self, plan: PhasePlan, step: int, windows: Sequence[int]) -> None:
        self._write(plan.token, plan.generation, step, self._rank, *windows)

    def _write(self, *words: object) -> None:
        if self._path:
            # One write of one line: a process that is killed leaves whole lines.
            with disk_faults(self._path), self._path.open("a", encoding="ascii") as log:
                log.write(" ".join(map(str, words)) + "\n")


def trained_windows(lines: Iterable[str], name: str) -> dict[Token, tuple[int, ...]]:
    """The windows behind the weights that a rank held when it last trained under each lease, as often as it trained them.

    A phase that goes on after a restart, under its lease or a new one, has the steps of its checkpoint in it and none that
    came after it.

    Args:
        name: of the log, for the error.

    Raises:
        IntegrityError: a line is not one of a window log.
    """
    weights = _Weights()
    for number, line in enumerate(lines, start=1):
        try:
            weights.take(line.split())
        except (IndexError, ValueError):
            raise IntegrityError(f"{name}, line {number}: expected a line of a window log, found {line!r}.") from None
    weights.leave()
    return weights.contents


class _Weights:
    """Follows what one rank's weights have been trained on."""

    def __init__(self) -> None:
        self.contents: dict[Token, tuple[int, ...]] = {}
        self._generation = -1
        self._token: Token | None = None
        self._steps: list[tuple[int, tuple[int, ...]]] = []

    def take(self, words: Sequence[str]) -> None:
        match words[0]:
            case "load":
                self._come_from(int(words[1]), 0)
            case "restore":
                self._come_from(int(words[1]), int(words[2]))
            case "move":
                self.leave()
                self._generation = int(words[1])
            case "run" | "ahead":
                self.leave()
                self._token = Token(int(words[1]))
                if words[0] == "ahead":
                    self._steps = []
            case _:
                token, _generation, step, _rank, *windows = map(int, words)
                if token != self._token:
                    raise ValueError(f"a step of lease {token} in a run of lease {self._token}")
                self._steps.append((step, tuple(windows)))

    def leave(self) -> None:
        """Notes what the weights contain, before they change otherwise than by a step."""
        if self._token is not None:
            self.contents[self._token] = tuple(window for _, windows in self._steps for window in windows)
        self._token = None

    def _come_from(self, generation: int, step: int) -> None:
        self.leave()
        kept = self._steps if generation == self._generation else []
        self._steps = [(at, windows) for at, windows in kept if at < step]
        self._generation = generation
