"""Turns bytes and shards done into progress reports, a few a second at most."""

from __future__ import annotations

from collections.abc import Callable

from crosstrain.clock import Clock
from crosstrain.corpus.options import BuildProgress, Phase

_INTERVAL_S = 0.2


class Meter:
    """Counts one phase after the other."""

    def __init__(self, progress: Callable[[BuildProgress], None], clock: Clock) -> None:
        self._progress = progress
        self._clock = clock
        self._reported = float("-inf")
        self._reset("scanning", 0, 0)

    def begin(self, phase: Phase, total_bytes: int, total_shards: int) -> None:
        self._flush()
        self._reset(phase, total_bytes, total_shards)
        self._report()

    def _reset(self, phase: Phase, total_bytes: int, total_shards: int) -> None:
        self._phase: Phase = phase
        self._total_bytes, self._total_shards = total_bytes, total_shards
        self._done_bytes = self._reused_bytes = self._done_shards = self._reused_shards = 0
        self._started = self._clock.perf()
        self._pending = False

    def advance(self, count: int) -> None:
        self._done_bytes += count
        self._pending = True
        if self._clock.perf() - self._reported >= _INTERVAL_S:
            self._report()

    def finish_shard(self) -> None:
        self._done_shards += 1
        self.advance(0)

    def reuse_shard(self, count: int) -> None:
        """A shard that an earlier build had finished; it does not count in the rate."""
        self._reused_shards += 1
        self._reused_bytes += count
        self._done_shards += 1
        self.advance(count)

    def say(self, phase: Phase) -> None:
        """Reports an end; counts stay those of the last phase."""
        self._flush()
        self._phase = phase
        self._report()

    def _flush(self) -> None:
        """Reports how a phase ended, however short it was."""
        if self._pending:
            self._report()

    def _report(self) -> None:
        self._pending = False
        self._reported = self._clock.perf()
        elapsed = self._reported - self._started
        worked = self._done_bytes - self._reused_bytes
        self._progress(
            BuildProgress(
                phase=self._phase,
                done_bytes=min(self._done_bytes, self._total_bytes),
                total_bytes=self._total_bytes,
                done_shards=self._done_shards,
                total_shards=self._total_shards,
                reused_shards=self._reused_shards,
                elapsed_s=elapsed,
                rate=worked / elapsed if elapsed > 0 and worked > 0 else 0.0,
            )
        )
