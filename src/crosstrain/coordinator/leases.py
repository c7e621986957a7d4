"""Grant, release, expire: load, decide, commit."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import Connection, RowMapping

from crosstrain.coordinator import sessions
from crosstrain.coordinator.service import Service
from crosstrain.domain import lease as lease_rules
from crosstrain.domain import ledger, outer_round
from crosstrain.domain.block import BlockState
from crosstrain.domain.events import EventKind
from crosstrain.domain.generation import GenerationRecord, is_finished
from crosstrain.domain.ids import Generation, Instant, SessionId, SiteName, Token
from crosstrain.domain.instruction import Instruction, Work, WorkView, decide_work
from crosstrain.domain.lease import Demand, GrantSize, Lease, LeaseState
from crosstrain.domain.site import APART, time_to_live
from crosstrain.domain.verdict import Verdict
from crosstrain.errors import Refused
from crosstrain.storage import lease_store, ledger_store, run_store, site_store
from crosstrain.wire import messages


def next_work(service: Service, session: SessionId, request: messages.NextRequest, now: Instant) -> messages.NextReply:
    """Tells a session its next step, and leases blocks if that step is training. Asking again changes nothing.

    Raises:
        Superseded: the session is over.
    """
    with service.database.write() as connection:
        name = SiteName(sessions.require_open_session(connection, session))
        sessions.note_presence(service, session, name, None, now)
        current = run_store.newest_generation(connection)
        lease = lease_store.live_of_session(connection, session)
        if lease is not None and request.holds == lease.generation:
            return _train(connection, lease, "this lease is already yours")
        instruction = decide_work(_view(service, connection, session, name, current, request, now))
        if lease is not None and instruction.work is not Work.ADOPT:
            reason = f"{name} holds generation {request.holds}, the lease starts from {lease.generation}"
            sessions.give_back(service, connection, lease, EventKind.RELEASED, reason, now)
        if instruction.work is Work.TRAIN and current is not None:
            lease = _grant(service, connection, session, name, current, instruction, now)
            return _train(connection, lease, instruction.reason)
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
        sessions.give_back(service, connection, lease, EventKind.RELEASED, request.reason, now)
    service.wake.set()
    return messages.Accepted(reason="released")


def expire(service: Service, now: Instant) -> int:
    """Ends all leases whose deadline passed; returns how many."""
    with service.presences.lock:
        due = [token for token, deadline in service.presences.deadlines.items() if deadline <= now]
    for token in due:
        with service.database.write() as connection:
            lease = lease_store.find(connection, token)
            if lease is None or lease.state is not LeaseState.LIVE:
                with service.presences.lock:
                    service.presences.deadlines.pop(token, None)
                continue
            with service.presences.lock:
                if service.presences.deadlines.get(token, now) > now:
                    continue  # a heartbeat came between the look and the transaction
            reason = f"nothing was heard of {lease.site}'s progress for its time to live"
            sessions.give_back(service, connection, lease, EventKind.EXPIRED, reason, now)
    return len(due)


def grant_grace(service: Service, now: Instant) -> None:
    """Gives every live lease a full TTL from now: after a start, and after a stall of the coordinator itself (G8)."""
    with service.database.read() as connection:
        live = lease_store.in_state(connection, LeaseState.LIVE)
    with service.presences.lock:
        for lease in live:
            known = service.presences.deadlines.get(lease.token, now)
            service.presences.deadlines[lease.token] = Instant(max(known, now + lease.ttl_ms))


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


def _view(
    service: Service,
    connection: Connection,
    session: SessionId,
    name: SiteName,
    current: GenerationRecord | None,
    request: messages.NextRequest,
    now: Instant,
) -> WorkView:
    opened = run_store.newest_round(connection)
    run = run_store.load(connection)
    assert run is not None
    settings = service.config.run
    number = current.number if current else Generation(0)
    finished = is_finished(number, settings.rounds, int(run["epoch"]), settings.epochs)
    if run["finished_at"] is not None:
        finished = Verdict(True, str(run["finished_reason"]))
    begun = (lease_store.round_begun(connection, current.number) if current else None) or now
    contributors = (
        [row["site"] for row in lease_store.accepted(connection, current.number)] if current is not None else []
    )
    return WorkView(
        current=current.number if current else None,
        holds=Generation(request.holds) if request.holds is not None else None,
        initialiser_elsewhere=_initialiser_elsewhere(service, session),
        must_evaluate=current is not None and _must_evaluate(service, connection, session, current.number),
        finished=finished,
        start=_start(service, current, now),
        closing=opened["reason"] if opened and opened["closing_at"] and not opened["published_at"] else None,
        contributed=name in contributors,
        size=_size(service, connection, name, int(run["epoch"]), begun, request.max_blocks, now),
        drain=outer_round.must_drain(begun, service.rules, now),
        barrier=service.barrier,
    )


def _size(
    service: Service,
    connection: Connection,
    name: SiteName,
    epoch: int,
    begun_at: Instant,
    max_blocks: int | None,
    now: Instant,
) -> GrantSize | None:
    free = ledger_store.counts(connection, epoch)[BlockState.AVAILABLE]
    if free == 0:
        return None
    live = lease_store.in_state(connection, LeaseState.LIVE)
    holders = {lease.site for lease in live}
    with service.presences.lock:
        taking_part = [seen for seen in service.presences.sessions.values() if seen.beat.phase not in APART]
        present = {seen.site for seen in taking_part} | {name}
    demands = {row["name"]: _demand(service, row) for row in site_store.sites(connection) if row["name"] in present}
    close = lease_rules.expected_close(
        begun_at,
        [(lease, demands[lease.site].rate if lease.site in demands else None) for lease in live],
        list(demands.values()),
    )
    others = [demand for site, demand in demands.items() if site != name and site not in holders]
    left = None if close is None else max(0.0, (close - now) / 1000)
    return lease_rules.size_grant(demands[name], others, free, left, max_blocks)


def _demand(service: Service, row: RowMapping) -> Demand:
    steps, block_windows = service.config.inner.steps, service.corpus.block_windows
    full = lease_rules.full_phase_blocks(steps, row["windows_per_step"], block_windows)
    return Demand(SiteName(row["name"]), full, row["rate"])


def _grant(
    service: Service,
    connection: Connection,
    session: SessionId,
    name: SiteName,
    current: GenerationRecord,
    instruction: Instruction,
    now: Instant,
) -> Lease:
    token = lease_store.next_token(connection)
    run = run_store.load(connection)
    site = site_store.find(connection, name)
    assert run is not None and site is not None
    spans = ledger_store.available(connection, int(run["epoch"]), instruction.blocks)
    change = ledger.grant(spans, instruction.blocks, token)
    interval = max(service.heartbeat_ms, site["progress_ms"] or 0)
    ttl = time_to_live(service.ttl_floor_ms, interval, site["rtt_ms"] or 0)
    lease = Lease(token, name, session, current.number, current.global_step, instruction.blocks, now, ttl)
    ledger_store.apply(connection, change)
    lease_store.add(connection, lease, instruction.reason)
    site_store.add_totals(connection, name, grants=1, granted_blocks=instruction.blocks)
    run_store.log_change(connection, change, token, name, session, current.number, instruction.reason, now)
    with service.presences.lock:
        service.presences.deadlines[token] = Instant(now + ttl)
    return lease


def _train(connection: Connection, lease: Lease, reason: str) -> messages.NextReply:
    info = sessions.lease_info(connection, lease)
    return messages.NextReply(
        work="train", reason=reason, generation=lease.generation, global_step=lease.global_step, lease=info
    )


def _reply(
    service: Service, current: GenerationRecord | None, instruction: Instruction, now: Instant
) -> messages.NextReply:
    poll = min(2000, max(50, service.heartbeat_ms // 4))
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


def _initialiser_elsewhere(service: Service, session: SessionId) -> bool:
    with service.presences.lock:
        initialiser = service.presences.initialiser
        return initialiser is not None and initialiser != session and initialiser in service.presences.sessions


def _must_evaluate(service: Service, connection: Connection, session: SessionId, current: Generation) -> bool:
    if service.config.heldout.windows == 0 or run_store.evaluation(connection, current) is not None:
        return False
    with service.presences.lock:
        evaluator = service.presences.evaluators.get(current)
        return evaluator is None or evaluator == session or evaluator not in service.presences.sessions


def _start(service: Service, current: GenerationRecord | None, now: Instant) -> Verdict:
    if current is None or current.number > 0:
        return Verdict(True, "the run has started")
    with service.presences.lock:
        present = [seen.site for seen in service.presences.sessions.values()]
        came = service.presences.first_came_at or now
    return outer_round.may_start(present, came, service.rules, now)
