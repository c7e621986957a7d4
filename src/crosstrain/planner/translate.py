"""Between messages and the values that placement decides on: ages become instants, instants become ages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from math import isfinite

from crosstrain.domain.ids import Instant
from crosstrain.placement.error_record import error_record
from crosstrain.placement.forecast import BANDS
from crosstrain.placement.observations import Estimates, Wait
from crosstrain.placement.offer import Demand
from crosstrain.placement.plan import Alternative, Plan, SitePlan
from crosstrain.placement.predict import forecast
from crosstrain.placement.shape import Shape
from crosstrain.placement.site_queue import Limits, OfferedShape, QueueJob, QueueReport, QueueState, SiteQueue
from crosstrain.wire import placement as wire

QUANTILES = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)


def report(request: wire.ReportRequest, now: Instant) -> QueueReport:
    """A report in the coordinator's time."""
    at = Instant(now - request.age_ms)

    def ago(age_ms: int) -> Instant:
        return Instant(at - age_ms)

    return QueueReport(
        at=at,
        offered=tuple(OfferedShape(_shape(o.shape), o.tokens_per_s, o.windows_per_pass) for o in request.offered),
        estimates=tuple(
            (_shape(e.shape), Estimates(ago(e.age_ms), e.test_only_s, e.plan_s)) for e in request.estimates
        ),
        jobs=tuple(
            QueueJob(
                job.name,
                job.job_id,
                _shape(job.shape),
                QueueState(job.state),
                ago(job.submitted_age_ms),
                None if job.started_age_ms is None else ago(job.started_age_ms),
            )
            for job in request.jobs
        ),
        waits=tuple((_shape(w.shape), Wait(ago(w.submitted_age_ms), w.wait_s, w.started)) for w in request.waits),
        discount=request.discount,
        partition_limits_s=tuple(sorted(request.partition_limits_s.items())),
        startup_s=request.startup_s,
        tail_s=request.tail_s,
        limits=Limits(
            request.max_queued,
            request.max_depth,
            request.node_hours_left,
            None if request.award_ends_ms is None else Instant(at + request.award_ends_ms),
        ),
        notes=request.notes,
    )


def plan(made: Plan, work: Demand, run: str, queues: Sequence[SiteQueue], now: Instant) -> wire.PlanReply:
    """A plan as it is sent."""
    heard = {queue.site: queue.heard_at for queue in queues}
    unknown = [
        f"{queue.site}: job {job.name} is neither in the queue nor in accounting"
        for queue in queues
        for job in queue.jobs
        if job.state is QueueState.UNKNOWN
    ]
    return wire.PlanReply(
        run=run,
        age_ms=max(0, now - made.made_at),
        reason=made.reason,
        finish_s={f"{level:g}": _finite(made.finish.quantile(level)) for level in QUANTILES},
        tokens_left=work.tokens,
        round_tokens=work.round_tokens,
        exchange_s=work.exchange_s,
        sites=tuple(_site(each, now - heard[each.site] if each.site in heard else None) for each in made.sites),
        alternatives=_alternatives(made.alternatives),
        notes=tuple(unknown),
    )


def _site(entry: SitePlan, heard_age_ms: int | None) -> wire.SitePlanBody:
    return wire.SitePlanBody(
        site=entry.site,
        role=entry.role.value,
        summary=entry.summary or entry.reason,
        reason=entry.reason,
        note=entry.note,
        shape=None if entry.shape is None else _body(entry.shape),
        shape_reason=entry.shape_reason,
        depth=entry.depth,
        depth_reason=entry.depth_reason,
        accumulation=entry.accumulation,
        accumulation_reason=entry.accumulation_reason,
        submit=tuple(wire.ItemBody(name=item.name, shape=_body(item.shape)) for item in entry.submit),
        keep=entry.keep,
        first_start_s=tuple(_finite(seconds) for seconds in entry.first_start_s),
        tokens=entry.tokens,
        active_h=entry.active_h,
        jobs=entry.jobs,
        node_hours=entry.node_hours,
        alternatives=_alternatives(entry.alternatives),
        heard_age_ms=heard_age_ms,
    )


def waits(run: str, queues: Sequence[SiteQueue], now: Instant) -> wire.WaitsReply:
    """All forecasts as they are sent."""
    rows = [_row(queue, each.shape, now) for queue in queues for each in queue.offered]
    return wire.WaitsReply(
        run=run, rows=tuple(rows), notes={queue.site: queue.notes for queue in queues if queue.notes}
    )


def _row(queue: SiteQueue, shape: Shape, now: Instant) -> wire.WaitRow:
    stated, held = forecast(queue.waits, shape, now), queue.waits.of(shape)
    latest = held.latest
    return wire.WaitRow(
        site=queue.site,
        shape=_body(shape),
        basis=stated.basis.value,
        point_s=stated.point_s,
        bands_s={f"{level:g}": stated.band(level) for level in BANDS},
        outcomes=stated.outcomes,
        reason=stated.reason,
        probe_age_s=None if latest is None else max(0.0, (now - latest.at) / 1000),
        test_only_s=None if latest is None else latest.test_only_s,
        plan_s=None if latest is None else latest.plan_s,
        error=wire.ErrorBody(**asdict(error_record(held.scored))),
    )


def _alternatives(found: Sequence[Alternative]) -> tuple[wire.AlternativeBody, ...]:
    return tuple(wire.AlternativeBody(what=each.what, later_s=_finite(each.later_s)) for each in found)


def _finite(seconds: float) -> float | None:
    return seconds if isfinite(seconds) else None


def _shape(body: wire.ShapeBody) -> Shape:
    return Shape(body.partition, body.nodes, body.gpus, body.walltime_s)


def _body(shape: Shape) -> wire.ShapeBody:
    return wire.ShapeBody(partition=shape.partition, nodes=shape.nodes, gpus=shape.gpus, walltime_s=shape.walltime_s)
