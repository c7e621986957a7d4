"""What a site that asks for work is told. One pure function; the sentence goes to the site, the status and the logs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from crosstrain.domain.ids import Generation, Instant
from crosstrain.domain.lease import GrantSize, Lease, LeaseState
from crosstrain.domain.verdict import Verdict


class Work(StrEnum):
    INITIALISE = "initialise"
    ADOPT = "adopt"
    EVALUATE = "evaluate"
    TRAIN = "train"
    RESUME = "resume"
    WAIT = "wait"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class Instruction:
    """One step for one site session.

    Attributes:
        blocks: how many blocks to lease; only with TRAIN.
        until: when a wait ends by itself, if it does.
        starving: it waits only because no block is available, so another site may be asked to shed some.
    """

    work: Work
    reason: str
    until: Instant | None = None
    blocks: int = 0
    starving: bool = False


class WorkView(Protocol):
    """One moment, as one asking session finds it. What the decision does not ask for need not be worked out."""

    @property
    def current(self) -> Generation | None:
        """Newest published generation, None before generation 0."""

    @property
    def holds(self) -> Generation | None:
        """The generation whose weights the session holds, None if none."""

    @property
    def initialiser_elsewhere(self) -> bool:
        """Whether another live session is making generation 0."""

    @property
    def must_evaluate(self) -> bool:
        """Whether this session is to take the held-out measure of `current`."""

    @property
    def finished(self) -> Verdict:
        """Whether the run is over."""

    @property
    def start(self) -> Verdict:
        """Whether first leases may be given out."""

    @property
    def room(self) -> Verdict:
        """Whether the coordinator's disk holds what the round adds; asked for the round's first lease only."""

    @property
    def closing(self) -> str | None:
        """Why the round is being merged right now, None while it is open."""

    @property
    def contributed(self) -> bool:
        """Whether this site's contribution to the open round is in."""

    @property
    def resumable(self) -> int:
        """Blocks that it trained in part before, under a lease that is over, if all of them are available and the generation
        they were trained from is still current; 0 otherwise."""

    @property
    def size(self) -> GrantSize | None:
        """What it would be granted, None if no block is available."""

    @property
    def drain(self) -> Verdict:
        """Whether the round is so near its cutoff that nothing is started."""

    @property
    def barrier(self) -> Verdict:
        """What the round is waiting for."""


def decide_work(view: WorkView) -> Instruction:
    """The next step of a session that holds no lease."""
    if view.current is None:
        if view.initialiser_elsewhere:
            return Instruction(Work.WAIT, "waiting for generation 0, which another site is making")
        return Instruction(
            Work.INITIALISE, "no generation exists yet: this site makes generation 0 from the run's seed"
        )
    if view.finished and not view.must_evaluate:
        return Instruction(Work.FINISHED, view.finished.reason)
    if view.closing is not None:
        return Instruction(Work.WAIT, f"waiting for generation {view.current + 1} to be merged: {view.closing}")
    if view.contributed:
        return Instruction(Work.WAIT, f"contributed; {view.barrier.reason}", view.barrier.until)
    if view.resumable and view.start and not view.drain:
        reason = f"the {view.resumable} blocks of its saved phase are still available"
        return Instruction(Work.RESUME, reason, blocks=view.resumable)
    if view.holds != view.current:
        return Instruction(Work.ADOPT, f"generation {view.current} is current")
    if view.must_evaluate:
        return Instruction(Work.EVALUATE, f"generation {view.current} has no held-out measure yet")
    if not view.start:
        return Instruction(Work.WAIT, view.start.reason, view.start.until)
    if not view.room:
        return Instruction(Work.WAIT, view.room.reason, view.room.until)
    if view.drain:
        return Instruction(Work.WAIT, "the round is about to close; waiting for the next", view.drain.until)
    size = view.size
    if size is None:
        reason = f"every block of the epoch is leased or contributed; {view.barrier.reason}"
        return Instruction(Work.WAIT, reason, view.barrier.until, starving=True)
    return Instruction(Work.TRAIN, size.reason, blocks=size.blocks)


class AheadView(Protocol):
    """One moment, as a session finds it that has trained its lease and would train on meanwhile (`round.overlap`)."""

    @property
    def overlap(self) -> bool:
        """Whether the run has overlap."""

    @property
    def current(self) -> Generation | None:
        """Newest published generation."""

    @property
    def rounds(self) -> int:
        """After so many generations the run is over."""

    @property
    def finished(self) -> Verdict:
        """Whether the run is over."""

    @property
    def predecessor(self) -> Lease | None:
        """The lease that the session has trained, None if it never held it."""

    @property
    def size_ahead(self) -> GrantSize | None:
        """What it would be granted in the round after the open one, None if no block is available."""


def decide_ahead(view: AheadView) -> Instruction:
    """Whether a session is granted a lease of the next round before there is a generation to start it from.

    It stands and falls with its predecessor: as long as the work of that may still count, in the open round.
    """
    before = view.predecessor
    if not view.overlap:
        return Instruction(Work.WAIT, "this run has no overlap: `round.overlap` is off")
    if before is None or before.generation != view.current:
        return Instruction(
            Work.WAIT, "only the lease that a session has trained in the open round is followed by another"
        )
    if before.state not in (LeaseState.LIVE, LeaseState.CONTRIBUTED):
        return Instruction(Work.WAIT, f"lease {before.token} is {before.state}: what follows it would not count either")
    if view.finished or before.generation + 1 >= view.rounds:
        return Instruction(Work.WAIT, f"no round follows: the run has {view.rounds}")
    size = view.size_ahead
    if size is None:
        return Instruction(Work.WAIT, "every block of the epoch is leased or contributed", starving=True)
    return Instruction(Work.TRAIN, f"ahead of generation {before.generation + 1}: {size.reason}", blocks=size.blocks)
