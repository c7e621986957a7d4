"""Grant, release, expire: load, decide, commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import Connection

from crosstrain.coordinator import pace, sessions, shedding
from crosstrain.coordinator.service import Service
from crosstrain.coordinator.view import LazyView
from crosstrain.domain import ledger, timeouts
from crosstrain.domain.events import EventKind
from crosstrain.domain.generation import GenerationRecord
from crosstrain.domain.ids import Instant, SessionId, SiteName, Token
from crosstrain.domain.instruction import Instruction, Work, decide_work
from crosstrain.domain.lease import Lease, LeaseState
from crosstrain.domain.site import time_to_live
from crosstrain.errors import Refused
from crosstrain.storage import lease_store, ledger_store, run_store, site_store
from crosstrain.wire import messages


def next_work(service: Service, session: SessionId, request: messages.NextRequest, now: Instant) -> messages.NextReply:
    """Tells a session its next step, and leases blocks if that step is training. Asking again changes nothing.

    Raises:
        Refused: the session is over.
    """
    with service.database.write() as connection:
        name = SiteName(sessions.require_open_session(connection, session))
        sessions.note_presence(service, session, name, None, now)
        current = run_store.newest_generation(connection)
        lease = lease_store.live_of_session(connection, session)
        if lease is not None and _goes_on(connection, lease, request.resume):
            return _train(connection, lease, "this lease is the saved phase's already", Work.RESUME)
        if lease is not None and request.holds == lease.generation:
            return _train(connection, lease, "this lease is already yours")
        instruction = decide_work(LazyView(service, connection, session, name, current, request, now))
        if lease is not None and instruction.work is not Work.ADOPT:
            reason = f"{name} holds generation {request.holds}, the lease starts from {lease.generation}"
            sessions.give_back(connection, lease, EventKind.RELEASED, reason, now)
        if instruction.work in (Work.TRAIN, Work.RESUME) and current is not None:
            wanted = request.resume.spans if instruction.work is Work.RESUME and request.resume else None
            lease = _grant(service, connection, session, name, current, instruction, wanted, now)
            return _train(connection, lease, instruction.reason, instruction.work)
        if instruction.starving:
            shedding.ask_for_a_tail(service, connection, name)
    _remember(service, session, current, instruction)
    return _reply(service, current, instruction, now)


def release(service: Service, token: Token, request: messages.ReleaseRequest, now: Instant) -> messages.Accepted:
    """Gives a lease back untrained. A lease that is over already stays as it is.

    Raises:
        Refused: unknown token, or the lease of another session.
    """
    with service.database.write() as connection:
        lease = require_own_lease(connection, token, SessionId(request.session))
        if lease.state is not LeaseState.LIVE:
            return messages.Accepted(reason=f"lease {token} is {lease.state} already")
        sessions.give_back(connection, lease, EventKind.RELEASED, request.reason, now)
    service.wake.set()
    return messages.Accepted(reason="released")


def expire(service: Service, now: Instant) -> int:
    """Ends all leases whose deadline passed; returns how many.

    Which leases are live is the database's to say: a deadline set or dropped beside a transaction that failed is put
    right here.
    """
    with service.database.read() as connection:
        live = {holder.token: holder.ttl_ms for holder in lease_store.holders(connection)}
    with service.presences.lock:
        deadlines = service.presences.deadlines
        for known in (deadlines, service.presences.shedding):
            for token in known.keys() - live.keys():
                del known[token]
        for token, ttl_ms in live.items():
            deadlines.setdefault(token, Instant(now + ttl_ms))
        due = [token for token, deadline in deadlines.items() if deadline <= now]
    for token in due:
        with service.database.write() as connection:
            lease = lease_store.find(connection, token)
            if lease is None or lease.state is not LeaseState.LIVE:
                continue
            with service.presences.lock:
                if service.presences.deadlines.get(token, now) > now:
                    continue  # a heartbeat came between the look and the transaction
            reason = f"nothing was heard of {lease.site}'s progress for its time to live"
            sessions.give_back(connection, lease, EventKind.EXPIRED, reason, now)
    return len(due)


def grant_grace(service: Service, now: Instant) -> None:
    """Gives every live lease a full TTL from now: after a start, and after a stall of the coordinator itself (G8). Nobody
    could be heard in a stall, so nobody was silent in it either."""
    with service.database.read() as connection:
        live = lease_store.in_state(connection, LeaseState.LIVE)
    with service.presences.lock:
        for lease in live:
            known = service.presences.deadlines.get(lease.token, now)
            service.presences.deadlines[lease.token] = Instant(max(known, now + lease.ttl_ms))
        for number, seen in service.presences.sessions.items():
            service.presences.sessions[number] = replace(seen, seen_at=now)


def add_to_deadlines(service: Service, away_ms: int) -> None:
    """Does not count an absence of the coordinator as silence of the sites."""
    if away_ms <= 0:
        return
    with service.presences.lock:
        for token, deadline in service.presences.deadlines.items():
            service.presences.deadlines[token] = Instant(deadline + away_ms)
        for number, seen in service.presences.sessions.items():
            service.presences.sessions[number] = replace(seen, seen_at=Instant(seen.seen_at + away_ms))


def require_own_lease(connection: Connection, token: Token, session: SessionId) -> Lease:
    """The lease, if it is this session's (G3).

    Raises:
        Refused: unknown token, or another session's lease.
    """
    lease = lease_store.find(connection, token)
    if lease is None:
        raise Refused(f"There is no lease {token}.", "ask for work", kind="unknown-lease", status=404)
    if lease.session != session:
        raise Refused(
            f"Lease {token} belongs to session {lease.session}, not {session}.",
            "a newer session of this site took over; this one must stop",
            kind="fenced",
        )
    return lease


def _goes_on(connection: Connection, lease: Lease, saved: messages.LeaseInfo | None) -> bool:
    """Whether a lease was given out for this saved phase: the reply was lost, or the site asks a second time."""
    return (
        saved is not None
        and saved.generation == lease.generation
        and saved.spans == sessions.lease_info(connection, lease).spans
    )


def _grant(
    service: Service,
    connection: Connection,
    session: SessionId,
    name: SiteName,
    current: GenerationRecord,
    instruction: Instruction,
    wanted: Sequence[tuple[int, int, int]] | None,
    now: Instant,
) -> Lease:
    token = lease_store.next_token(connection)
    site = site_store.find(connection, name)
    assert site is not None
    if wanted is None:
        epoch = run_store.progress(connection)["epoch"]
        spans = ledger_store.available(connection, epoch, instruction.blocks)
        change = ledger.grant(spans, instruction.blocks, token)
    else:
        change = ledger.grant_again(ledger_store.are_available(connection, wanted), wanted, token)
    interval = max(service.heartbeat_ms, site["progress_ms"] or 0)
    ttl = time_to_live(service.ttl_floor_ms, interval, site["rtt_ms"] or 0)
    lease = Lease(token, name, session, current.number, current.global_step, instruction.blocks, now, ttl)
    ledger_store.apply(connection, change)
    lease_store.add(connection, lease, instruction.reason)
    site_store.add_totals(connection, name, grants=1, granted_blocks=instruction.blocks)
    run_store.log_change(connection, change, token, name, session, current.number, instruction.reason, now)
    pace.note_lease(service, lease, site["rate"])
    with service.presences.lock:
        service.presences.deadlines[token] = Instant(now + ttl)
    return lease


def _train(connection: Connection, lease: Lease, reason: str, work: Work = Work.TRAIN) -> messages.NextReply:
    info = sessions.lease_info(connection, lease)
    return messages.NextReply(
        work=work.value, reason=reason, generation=lease.generation, global_step=lease.global_step, lease=info
    )


def _reply(
    service: Service, current: GenerationRecord | None, instruction: Instruction, now: Instant
) -> messages.NextReply:
    poll = round(1000 * timeouts.poll_s(service.heartbeat_ms / 1000))
    return messages.NextReply(
        work=instruction.work.value,
        reason=instruction.reason,
        until_ms=None if instruction.until is None else max(0, instruction.until - now),
        poll_ms=poll,
        generation=None if current is None else current.number,
        weights=None if current is None else current.weights,
        global_step=None if current is None else current.global_step,
    )


def _remember(service: Service, session: SessionId, current: GenerationRecord | None, instruction: Instruction) -> None:
    """Notes the answer: for the status, and so that a round does not wait for who was already told to wait."""
    with service.presences.lock:
        if instruction.work is Work.INITIALISE:
            service.presences.initialiser = session
        if instruction.work is Work.EVALUATE and current is not None:
            service.presences.evaluators[current.number] = session
        presence = service.presences.sessions.get(session)
        if presence is not None:
            asked = instruction.work in (Work.WAIT, Work.FINISHED) and current is not None
            service.presences.sessions[session] = replace(
                presence,
                asked_generation=current.number if asked and current is not None else presence.asked_generation,
                answer=instruction.reason,
            )
