"""Many seeds, and for each that breaks a guarantee the shortest story that still breaks it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

from crosstrain.domain.plural import counted
from crosstrain.simulation.fault_run import Outcome, run_schedule
from crosstrain.simulation.faults import Schedule, draw_schedule
from crosstrain.simulation.oracle import Violation

CHUNK = 10
"""Seeds handed to a worker at a time."""


@dataclass(frozen=True, slots=True)
class Story:
    """A violation and the shortest schedule found that leads to it."""

    seed: int
    hours: float
    violation: Violation
    lines: tuple[str, ...]

    @property
    def command(self) -> str:
        """Reproduces it."""
        return f"crosstrain simulate faults --seed {self.seed} --seeds 1 --hours {self.hours:g}"


@dataclass(frozen=True, slots=True)
class Findings:
    """What a search saw."""

    seeds: int
    events: int
    faults: int
    generations: int
    stories: tuple[Story, ...]


def search(first: int, seeds: int, hours: float, workers: int, report: Callable[[int, int], None]) -> Findings:
    """Runs `seeds` seeds from `first` on.

    Args:
        hours: virtual hours in which faults happen.
        workers: processes.
        report: called with (seeds done, violations so far).
    """
    totals: Counter[str] = Counter()
    stories: list[Story] = []
    for seed, outcome in _outcomes(range(first, first + seeds), hours, workers):
        totals.update(seeds=1, events=outcome.events, faults=outcome.faults, generations=outcome.generations)
        if outcome.violation is not None:
            stories.append(tell(draw_schedule(seed, hours), hours, outcome.violation))
        report(totals["seeds"], len(stories))
    return Findings(totals["seeds"], totals["events"], totals["faults"], totals["generations"], tuple(stories))


def _outcomes(seeds: Sequence[int], hours: float, workers: int) -> Iterator[tuple[int, Outcome]]:
    if workers == 1:
        for seed in seeds:
            yield seed, run_schedule(draw_schedule(seed, hours))
        return
    chunks = [(seeds[i : i + CHUNK], hours) for i in range(0, len(seeds), CHUNK)]
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for part in pool.map(_run_chunk, chunks):
            yield from part


def _run_chunk(work: tuple[Sequence[int], float]) -> list[tuple[int, Outcome]]:
    seeds, hours = work
    return [(seed, run_schedule(draw_schedule(seed, hours))) for seed in seeds]


def tell(schedule: Schedule, hours: float, violation: Violation) -> Story:
    """The story of a failing schedule after everything that it does not need was taken out of it."""
    shortest, violation = shrink(schedule, violation)
    names = tuple(site.name for site in shortest.sites)
    lines = [
        f"{counted(len(names), 'site')} ({', '.join(names)}), "
        f"{counted(shortest.windows, 'window')} in blocks of {shortest.block_windows}, "
        f"{counted(shortest.inner_steps, 'step')} a phase, {counted(shortest.rounds, 'round')}, "
        f"{counted(shortest.epochs, 'epoch')}",
        *(fault.sentence(names) for fault in shortest.faults),
        f"then {violation.guarantee} is broken: {violation.what}",
    ]
    return Story(schedule.seed, hours, violation, tuple(lines))


def shrink(schedule: Schedule, violation: Violation) -> tuple[Schedule, Violation]:
    """Takes out the network's misbehaviour, then one fault after another, as long as the same guarantee still breaks."""
    calm = _still(schedule.calm(), violation)
    if calm is not None:
        schedule, violation = schedule.calm(), calm
    index = 0
    while index < len(schedule.faults):
        found = _still(schedule.without(index), violation)
        if found is None:
            index += 1
        else:
            schedule, violation = schedule.without(index), found
    return schedule, violation


def _still(schedule: Schedule, violation: Violation) -> Violation | None:
    found = run_schedule(schedule).violation
    return found if found is not None and found.guarantee == violation.guarantee else None
