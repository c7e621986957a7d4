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
from crosstrain.domain.ids import Generation, Instant, SessionId, Token
from crosstrain.domain.instruction import Instruction, Work, decide_ahead, decide_work
from crosstrain.domain.lease import Lease, LeaseState
from crosstrain.domain.ledger import Change, Span
from crosstrain.domain.site import time_to_live
from crosstrain.errors import Refused
from crosstrain.storage import lease_store, ledger_store, run_store, site_store
from crosstrain.storage.asking import Model
from crosstrain.wire import messages


def next_work(
    service: Service, connection: Connection, session: SessionId, request: messages.NextRequest, now: Instant
) -> messages.NextReply:
    """Tells a session its next step, and leases blocks if that step is training. Asking again changes nothing.

    Raises:
        Refused: the session is over.
    """
    asking = sessions.require_asking(connection, session)
    sessions.note_presence(service, session, asking.site, None, now)
    if request.ahead is not None:
        return _next_ahead(LazyView(service, connection, asking, request, now), request.ahead)
    with service.presences.lock:
        service.presences.adopting.pop(session, None)  # it has what it fetched, or gave it up
    lease = asking.lease
    if lease is not None:
        held = ledger_store.held(connection, lease.token)
        if _goes_on(lease, held, request.resume):
            return _train(lease, held, "this lease is the saved phase's already", Work.RESUME)
        if request.holds == lease.generation:
            return _train(lease, held, "this lease is already yours")
    view = LazyView(service, connection, asking, request, now)
    instruction = decide_work(view)
    if lease is not None and instruction.work is not Work.ADOPT:
        reason = f"{asking.site} holds generation {request.holds}, the lease starts from {lease.generation}"
        sessions.give_back(connection, lease, EventKind.RELEASED, reason, now)
    if instruction.work in (Work.TRAIN, Work.RESUME):
        assert asking.model is not None
        return _grant(view, instruction, asking.model.number, asking.model.global_step)
    if instruction.starving:
        shedding.ask_for_a_tail(service, connection, asking.site)
    _remember(service, session, asking.model, instruction)
    return _reply(service, asking.model, instruction, now)


def _next_ahead(view: LazyView, wish: messages.Ahead) -> messages.NextReply:
    """Tells a session that has trained its lease how to go on before the round is merged: with a lease of the next round, with
    the next generation as soon as there is one, or not yet.

    Raises:
        Refused: the lease that it trained was dropped, and what follows it too.
    """
    service, model = view.service, view.asking.model
    before = view.predecessor
    if before is not None and before.state is LeaseState.DROPPED:
        raise Refused(
            f"The work of lease {before.token} was accepted, but does not count any more: its delta is lost.",
            "ask for work, from the current generation",
            kind="dropped",
        )
    if before is not None and model is not None and model.number > before.generation:
        measure = view.must_evaluate
        with service.presences.lock:
            service.presences.adopting[view.asking.session] = model.packed or model.weights
            if measure:
                service.presences.evaluators[model.number] = view.asking.session
        reply = _reply(service, model, Instruction(Work.ADOPT, f"generation {model.number} is current"), view.now)
        return reply.model_copy(update={"measure": measure})
    if wish.global_step is None or before is None:
        return _reply(service, model, Instruction(Work.WAIT, f"the round is open; {view.barrier.reason}"), view.now)
    following = Generation(before.generation + 1)
    for lease in lease_store.live_of_session(view.connection, view.asking.session):
        if lease.generation == following:
            return _train(lease, ledger_store.held(view.connection, lease.token), "this lease is already yours")
    instruction = decide_ahead(view)
    if instruction.work is Work.TRAIN:
        return _grant(view, instruction, following, wish.global_step)
    if instruction.starving:
        shedding.ask_for_a_tail(service, view.connection, view.asking.site)
    return _reply(service, model, instruction, view.now)


def release(
    service: Service, connection: Connection, token: Token, request: messages.ReleaseRequest, now: Instant
) -> messages.Accepted:
    """Gives a lease back untrained. A lease that is over already stays as it is.

    Raises:
        Refused: unknown token, or the lease of another session.
    """
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


