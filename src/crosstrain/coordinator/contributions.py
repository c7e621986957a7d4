"""Accepting a contribution: judged before it counts, recorded once, refused ones kept with their reason."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Connection

from crosstrain.coordinator import leases, sessions
from crosstrain.coordinator.damage import require_intact
from crosstrain.coordinator.service import Service
from crosstrain.domain.block import BlockState
from crosstrain.domain.contribution import Contribution, Judgement, judge_claim, judge_delta
from crosstrain.domain.events import EventKind
from crosstrain.domain.ids import Digest, Generation, Instant, SessionId, Token
from crosstrain.domain.lease import Lease, LeaseState
from crosstrain.domain.ledger import contribute
from crosstrain.domain.plural import counted
from crosstrain.errors import EnvironmentFault, IntegrityError, Refused
from crosstrain.outer.delta import DeltaSummary, summarize_delta
from crosstrain.storage import lease_store, ledger_store, run_store, site_store
from crosstrain.storage.weights_file import WeightsFile
from crosstrain.wire import messages

NORM_HISTORY = 50
"""Accepted norms that the running median looks back on."""


def accept(
    service: Service, token: Token, request: messages.ContributionRequest, now: Instant
) -> messages.ContributionReply:
    """Judges a contribution and, if it is accepted, turns the lease's prefix into contributed blocks.

    Sending the same again gets the same answer.

    Raises:
        Refused: the message contradicts its lease, or its blob is not there. The ledger is unchanged.
    """
    claim = _claim(token, request)
    session = SessionId(request.session)
    with service.database.read() as connection:
        repeated = _repeated(connection, claim)
        if repeated is not None:
            return repeated
        lease = leases.require_own_lease(connection, token, session)
        first = _judge(service, connection, claim, lease)
        base = run_store.newest_generation(connection)
    if first.malformed:
        raise Refused(
            f"The contribution of lease {token}: {first.reason}.", "this is a bug at the site", kind=first.kind
        )
    summary = _look_at_delta(service, claim, base.weights) if first.accepted and base is not None else None
    with service.database.write() as connection:
        repeated = _repeated(connection, claim)
        if repeated is not None:
            return repeated
        lease = leases.require_own_lease(connection, token, session)
        judgement = _judge(service, connection, claim, lease)
        if judgement.accepted and summary is not None:
            _require_blob(claim.delta, service.objects.knows)  # again: what nothing refers to may be removed
            history = lease_store.recent_norms(connection, NORM_HISTORY)
            limit = service.config.round.norm_limit
            judgement = judge_delta(summary.norm, summary.finite, history, limit)
        _record(service, connection, claim, lease, judgement, summary, request.seconds, now)
    if not judgement.accepted:
        service.deltas.forget(claim.delta)
    service.wake.set()
    return messages.ContributionReply(accepted=judgement.accepted, kind=judgement.kind, reason=judgement.reason)


def _record(
    service: Service,
    connection: Connection,
    claim: Contribution,
    lease: Lease,
    judgement: Judgement,
    summary: DeltaSummary | None,
    seconds: float,
    now: Instant,
) -> None:
    norm = summary.norm if summary is not None and summary.finite else None
    lease_store.add_contribution(connection, claim, lease, judgement, norm, now)
    if lease.state is not LeaseState.LIVE:
        return
    if not judgement.accepted:
        if judgement.of_content:
            site_store.count_refusal(connection, lease.session)
        sessions.give_back(connection, lease, EventKind.REFUSED, judgement.reason, now)
        return
    site_store.forget_refusals(connection, lease.session)
    held = ledger_store.held(connection, lease.token)
    change = contribute(held, claim.blocks, ledger_store.neighbours(connection, held, BlockState.AVAILABLE))
    ledger_store.apply(connection, change)
    reason = (
        f"{claim.blocks} of {counted(lease.blocks, 'block')}, {counted(claim.tokens, 'token')} "
        f"in {counted(claim.steps, 'step')}"
    )
    lease_store.end(connection, lease, LeaseState.CONTRIBUTED, reason, now)
    run_store.log_change(connection, change, lease.token, lease.site, lease.session, lease.generation, reason, now)
    site_store.add_totals(connection, lease.site, lost_blocks=lease.blocks - claim.blocks)
    # With overlap, exchange and waits are beside the training; the pace of the round is that of the training alone.
    taken_s = max(0.001, seconds if service.config.round.overlap else (now - lease.granted_at) / 1000)
    site_store.observe_phase(connection, lease.site, claim.blocks / taken_s, 1000 * seconds / claim.steps)
    with service.presences.lock:
        seen = service.presences.sessions.get(lease.session)
    if seen is not None and seen.beat.rtt_ms > 0:
        site_store.observe_rtt(connection, lease.site, seen.beat.rtt_ms)


def _claim(token: Token, request: messages.ContributionRequest) -> Contribution:
    return Contribution(
        token,
        Generation(request.generation),
        request.blocks,
        request.windows,
        request.tokens,
        request.steps,
        Digest(request.delta),
        request.windows_digest,
        request.loss,
    )


def _repeated(connection: Connection, claim: Contribution) -> messages.ContributionReply | None:
    """The answer that a contribution of this lease already got."""
    stored = lease_store.contribution(connection, claim.token)
    if stored is None:
        return None
    if lease_store.claim_of(stored) != claim:
        raise Refused(
            f"Lease {claim.token} was contributed already, with another content.",
            "a lease is contributed once; ask for work",
            kind="contributed-already",
        )
    return messages.ContributionReply(
        accepted=bool(stored["accepted"]), kind=str(stored["kind"]), reason=str(stored["reason"])
    )


def _judge(service: Service, connection: Connection, claim: Contribution, lease: Lease) -> Judgement:
    current = run_store.newest_generation(connection)
    opened = run_store.newest_round(connection)
    if current is None or opened is None:
        return Judgement(False, "stale-base", "the run has no generation yet")
    if opened["closing_at"] is not None and lease.state is LeaseState.LIVE:
        return Judgement(False, "stale-base", f"the round is closed: {opened['reason']}")
    counts = service.corpus.window_counts(claim.blocks)
    return judge_claim(claim, lease, current.number, service.seq_len, counts)


def _look_at_delta(service: Service, claim: Contribution, base: Digest) -> DeltaSummary:
    """Reads the delta once: of the run's codec, shape for shape like the base, its norm, whether it is finite.

    Raises:
        Refused: the blob is not there, or is no delta of this model.
    """
    _require_blob(claim.delta, service.objects.has)
    try:
        return _summary(service, claim, base)
    except IntegrityError as error:
        service.deltas.forget(claim.delta)
        require_intact(service, claim.delta)
        raise Refused(f"The delta cannot be read: {error.message}", error.hint, kind="wrong-file") from error
    except Refused:
        service.deltas.forget(claim.delta)
        raise


def _base(service: Service, base: Digest) -> WeightsFile:
    try:
        return WeightsFile(service.objects.path(base))
    except IntegrityError as error:  # no fault of the site's: it keeps its delta
        raise EnvironmentFault(
            f"The weights that the delta starts from cannot be read: {error.message}",
            "put the blob back from a backup of coordinator.dir or the bucket",
        ) from error


def _summary(service: Service, claim: Contribution, base: Digest) -> DeltaSummary:
    with (
        _base(service, base) as weights,
        service.deltas.open(claim.delta, weights.entries) as delta,
    ):
        difference = delta.difference(weights.entries)
        if difference:
            raise Refused(
                f"The delta does not fit the model: {difference}.",
                "the site trains another model, or sends another codec; check `model` and `wire.delta` in RUN.toml",
                kind="wrong-model",
            )
        return summarize_delta(delta.pieces())


def _require_blob(delta: Digest, is_there: Callable[[Digest], bool]) -> None:
    if not is_there(delta):
        raise Refused(f"Blob {delta[:12]} is not here.", "upload the delta before contributing it", kind="missing-blob")
