"""The snapshot on which the answer to an asking session is decided."""

from __future__ import annotations

from sqlalchemy import Connection, RowMapping

from crosstrain.coordinator.service import Service
from crosstrain.domain import lease as lease_rules
from crosstrain.domain import outer_round
from crosstrain.domain.block import BlockState
from crosstrain.domain.generation import GenerationRecord, is_finished
from crosstrain.domain.ids import Generation, Instant, SessionId, SiteName
from crosstrain.domain.instruction import WorkView
from crosstrain.domain.lease import Demand, GrantSize, LeaseState
from crosstrain.domain.site import APART
from crosstrain.domain.verdict import Verdict
from crosstrain.storage import lease_store, ledger_store, run_store, site_store
from crosstrain.wire import messages


def work_view(
    service: Service,
    connection: Connection,
    session: SessionId,
    name: SiteName,
    current: GenerationRecord | None,
    request: messages.NextRequest,
    now: Instant,
) -> WorkView:
    """A snapshot for one asking session, for `domain.instruction.decide_work`."""
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
        resumable=_resumable(connection, current, request.resume),
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


def _resumable(connection: Connection, current: GenerationRecord | None, saved: messages.LeaseInfo | None) -> int:
    """How many blocks a saved phase has, if it can go on."""
    if saved is None or current is None or saved.generation != current.number:
        return 0
    wanted = saved.spans
    return sum(stop - start for _, start, stop in wanted) if ledger_store.are_available(connection, wanted) else 0


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
