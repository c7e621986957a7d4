"""Stealing, by request only: the holder of the largest untouched tail is asked, and its answer moves the tail (G3).

Nothing is taken: until the answer is in, every block of the lease is the holder's. A holder that answers has already
stopped itself before the blocks it gives up, so a lost answer costs the tail a detour and never a second training.
"""

from __future__ import annotations

from sqlalchemy import Connection

from crosstrain.coordinator.service import Service
from crosstrain.domain import ledger
from crosstrain.domain.block import BlockState
from crosstrain.domain.ids import Instant, SessionId, SiteName, Token
from crosstrain.domain.lease import LeaseState, Tail, whom_to_ask
from crosstrain.domain.plural import counted
from crosstrain.storage import lease_store, ledger_store, run_store, site_store


def ask_for_a_tail(service: Service, connection: Connection, asker: SiteName) -> None:
    """Remembers whom to ask, if anybody's tail is worth it; the holder hears of it in its next heartbeat's reply."""
    live = lease_store.in_state(connection, LeaseState.LIVE)
    with service.presences.lock:
        trained = {seen.session: seen.beat.blocks for seen in service.presences.sessions.values()}
        sent = {seen.beat.sending for seen in service.presences.sessions.values()}
        tails = [
            Tail(lease.token, lease.blocks - trained[lease.session])
            for lease in live
            if lease.session in trained and lease.site != asker and lease.token not in sent
        ]
        token = whom_to_ask(tails, service.presences.shedding)
        if token is not None:
            service.presences.shedding[token] = asker


def is_asked(service: Service, token: Token) -> bool:
    """Whether the holder of this lease is to shed a part of it."""
    with service.presences.lock:
        return token in service.presences.shedding


def take_answer(service: Service, session: SessionId, token: Token, kept: int, now: Instant) -> None:
    """The holder keeps the first `kept` blocks; the rest is available. An answer that comes twice, late, or from a
    session that does not hold the lease changes nothing."""
    with service.database.write() as connection:
        lease = lease_store.find(connection, token)
        if lease is None or lease.state is not LeaseState.LIVE or lease.session != session:
            return
        with service.presences.lock:
            asker = service.presences.shedding.pop(token, None)
        if not 1 <= kept < lease.blocks:
            return
        held = ledger_store.held(connection, token)
        tail = ledger.split(held, kept)[1]
        change = ledger.shed(held, kept, ledger_store.neighbours(connection, tail, BlockState.AVAILABLE))
        ledger_store.apply(connection, change)
        lease_store.shorten(connection, lease, kept)
        site_store.add_totals(connection, lease.site, shed_blocks=change.blocks)
        reason = f"{lease.site} gave up {counted(change.blocks, 'untouched block')} for {asker or 'another site'}"
        run_store.log_change(connection, change, token, lease.site, session, lease.generation, reason, now)
