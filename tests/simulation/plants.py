"""Faults planted into production code, one at a time: proof that the invariants can fail.

Each plant patches the smallest piece that makes the mistake its name tells. Nothing of the simulation is patched.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pytest import MonkeyPatch

from crosstrain.coordinator import contributions, heartbeats, leases, publisher, rounds, sessions, shedding, tick
from crosstrain.domain import block, contribution, ledger
from crosstrain.domain.block import BlockState
from crosstrain.domain.events import EventKind
from crosstrain.domain.ids import Instant
from crosstrain.domain.lease import LeaseState
from crosstrain.site import agent, inner_phase, order, phase_ahead
from crosstrain.storage import database, lease_store, ledger_store, run_store, upload

Plant = Callable[[MonkeyPatch], None]


def ended_lease_contributes(patch: MonkeyPatch) -> None:
    judge = contribution.judge_claim

    def forgiving(claim, lease, *rest):  # type: ignore[no-untyped-def]
        return judge(claim, replace(lease, state=LeaseState.LIVE), *rest)

    def record_as_live(service, connection, claim, lease, *rest):  # type: ignore[no-untyped-def]
        if lease.state is not LeaseState.LIVE:
            connection.execute(
                lease_store.update(lease_store.schema.leases)
                .where(lease_store.schema.leases.c.token == lease.token)
                .values(state="live")
            )
        return record(service, connection, claim, replace(lease, state=LeaseState.LIVE), *rest)

    record = contributions._record
    patch.setattr(contributions, "judge_claim", forgiving)
    patch.setattr(contributions, "_record", record_as_live)


def token_is_not_checked(patch: MonkeyPatch) -> None:
    def anybody(connection, session):  # type: ignore[no-untyped-def]
        return str(sessions.site_store.session(connection, session)["site"])

    def any_lease(connection, token, session):  # type: ignore[no-untyped-def]
        return lease_store.find(connection, token)

    def never_over(database, session, token):  # type: ignore[no-untyped-def]
        found = standing(database, session, token)
        return found and replace(found, end_reason=None)

    def asking_never_over(connection, session):  # type: ignore[no-untyped-def]
        found = asking(connection, session)
        return found and replace(found, end_reason=None)

    standing, asking = heartbeats.standing, sessions.asking
    patch.setattr(heartbeats, "standing", never_over)
    patch.setattr(sessions, "asking", asking_never_over)
    patch.setattr(sessions, "require_open_session", anybody)
    patch.setattr(leases, "require_own_lease", any_lease)


def lease_expires_early(patch: MonkeyPatch) -> None:
    def deadline(presence, ttl_ms, patience):  # type: ignore[no-untyped-def]
        return Instant(presence.seen_at + ttl_ms // 4)

    patch.setattr(heartbeats.site, "deadline", deadline)


def restart_gives_no_grace(patch: MonkeyPatch) -> None:
    def none(service, now):  # type: ignore[no-untyped-def]
        with service.database.read() as connection:
            for lease in lease_store.in_state(connection, LeaseState.LIVE):
                service.presences.deadlines.setdefault(lease.token, Instant(lease.granted_at + lease.ttl_ms))

    patch.setattr(tick.leases, "grant_grace", none)


def tail_is_taken_without_an_answer(patch: MonkeyPatch) -> None:
    def take(service, connection, asker):  # type: ignore[no-untyped-def]
        for lease in lease_store.in_state(connection, LeaseState.LIVE):
            if lease.site != asker and lease.blocks > 1:
                held = ledger_store.held(connection, lease.token)
                tail = ledger.split(held, lease.blocks // 2)[1]
                if tail:
                    near = ledger_store.neighbours(connection, tail, BlockState.AVAILABLE)
                    change = ledger.shed(held, lease.blocks // 2, near)
                    ledger_store.apply(connection, change)
                    run_store.log_change(
                        connection,
                        change,
                        lease.token,
                        lease.site,
                        lease.session,
                        lease.generation,
                        "taken",
                        Instant(0),
                    )

    patch.setattr(shedding, "ask_for_a_tail", take)


def blocks_commit_before_the_model(patch: MonkeyPatch) -> None:
    publish = publisher.publish

    def early(service, parent, rows, now):  # type: ignore[no-untyped-def]
        with service.database.write() as connection:
            for row in rows:
                publisher._commit_blocks(connection, row, replace(parent, number=parent.number + 1), now)
        with patch.context() as inner:
            inner.setattr(publisher, "_commit_blocks", lambda *_: None)
            return publish(service, parent, rows, now)

    patch.setattr(rounds.publisher, "publish", early)


def contribution_is_merged_twice(patch: MonkeyPatch) -> None:
    recipe_of = publisher.recipe_of

    def doubled(parent, rows, hyper, wire):  # type: ignore[no-untyped-def]
        return recipe_of(parent, [*rows, rows[0]], hyper, wire)

    def publish(service, parent, rows, now):  # type: ignore[no-untyped-def]
        with patch.context() as inner:
            inner.setattr(publisher, "recipe_of", doubled)
            return original(service, parent, rows, now)

    original = publisher.publish
    patch.setattr(rounds.publisher, "publish", publish)


def prefix_counts_as_whole(patch: MonkeyPatch) -> None:
    def whole(held, blocks, neighbours=()):  # type: ignore[no-untyped-def]
        return ledger.settle(held, {EventKind.CONTRIBUTED: held}, ())

    patch.setattr(contributions, "contribute", whole)


def short_last_block_is_dropped(patch: MonkeyPatch) -> None:
    patch.setattr(block.Corpus, "blocks", property(lambda self: max(1, self.windows // self.block_windows)))


def epoch_rolls_over_too_early(patch: MonkeyPatch) -> None:
    def hopeful(connection, epoch=None):  # type: ignore[no-untyped-def]
        found = counts(connection, epoch)
        if found[BlockState.AVAILABLE] == 1:
            return {**found, BlockState.MERGED: found[BlockState.MERGED] + 1, BlockState.AVAILABLE: 0}
        return found

    counts = ledger_store.counts
    patch.setattr(ledger_store, "counts", hopeful)


def cutoff_leaves_leases_out(patch: MonkeyPatch) -> None:
    def close(connection, generation, reason, now):  # type: ignore[no-untyped-def]
        run_store.close_round(connection, generation, reason, now)

    def any_base(claim, lease, current, *rest):  # type: ignore[no-untyped-def]
        return judge(claim, lease, claim.generation, *rest)

    judge = contribution.judge_claim
    patch.setattr(rounds, "_close", close)
    patch.setattr(contributions, "judge_claim", any_base)


def site_trains_other_blocks(patch: MonkeyPatch) -> None:
    windows = order.BlockOrder.windows

    def shifted(self, spans):  # type: ignore[no-untyped-def]
        found = windows(self, spans)
        return found[:1] * len(found)

    patch.setattr(order.BlockOrder, "windows", shifted)


def resumed_phase_begins_again(patch: MonkeyPatch) -> None:
    def resume(self, lease, saved):  # type: ignore[no-untyped-def]
        return self._begin(lease, saved.base)

    patch.setattr(inner_phase.InnerPhase, "resume", resume)


def site_keeps_its_own_weights(patch: MonkeyPatch) -> None:
    def adopt(self, reply):  # type: ignore[no-untyped-def]
        if self._base is None:
            return original(self, reply)
        path = self._p.spool.base(reply.weights)
        self._p.blobs.download(reply.weights, path, self._p.api.deadline_s, lambda *_: None)
        return self._adopted(reply.generation, reply.weights, {})

    def plan(self):  # type: ignore[no-untyped-def]
        return replace(planned(self), generation=self._p.link._trainer.position.generation)

    original, planned = agent.Agent._adopt, inner_phase.InnerPhase._plan
    patch.setattr(agent.Agent, "_adopt", adopt)
    patch.setattr(inner_phase.InnerPhase, "_plan", plan)


class Anything:
    """Equal to every digest."""

    def __ne__(self, other: object) -> bool:
        return False


def blob_is_not_verified(patch: MonkeyPatch) -> None:
    patch.setattr(upload.PrefixHash, "hexdigest", lambda _self: Anything())
    patch.setattr(contributions, "_look_at_delta", lambda *_: contributions.summarize_delta(iter(())))


def steps_of_all_sites_add_up(patch: MonkeyPatch) -> None:
    patch.setattr(publisher, "max", sum, raising=False)


def old_coordinator_still_writes(patch: MonkeyPatch) -> None:
    write = database.Database.write

    def unfenced(self):  # type: ignore[no-untyped-def]
        self._term = None
        return write(self)

    patch.setattr(database.Database, "write", unfenced)


def expired_lease_stays_live(patch: MonkeyPatch) -> None:
    end = lease_store.end

    def lazy(connection, lease, state, reason, now):  # type: ignore[no-untyped-def]
        if state is not LeaseState.EXPIRED:
            end(connection, lease, state, reason, now)

    patch.setattr(lease_store, "end", lazy)


def released_blocks_stay_leased(patch: MonkeyPatch) -> None:
    move = ledger.move

    def stay(held, kind, neighbours=()):  # type: ignore[no-untyped-def]
        if kind is EventKind.RELEASED:
            return ledger.Change((), (), ())
        return move(held, kind, neighbours)

    patch.setattr(sessions, "move", stay)


def phase_ahead_has_what_came_before_it(patch: MonkeyPatch) -> None:
    def plan(self):  # type: ignore[no-untyped-def]
        return replace(planned(self), ahead=False)

    planned = phase_ahead.PhaseAhead._plan
    patch.setattr(phase_ahead.PhaseAhead, "_plan", plan)


def phase_ahead_is_not_moved(patch: MonkeyPatch) -> None:
    def segment(self):  # type: ignore[no-untyped-def]
        if self._movable:
            self._ahead = False
            return self._adopt_unmoved()
        return inner_phase.InnerPhase._segment(self)

    def adopt_unmoved(self):  # type: ignore[no-untyped-def]
        arrived = self._overlap.arrived
        path = self._p.spool.base(arrived.weights)
        value = {"nll": 0.0, "tokens": 0}
        return self._machine.command(
            "load", lambda _: self._moved(value), path=str(path), generation=arrived.generation
        )

    patch.setattr(phase_ahead.PhaseAhead, "_segment", segment)
    patch.setattr(phase_ahead.PhaseAhead, "_adopt_unmoved", adopt_unmoved, raising=False)


PLANTS: dict[str, tuple[Plant, frozenset[str], int]] = {
    "a lease that is over contributes": (ended_lease_contributes, frozenset({"G1", "G2", "audit"}), 74),
    "the token is not checked in the write": (token_is_not_checked, frozenset({"G2", "G3"}), 30),
    "leases expire early": (lease_expires_early, frozenset({"G8"}), 0),
    "a restart gives no grace": (restart_gives_no_grace, frozenset({"G8"}), 8),
    "a tail is taken without the holder's answer": (tail_is_taken_without_an_answer, frozenset({"G2", "audit"}), 15),
    "blocks are committed before the model": (blocks_commit_before_the_model, frozenset({"G1", "G2", "audit"}), 34),
    "a contribution is merged twice": (contribution_is_merged_twice, frozenset({"audit"}), 0),
    "a prefix counts as the whole lease": (prefix_counts_as_whole, frozenset({"G2"}), 13),
    "the short last block is dropped": (short_last_block_is_dropped, frozenset({"G2", "audit"}), 2),
    "the epoch rolls over with a block left": (epoch_rolls_over_too_early, frozenset({"G2"}), 23),
    "the cutoff leaves leases out": (cutoff_leaves_leases_out, frozenset({"G2", "audit", "liveness"}), 19),
    "a site trains other blocks than its own": (site_trains_other_blocks, frozenset({"G2"}), 0),
    "a resumed phase begins again": (resumed_phase_begins_again, frozenset({"G2"}), 51),
    "a site goes on from its own weights": (site_keeps_its_own_weights, frozenset({"G2"}), 0),
    "a damaged blob is taken": (blob_is_not_verified, frozenset({"audit", "crash"}), 10),
    "steps of all sites add up": (steps_of_all_sites_add_up, frozenset({"audit"}), 0),
    "an old coordinator still writes": (
        old_coordinator_still_writes,
        frozenset({"G8", "G1", "G2", "G4", "liveness"}),
        120,
    ),
    "an expired lease stays live": (expired_lease_stays_live, frozenset({"G1", "G2", "liveness"}), 2),
    "released blocks stay leased": (released_blocks_stay_leased, frozenset({"G1"}), 2),
    "a phase ahead has in it what came before it": (phase_ahead_has_what_came_before_it, frozenset({"G2"}), 1),
    "a phase ahead is dropped for the generation": (phase_ahead_is_not_moved, frozenset({"G2"}), 0),
}
