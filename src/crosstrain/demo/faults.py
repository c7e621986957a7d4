"""What the demo does to its own run, as a pure machine over status snapshots.

    LATE_SITE -> KILL_SITE -> EXPIRY -> RETURN -> KILL_COORDINATOR -> COORDINATOR_DOWN -> OVER

A site is killed while it holds a lease and comes back only after the coordinator gave its blocks up, so that others train
them. Every wait loosens after a few generations: a fast machine can pass through the middle of a lease between two looks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from crosstrain.domain.plural import counted
from crosstrain.wire.messages import SiteStatus, StatusReply

LEAST_ROUNDS = 6
"""Fewer are over before all of the script has happened."""
MIDDLE = (0.2, 0.8)
"""Part of a lease's steps that counts as the middle of it."""
PATIENCE = 3
"""Generations after which a wait for the middle of a lease loosens."""
DOWN_S = 1.5


class Stage(StrEnum):
    """What the script waits for."""

    LATE_SITE = "the time for the last site to join"
    KILL_SITE = "a site in the middle of its lease"
    EXPIRY = "the killed site's lease to expire"
    RETURN = "the killed site to train again"
    KILL_COORDINATOR = "the middle of a round"
    COORDINATOR_DOWN = "the coordinator's restart"
    OVER = "nothing"


class Deed(StrEnum):
    """What can be done to a process."""

    START_SITE = "start-site"
    KILL_SITE = "kill-site"
    START_COORDINATOR = "start-coordinator"
    KILL_COORDINATOR = "kill-coordinator"


@dataclass(frozen=True, slots=True)
class Action:
    """One deed and the sentence that tells of it; `site` is empty for the coordinator."""

    deed: Deed
    what: str
    site: str = ""


@dataclass(frozen=True, slots=True)
class Script:
    """Who is hit, and from which generation on.

    Attributes:
        late: the site that joins late, None with fewer than three sites.
        hurry_at: from here on nothing is waited for that can be done without, for the run is about to end.
    """

    victim: str
    late: str | None
    join_at: int
    kill_at: int
    hurry_at: int


@dataclass(frozen=True, slots=True)
class State:
    """Where the script is.

    Attributes:
        expiries: the victim's count of expiries when it was killed.
        merged: the victim's merged blocks when it was started again.
        since: the generation at which the stage began.
        at_s: the moment at which the stage began.
    """

    stage: Stage
    expiries: int = 0
    merged: int = 0
    since: int = 0
    at_s: float = 0.0


Step = tuple[State, tuple[Action, ...]]


def script_for(sites: Sequence[str], rounds: int) -> Script:
    """The script for these sites: the second is killed (or the only one), the third comes late."""
    return Script(
        victim=sites[1] if len(sites) > 1 else sites[0],
        late=sites[2] if len(sites) > 2 else None,
        join_at=min(2, rounds // LEAST_ROUNDS),
        kill_at=min(4, rounds // 3),
        hurry_at=rounds - max(3, rounds // 3),
    )


def begin(script: Script) -> State:
    return State(Stage.LATE_SITE if script.late else Stage.KILL_SITE)


def advance(script: Script, state: State, status: StatusReply | None, now_s: float) -> Step:
    """The next state and what is to be done now. `status` is None while the coordinator does not answer."""
    if state.stage is Stage.COORDINATOR_DOWN:
        if now_s - state.at_s < DOWN_S:
            return state, ()
        return State(Stage.OVER), (Action(Deed.START_COORDINATOR, "the coordinator starts again on the same port"),)
    if status is None or status.generation is None or status.finished or state.stage is Stage.OVER:
        return state, ()
    step = _STAGES[state.stage](script, state, status)
    if step is None:
        return state, ()
    following, actions = step
    return replace(following, since=status.generation, at_s=now_s), actions


def _late_site(script: Script, _: State, status: StatusReply) -> Step | None:
    assert script.late is not None and status.generation is not None
    if status.generation < script.join_at:
        return None
    what = f"{script.late} joins late, when generation {status.generation} is current"
    return State(Stage.KILL_SITE), (Action(Deed.START_SITE, what, script.late),)


def _kill_site(script: Script, state: State, status: StatusReply) -> Step | None:
    victim = _site(status, script.victim)
    generation = status.generation or 0
    if generation < script.kill_at or victim is None or victim.lease_blocks is None or victim.phase != "training":
        return None
    hurried = generation >= max(script.kill_at, state.since) + PATIENCE or generation >= script.hurry_at
    if not hurried and not in_the_middle(victim):
        return None
    what = (
        f"SIGKILL to {victim.name}, agent and trainer, at step {victim.done} of {victim.total}, "
        f"with {counted(victim.lease_blocks, 'block')} leased"
    )
    return State(Stage.EXPIRY, expiries=victim.ttl_expiries), (Action(Deed.KILL_SITE, what, victim.name),)


def _expiry(script: Script, state: State, status: StatusReply) -> Step | None:
    victim = _site(status, script.victim)
    if victim is None:
        return None
    if victim.ttl_expiries > state.expiries:
        what = f"{victim.name}'s lease expired and its blocks are free again; {victim.name} starts again"
        return State(Stage.RETURN, merged=victim.merged_blocks), (Action(Deed.START_SITE, what, victim.name),)
    if victim.lease_blocks is None:
        what = f"{victim.name} had contributed just before the signal, so nothing expired; {victim.name} starts again"
        return State(Stage.KILL_SITE), (Action(Deed.START_SITE, what, victim.name),)
    return None


def _return(script: Script, state: State, status: StatusReply) -> Step | None:
    victim = _site(status, script.victim)
    back = victim is not None and victim.merged_blocks > state.merged
    return (State(Stage.KILL_COORDINATOR), ()) if back or (status.generation or 0) >= script.hurry_at else None


def _kill_coordinator(script: Script, state: State, status: StatusReply) -> Step | None:
    generation = status.generation or 0
    hurried = generation >= min(state.since + PATIENCE, script.hurry_at)
    if not hurried and not any(site.phase == "training" and in_the_middle(site) for site in status.sites):
        return None
    what = f"SIGKILL to the coordinator, in the middle of round {generation + 1}"
    return State(Stage.COORDINATOR_DOWN), (Action(Deed.KILL_COORDINATOR, what),)


_STAGES: dict[Stage, Callable[[Script, State, StatusReply], Step | None]] = {
    Stage.LATE_SITE: _late_site,
    Stage.KILL_SITE: _kill_site,
    Stage.EXPIRY: _expiry,
    Stage.RETURN: _return,
    Stage.KILL_COORDINATOR: _kill_coordinator,
}


def in_the_middle(site: SiteStatus) -> bool:
    """Whether what the site does is neither just begun nor almost done."""
    low, high = MIDDLE
    return site.total > 0 and low <= site.done / site.total <= high


def _site(status: StatusReply, name: str) -> SiteStatus | None:
    return next((site for site in status.sites if site.name == name), None)