def _goes_on(lease: Lease, held: Sequence[Span], saved: messages.LeaseInfo | None) -> bool:
    """Whether a lease was given out for this saved phase: the reply was lost, or the site asks a second time."""
    return (
        saved is not None
        and saved.generation == lease.generation
        and saved.spans == tuple((span.epoch, span.start, span.stop) for span in held)
    )


def _grant(view: LazyView, instruction: Instruction, generation: Generation, global_step: int) -> messages.NextReply:
    service, connection, asking, now = view.service, view.connection, view.asking, view.now
    token, name, blocks = asking.next_token, asking.site, instruction.blocks
    interval = max(service.heartbeat_ms, asking.progress_ms or 0)
    ttl = time_to_live(service.ttl_floor_ms, interval, asking.rtt_ms or 0)
    lease = Lease(token, name, asking.session, generation, global_step, blocks, now, ttl)
    change = _blocks_of(view, instruction, token)
    lease_store.draw(connection, token)
    ledger_store.apply(connection, change)
    lease_store.add(connection, lease, instruction.reason)
    site_store.add_grant(connection, name, blocks)
    run_store.log_change(connection, change, token, name, lease.session, lease.generation, instruction.reason, now)
    pace.note_lease(service, lease, asking.rate)
    with service.presences.lock:
        service.presences.deadlines[token] = Instant(now + ttl)
    held = sorted(span for span in change.added if span.token == token)
    return _train(lease, held, instruction.reason, instruction.work)


def _blocks_of(view: LazyView, instruction: Instruction, token: Token) -> Change:
    """The leased blocks: those of the saved phase, else the first that are available."""
    saved = view.request.resume
    if instruction.work is Work.RESUME and saved is not None:
        return ledger.grant_again(ledger_store.are_available(view.connection, saved.spans), saved.spans, token)
    if view.asking.lease is not None or view.free.blocks < instruction.blocks:
        # Its old lease was given back since the look, or the look did not reach so far.
        spans = ledger_store.available(view.connection, view.asking.epoch, instruction.blocks)
        return ledger.grant(spans, instruction.blocks, token)
    return ledger.grant(view.free.spans, instruction.blocks, token)


def _train(lease: Lease, held: Sequence[Span], reason: str, work: Work = Work.TRAIN) -> messages.NextReply:
    return messages.NextReply(
        work=work.value,
        reason=reason,
        generation=lease.generation,
        global_step=lease.global_step,
        lease=sessions.lease_info(lease, held),
    )


def _reply(service: Service, model: Model | None, instruction: Instruction, now: Instant) -> messages.NextReply:
    poll = round(1000 * timeouts.poll_s(service.heartbeat_ms / 1000))
    return messages.NextReply(
        work=instruction.work.value,
        reason=instruction.reason,
        until_ms=None if instruction.until is None else max(0, instruction.until - now),
        poll_ms=poll,
        generation=None if model is None else model.number,
        weights=None if model is None else model.weights,
        packed=None if model is None else model.packed,
        global_step=None if model is None else model.global_step,
    )


def _remember(service: Service, session: SessionId, model: Model | None, instruction: Instruction) -> None:
    """Notes the answer: for the status, and so that a round does not wait for who was already told to wait."""
    with service.presences.lock:
        if instruction.work is Work.INITIALISE:
            service.presences.initialiser = session
        if instruction.work is Work.ADOPT and model is not None:
            service.presences.adopting[session] = model.packed or model.weights
        if instruction.work is Work.EVALUATE and model is not None:
            service.presences.evaluators[model.number] = session
        presence = service.presences.sessions.get(session)
        if presence is not None:
            asked = instruction.work in (Work.WAIT, Work.FINISHED) and model is not None
            service.presences.sessions[session] = replace(
                presence,
                asked_generation=model.number if asked and model is not None else presence.asked_generation,
                answer=instruction.reason,
            )
