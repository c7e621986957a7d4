"""Registration and departures: load, decide, commit."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from crosstrain import __version__
from crosstrain.coordinator.service import Service
from crosstrain.domain.block import BlockState
from crosstrain.domain.contribution import may_go_on
from crosstrain.domain.events import EventKind
from crosstrain.domain.ids import Instant, SessionId, SiteName
from crosstrain.domain.lease import Lease, LeaseState
from crosstrain.domain.ledger import Span, count_blocks, move
from crosstrain.domain.plural import counted
from crosstrain.domain.site import Beat, Phase, Presence
from crosstrain.errors import Refused
from crosstrain.storage import lease_store, ledger_store, run_store, site_store
from crosstrain.storage.asking import Asking, asking
from crosstrain.wire import messages

FIELD_HELP = {
    "spec_digest": "use the same RUN.toml at the coordinator and at every site",
    "seed": "set `run.seed` to the coordinator's value",
    "windows": "copy the coordinator's corpus directory, or build it from the same input",
    "block_windows": "set `data.block_windows` to the coordinator's value",
    "seq_len": "build the corpus with the coordinator's --seq-len",
    "tokenizer_sha256": "build the corpus with the coordinator's tokenizer.json",
    "corpus_sha256": "copy the coordinator's corpus directory; `crosstrain corpus verify` checks a copy",
}


def register(service: Service, request: messages.RegisterRequest, now: Instant) -> messages.RegisterReply:
    """Opens a session of a site; older sessions of the site are over, and what they held is available again.

    Raises:
        Refused: protocol, corpus, seed or spec differ; names the field.
    """
    _check_fingerprint(service, request)
    name = SiteName(request.site)
    with service.database.write() as connection:
        session = site_store.open_session(
            connection,
            name,
            request.ranks,
            request.windows_per_step,
            request.inner_state,
            request.version,
            now,
        )
        kept = _take_over_leases(service, connection, name, session, set(request.holding), now)
        run_store.log(
            connection,
            EventKind.SESSION_OPENED,
            f"{name} registered with {counted(request.ranks, 'rank')}, inner state {request.inner_state}",
            now,
            site=name,
            session=session,
        )
        infos = tuple(lease_info(lease, ledger_store.held(connection, lease.token)) for lease in kept)
    with service.presences.lock:
        gone = [number for number, seen in service.presences.sessions.items() if seen.site == name]
        for number in gone:
            del service.presences.sessions[number]
        service.presences.sessions[session] = Presence(session, name, now, now, Beat(Phase.BOOTING))
        if service.presences.first_came_at is None:
            service.presences.first_came_at = now
    service.wake.set()
    return messages.RegisterReply(
        session=session, run=service.config.run.name, kept=infos, heartbeat_ms=service.heartbeat_ms
    )


def end(service: Service, session: SessionId, reason: str, now: Instant) -> messages.Accepted:
    """A site leaves; leases it still holds are available again. Ending twice is no error."""
    with service.database.write() as connection:
        row = site_store.session(connection, session)
        if row is None:
            raise unknown_session(session)
        for lease in reversed(lease_store.live_of_session(connection, session)):
            give_back(connection, lease, EventKind.RELEASED, f"{lease.site} left: {reason}", now)
        if row["ended_at"] is None:
            site_store.end_session(connection, session, reason, now)
            run_store.log(
                connection,
                EventKind.SESSION_ENDED,
                f"{row['site']} left: {reason}",
                now,
                site=SiteName(row["site"]),
                session=session,
            )
    forget(service, session)
    service.wake.set()
    return messages.Accepted(reason="left")


def note_presence(service: Service, session: SessionId, name: SiteName, heard: Beat | None, now: Instant) -> Presence:
    """Takes a sign of life into memory; None keeps the phase that was heard last."""
    with service.presences.lock:
        known = service.presences.sessions.get(session)
        if known is None:
            known = Presence(session, name, now, now, heard or Beat(Phase.WAITING))
        presence = known.after(heard or known.beat, now)
        service.presences.sessions[session] = presence
        if service.presences.first_came_at is None:
            service.presences.first_came_at = now
        return presence


def forget(service: Service, session: SessionId) -> None:
    """Drops a session from memory: it left, or fell silent."""
    with service.presences.lock:
        service.presences.sessions.pop(session, None)
        if service.presences.initialiser == session:
            service.presences.initialiser = None


def require_open_session(connection: Connection, session: SessionId) -> str:
    """The name of the session's site.

    Raises:
        Refused: unknown session, or one that is over (kind "superseded").
    """
    row = site_store.session(connection, session)
    if row is None:
        raise unknown_session(session)
    if row["ended_at"] is not None:
        raise session_over(session, row["site"], row["end_reason"])
    return str(row["site"])


def require_asking(connection: Connection, session: SessionId) -> Asking:
    """What the answer to an open session is decided on.

    Raises:
        Refused: as `require_open_session`; or it gets no more work, because it trains what cannot be used.
    """
    found = asking(connection, session)
    if found is None:
        raise unknown_session(session)
    if found.end_reason is not None:
        raise session_over(session, found.site, found.end_reason)
    verdict = may_go_on(found.refused)
    if not verdict:
        raise Refused(
            f"Session {session} of {found.site} gets no more work: {verdict.reason}.",
            "the status says why each was; look at the losses in its trainer.log, at its node, and at `inner.lr`; a new job of "
            "the site begins afresh",
            kind="refused-too-often",
        )
    return found


def give_back_followers(connection: Connection, lease: Lease, now: Instant) -> None:
    """Returns the leases that its session was granted ahead on the strength of one that does not count (`round.overlap`)."""
    for later in lease_store.live_of_session(connection, lease.session):
        if later.generation > lease.generation:
            reason = f"lease {lease.token}, which it follows, did not count"
            give_back(connection, later, EventKind.RELEASED, reason, now)


def give_back(connection: Connection, lease: Lease, kind: EventKind, reason: str, now: Instant) -> int:
    """Returns all blocks of a live lease to the epoch, and those of the leases that follow it; returns how many of the lease itself."""
    give_back_followers(connection, lease, now)
    ended = {EventKind.EXPIRED: LeaseState.EXPIRED, EventKind.REFUSED: LeaseState.REFUSED}
    held = ledger_store.held(connection, lease.token)
    change = move(held, kind, ledger_store.neighbours(connection, held, BlockState.AVAILABLE))
    ledger_store.apply(connection, change)
    lease_store.end(connection, lease, ended.get(kind, LeaseState.RELEASED), reason, now)
    lost = count_blocks(held)
    site_store.add_totals(connection, lease.site, lost_blocks=lost, ttl_expiries=int(kind is EventKind.EXPIRED))
    run_store.log_change(connection, change, lease.token, lease.site, lease.session, lease.generation, reason, now)
    return lost


def lease_info(lease: Lease, held: Sequence[Span]) -> messages.LeaseInfo:
    """The lease as its holder sees it.

    Args:
        held: its spans, in the order of training.
    """
    return messages.LeaseInfo(
        token=lease.token,
        generation=lease.generation,
        global_step=lease.global_step,
        spans=tuple((span.epoch, span.start, span.stop) for span in held),
        ttl_ms=lease.ttl_ms,
    )


def unknown_session(session: SessionId) -> Refused:
    """What is said to a session of another run, or of none."""
    return Refused(f"There is no session {session}.", "register first", kind="unknown-session", status=404)


def session_over(session: SessionId, site_name: str, reason: str) -> Refused:
    """What is said to one that ended."""
    return Refused(
        f"Session {session} of {site_name} is over: {reason}.",
        "a newer session of this site may be running; else start the site again",
        kind="superseded",
        status=410,
    )


def _take_over_leases(
    service: Service,
    connection: Connection,
    name: SiteName,
    session: SessionId,
    holding: set[int],
    now: Instant,
) -> list[Lease]:
    kept = []
    # The newest first: what is given back takes the leases behind it along.
    for lease in reversed(lease_store.live_of_site(connection, name)):
        if lease.token in holding:
            lease_store.hand_over(connection, lease, session)
            with service.presences.lock:
                service.presences.deadlines[lease.token] = Instant(now + service.patience.booting)
            kept.append(lease)
        else:
            reason = f"session {session} of {name} took over without the work of session {lease.session}"
            give_back(connection, lease, EventKind.RELEASED, reason, now)
    return kept


def _check_fingerprint(service: Service, request: messages.RegisterRequest) -> None:
    if request.protocol != messages.PROTOCOL:
        raise Refused(
            f"The coordinator speaks protocol {messages.PROTOCOL} (crosstrain {__version__}), the site "
            f"{request.protocol} (crosstrain {request.version}).",
            f"install crosstrain {__version__} at the site",
            kind="version-mismatch",
        )
    ours, theirs = service.fingerprint, request.fingerprint
    # The spec digest covers the seed and the block size too: name the particular field first.
    for field in (*[name for name in FIELD_HELP if name != "spec_digest"], "spec_digest"):
        expected, found = getattr(ours, field), getattr(theirs, field)
        if expected != found:
            raise Refused(
                f"{field} of site {request.site} differs: the coordinator has {expected}, the site {found}.",
                FIELD_HELP[field],
                kind=f"{field.replace('_', '-')}-mismatch",
            )
