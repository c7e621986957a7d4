"""The planner's service: takes reports in, answers with plans and forecasts. Load, decide, commit."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection

from crosstrain.config import RunConfig
from crosstrain.domain.block import Corpus
from crosstrain.domain.ids import Instant, SiteName
from crosstrain.domain.plural import counted
from crosstrain.placement.choose import make_plan
from crosstrain.placement.overhead import RECENT, Begun, Overhead, overhead
from crosstrain.placement.plan import Plan
from crosstrain.placement.site_queue import SiteQueue, absorb, new_queue
from crosstrain.planner import demand, offers, translate
from crosstrain.storage import placement_store
from crosstrain.storage.database import Database
from crosstrain.wire import placement as wire
from crosstrain.wire.messages import Accepted

SESSIONS = 10 * RECENT
"""Sessions that are looked through: a job has several if its trainer was started again by hand."""
KNOWN = "this report is known already"


@dataclass(frozen=True, slots=True)
class Desk:
    """Where placement is decided.

    Attributes:
        database: the run's, for writing.
        corpus, seq_len: what tokens are counted in.
    """

    config: RunConfig
    database: Database
    corpus: Corpus
    seq_len: int

    def take_report(self, site: SiteName, request: wire.ReportRequest, now: Instant) -> Accepted:
        """Takes in what a collector saw. A report that comes twice counts once."""
        report = translate.report(request, now)

        def absorbed(before: str | None) -> tuple[Instant, str]:
            held = new_queue(site) if before is None else placement_store.decoded(before)
            after = absorb(held, report, self.config.run.name)
            return after.heard_at, placement_store.encoded(after)

        # Outside the transaction that everybody waits for; what happens beside it is noticed, and then it is done again.
        with self.database.read() as connection:
            known = placement_store.was_reported(connection, request.report)
            before = placement_store.queue_text(connection, site)
        if known:
            return Accepted(reason=KNOWN)
        result = absorbed(before)
        with self.database.write() as connection:
            if not placement_store.is_new_report(connection, request.report, site, now):
                return Accepted(reason=KNOWN)
            found = placement_store.queue_text(connection, site)
            placement_store.keep_queue(connection, site, *(result if found == before else absorbed(found)))
        return Accepted(
            reason=f"{counted(len(request.estimates), 'estimate')} and {counted(len(request.jobs), 'job')} of {site}"
        )

    def plan(self, now: Instant) -> wire.PlanReply:
        """The plan as of now. Its shapes are those of the plan before, unless others are clearly better."""
        with self.database.read() as connection:
            queues = placement_store.queues(connection)
            previous = placement_store.newest_plan(connection)
            work = demand.demand(connection, self.config, self.corpus, self.seq_len)
            speeds = demand.speeds(connection, self.corpus, self.seq_len, [queue.site for queue in queues])
            lost = {queue.site: self._lost(connection, queue) for queue in queues}
        sites = [offers.offer(each, speeds.get(each.site), lost[each.site], now) for each in queues]
        plan = make_plan(self.config.run.name, work, sites, now, previous)
        if previous is None or _choices(plan) != _choices(previous):
            with self.database.write() as connection:
                placement_store.keep_plan(connection, plan)
        return translate.plan(plan, work, self.config.run.name, queues, now)

    def _lost(self, connection: Connection, queue: SiteQueue) -> Overhead:
        begun = [Begun(*each) for each in placement_store.first_grants(connection, queue.site, SESSIONS)]
        # A lease that is granted ahead of its generation waits for it; how long sending took is not to be told from that.
        exchanges = [] if self.config.round.overlap else demand.exchanges(connection, queue.site)
        return overhead(queue, begun, exchanges, self.config.site_named(queue.site).margin_s)

    def waits(self, now: Instant) -> wire.WaitsReply:
        """All forecasts, with the record of past error."""
        with self.database.read() as connection:
            return translate.waits(self.config.run.name, placement_store.queues(connection), now)


def _choices(plan: Plan) -> list[tuple[object, ...]]:
    """What of a plan somebody would act on."""
    return [(each.site, each.role, each.shape, each.depth, each.accumulation) for each in plan.sites]
