"""A heartbeat: what it renews, and what its sender hears. Many come a second: one lookup each, and only what is shed is written."""

from __future__ import annotations

from crosstrain.coordinator import shedding
from crosstrain.coordinator.service import Service
from crosstrain.coordinator.sessions import note_presence, session_over, unknown_session
from crosstrain.domain import outer_round, site
from crosstrain.domain.ids import Instant, SessionId, Token
from crosstrain.domain.site import Beat, Phase, Presence
from crosstrain.storage.standing import Standing, standing
from crosstrain.wire import messages


def beat(service: Service, session: SessionId, request: messages.BeatRequest, now: Instant) -> messages.BeatReply:
    """Renews the session's lease and tells it what it must know at once.

    Raises:
        Refused: the session is over.
    """
    token = None if request.token is None else Token(request.token)
    found = standing(service.database, session, token)
    if found is None:
        raise unknown_session(session)
    if found.end_reason is not None:
        raise session_over(session, found.site, found.end_reason)
    heard = _heard(request, token)
    presence = note_presence(service, session, found.site, heard, now)
    shed = False
    if token is not None and found.lease_lives:
        shed = _renew(service, session, token, found, presence, request.kept)
    if heard.sending is not None:
        _renew_sent(service, session, heard.sending, presence)
    # The cutoff of the open round is no matter of a lease of the next one.
    drain = (
        None if found.begun_at is None or found.is_ahead else outer_round.must_drain(found.begun_at, service.rules, now)
    )
    if token is not None and not found.lease_lives:
        reason = f"lease {token} is {found.lease or 'unknown'}"
    else:
        reason = drain.reason if drain else ""
    return messages.BeatReply(
        lease_alive=token is None or found.lease_lives,
        drain=bool(drain),
        shed=shed,
        reason=reason,
        generation=found.generation,
        heartbeat_ms=service.heartbeat_ms,
    )


def _heard(request: messages.BeatRequest, token: Token | None) -> Beat:
    return Beat(
        request.phase,
        request.done,
        request.total,
        request.loss,
        request.detail,
        request.rtt_ms,
        request.blocks,
        token,
        None if request.sending is None else Token(request.sending),
        request.sent,
        request.beside,
    )


def _renew(
    service: Service, session: SessionId, token: Token, found: Standing, presence: Presence, kept: int | None
) -> bool:
    """Renews a lease that lives, and takes the answer to a shed request, if there is one; whether it is asked for one."""
    with service.presences.lock:
        if found.is_ahead and presence.beat.phase is Phase.WAITING:
            service.presences.deadlines[token] = site.deadline_of_waiting(presence, found.ttl_ms)
        else:
            service.presences.deadlines[token] = site.deadline(presence, found.ttl_ms, service.patience)
    if kept is not None:
        shedding.take_answer(service, session, token, kept, presence.seen_at)
    return shedding.is_asked(service, token)


def _renew_sent(service: Service, session: SessionId, token: Token, presence: Presence) -> None:
    """Renews the lease whose work is uploaded beside the next phase."""
    found = standing(service.database, session, token)
    if found is not None and found.lease_lives:
        with service.presences.lock:
            service.presences.deadlines[token] = site.deadline_of_sent(presence, found.ttl_ms, service.patience)
