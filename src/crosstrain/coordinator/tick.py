"""The coordinator's loop: step(now) expires leases, forgets silent sessions, closes rounds, in that
order, and removes blobs that are not needed."""

from __future__ import annotations

import logging
import threading

from crosstrain.clock import pause
from crosstrain.coordinator import garbage, leases, rounds, sessions
from crosstrain.coordinator.service import Service
from crosstrain.domain.ids import Instant
from crosstrain.domain.plural import counted
from crosstrain.domain.timeouts import COLLECT_S, FAULT_PAUSE_S, step_pause_s
from crosstrain.errors import EnvironmentFault, Superseded

log = logging.getLogger(__name__)

STALL_FACTOR = 0.5
"""A loop that was away for this fraction of the TTL floor stalled: every lease gets a full TTL. A shorter absence beyond the
planned pause is added to the deadlines. Either way silence in that time was not the sites' fault."""

REST = 4.0
"""Rest after a step, in lengths of the step: however many sites there are and however busy, looking takes a fifth of the time
at most."""


class Loop:
    """Runs `step` until stopped.

    Args:
        interval_s: planned pause between two steps; by default a quarter of the shortest lease, at most a second.
    """

    def __init__(self, service: Service, interval_s: float | None = None) -> None:
        self._service = service
        self._interval_s = step_pause_s(service.ttl_floor_ms / 1000) if interval_s is None else interval_s
        self._planned_s = self._interval_s
        self._stepped_at: Instant | None = None
        self._collected_at: Instant | None = None
        self._said = ""
        self.stopping = threading.Event()
        self.failure: Exception | None = None

    def step(self, now: Instant) -> bool:
        """One look at everything that time alone can change; whether a generation was published."""
        service = self._service
        self._excuse_silence(now)
        self._stepped_at = now
        leases.expire(service, now)
        self._forget_silent(now)
        record = rounds.close_if_due(service, now)
        if record is not None:
            log.info("generation %d published: %s", record.number, counted(record.contributions, "contribution"))
        elif service.barrier.reason != self._said:
            self._said = service.barrier.reason
            log.info("%s", self._said)
        self._collect(now)
        return record is not None

    def run(self) -> None:
        """Steps at every wake-up, and at least four times per shortest lease; wake-ups that come while it rests are one."""
        while not self.stopping.is_set():
            self._service.wake.clear()
            begun = self._service.clock.perf()
            published = False
            try:
                published = self.step(self._service.clock.now())
            except EnvironmentFault as error:
                # A full disk stops the merge, not the run: sites keep their work and their leases meanwhile.
                log.error("%s", error)
                pause(FAULT_PAUSE_S, self.stopping)
            except Superseded as error:
                self.failure = error
                return
            # A merge is no look: whoever rested four merges long would keep the next round waiting.
            rest = 0.0 if published else REST * (self._service.clock.perf() - begun)
            self._planned_s = rest + self._interval_s
            pause(rest, self.stopping)
            pause(self._interval_s, self._service.wake)

    def stop(self) -> None:
        self.stopping.set()
        self._service.wake.set()

    def _excuse_silence(self, now: Instant) -> None:
        """While the coordinator itself was away nobody could be heard (G8)."""
        away = None if self._stepped_at is None else now - self._stepped_at
        if away is None or away > STALL_FACTOR * self._service.ttl_floor_ms:
            leases.grant_grace(self._service, now)
        else:
            leases.add_to_deadlines(self._service, round(away - 1000 * self._planned_s))

    def _collect(self, now: Instant) -> None:
        """Removes blobs that are not needed; not before every site could be heard that is there."""
        if self._collected_at is None:
            self._collected_at = now
        if now - self._collected_at < max(round(1000 * COLLECT_S), self._service.silence_ms):
            return
        self._collected_at = now
        garbage.collect_for(self._service, now)

    def _forget_silent(self, now: Instant) -> None:
        service = self._service
        silence = service.silence_ms
        with service.presences.lock:
            silent = [number for number, seen in service.presences.sessions.items() if seen.seen_at + silence <= now]
        for session in silent:
            sessions.forget(service, session)
