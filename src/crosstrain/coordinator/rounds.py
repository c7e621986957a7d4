"""Closing a round: load, decide, commit; then the merge, which a crash only repeats."""

from __future__ import annotations

from sqlalchemy import Connection

from crosstrain.coordinator import publisher, sessions
from crosstrain.coordinator.damage import drop_unreadable, irreplaceable
from crosstrain.coordinator.service import Service
from crosstrain.domain import outer_round
from crosstrain.domain.events import EventKind
from crosstrain.domain.generation import GenerationRecord
from crosstrain.domain.ids import Generation, Instant, SiteName
from crosstrain.domain.lease import LeaseState
from crosstrain.domain.outer_round import ROOM, RoundView
from crosstrain.domain.site import Attendance
from crosstrain.domain.verdict import Verdict
from crosstrain.storage import lease_store, run_store


def close_if_due(service: Service, now: Instant) -> GenerationRecord | None:
    """Closes the open round if its rule says so, and publishes the next generation.

    Returns:
        The new generation, or None if the round stays open; `service.barrier` then says why.
    """
    _look_at_store(service)
    with service.database.write() as connection:
        opened = run_store.newest_round(connection)
        current = run_store.newest_generation(connection)
        if opened is None or current is None or opened["published_at"] is not None:
            run = run_store.load(connection)
            over = run is not None and run["finished_at"] is not None
            reason = (
                str(run["finished_reason"]) if run is not None and over else "waiting for a site to make generation 0"
            )
            service.barrier = Verdict(False, reason)
            return None
        if opened["closing_at"] is None:
            with irreplaceable(current):
                view = _view(service, connection, current, now)
            service.barrier = outer_round.may_close(view, service.rules, now)
            if not service.barrier:
                return None
            _close(connection, current.number, service.barrier.reason, now)
        rows = lease_store.accepted(connection, current.number)
    rows = drop_unreadable(service, current, rows, now)
    if not rows:
        service.barrier = Verdict(False, "waiting for a contribution: what the round had cannot be read any more")
        return None
    record = publisher.publish(service, current, rows, service.clock.now())
    service.barrier = Verdict(False, "waiting for a site to take a lease")
    return record


def _look_at_store(service: Service) -> None:
    """Asks before the transaction what would be asked in it: a bucket that hangs would hold up every write. What the store lost of
    the newest generation is made again if it can be."""
    with service.database.read() as connection:
        current, opened = run_store.newest_generation(connection), run_store.newest_round(connection)
    if current is not None and opened is not None and opened["published_at"] is None:
        with irreplaceable(current):
            publisher.make_again(service, current)
            service.weigh(current.weights)


def _close(connection: Connection, generation: Generation, reason: str, now: Instant) -> None:
    for lease in lease_store.in_state(connection, LeaseState.LIVE):
        if lease.generation == generation:  # those granted ahead are of the next round
            sessions.give_back(connection, lease, EventKind.RELEASED, f"the round closed: {reason}", now)
    run_store.close_round(connection, generation, reason, now)
    run_store.log(connection, EventKind.ROUND_CLOSED, reason, now, generation=generation)


def _view(service: Service, connection: Connection, current: GenerationRecord, now: Instant) -> RoundView:
    live = lease_store.holders(connection)
    contributors = {SiteName(row["site"]) for row in lease_store.accepted(connection, current.number)}
    tokens = {holder.session: holder.token for holder in live}
    with service.presences.lock:
        attendance = tuple(
            Attendance(
                seen.site,
                seen.beat.phase,
                tokens.get(seen.session),
                seen.site in contributors,
                seen.asked_generation == current.number,
            )
            for seen in service.presences.sessions.values()
        )
    begun = lease_store.round_begun(connection, current.number)
    return RoundView(
        current.number,
        begun or now,
        tuple(sorted(contributors)),
        tuple(holder.site for holder in live if holder.generation == current.number),
        attendance,
        service.started_at,
        service.room(current.weights) if begun is None else ROOM,
    )
