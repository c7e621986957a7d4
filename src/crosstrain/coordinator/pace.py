"""How fast the round goes: what every site could take, and when the round can be expected to close."""

from __future__ import annotations

from sqlalchemy import Connection

from crosstrain.coordinator.service import Service
from crosstrain.domain import lease as lease_rules
from crosstrain.domain.ids import Generation, Instant, SiteName
from crosstrain.domain.lease import Demand, Lease, LeaseState, Pace
from crosstrain.domain.site import APART
from crosstrain.storage import lease_store, site_store


def demand(service: Service, site: SiteName, windows_per_step: int, rate: float | None) -> Demand:
    """What a site can take, by what is stored of it."""
    steps, block_windows = service.config.inner.steps, service.corpus.block_windows
    return Demand(site, lease_rules.full_phase_blocks(steps, windows_per_step, block_windows), rate)


def of_round(
    service: Service, connection: Connection, generation: Generation, begun_at: Instant, asking: SiteName, now: Instant
) -> Pace:
    """The open round's pace, by a new look if the last one is too old."""
    if service.pace is not None and service.pace.holds(generation, now):
        return service.pace
    demands = _demands(service, connection)
    present = _present(service) | {asking}
    close = lease_rules.expected_close(
        begun_at,
        [
            (lease, demands[lease.site].rate if lease.site in demands else None)
            for lease in lease_store.in_state(connection, LeaseState.LIVE)
            if lease.generation == generation
        ],
        [each for site, each in demands.items() if site in present],
    )
    service.pace = Pace(generation, now, close, max(each.full_blocks for each in demands.values()))
    return service.pace


def others(service: Service, connection: Connection, asking: SiteName) -> list[Demand]:
    """What the other sites could take that hold no lease now."""
    holders = {lease.site for lease in lease_store.in_state(connection, LeaseState.LIVE)}
    wanting = _present(service) - holders - {asking}
    return [each for site, each in _demands(service, connection).items() if site in wanting]


def note_lease(service: Service, lease: Lease, rate: float | None) -> None:
    """A lease was granted since the last look."""
    if service.pace is not None and service.pace.generation == lease.generation and rate:
        service.pace = service.pace.including(Instant(round(lease.granted_at + 1000 * lease.blocks / rate)))


def _demands(service: Service, connection: Connection) -> dict[SiteName, Demand]:
    rows = site_store.sites(connection)
    demands = [demand(service, SiteName(row["name"]), row["windows_per_step"], row["rate"]) for row in rows]
    return {each.site: each for each in demands}


def _present(service: Service) -> set[SiteName]:
    """The sites that take part in the round."""
    with service.presences.lock:
        return {seen.site for seen in service.presences.sessions.values() if seen.beat.phase not in APART}
