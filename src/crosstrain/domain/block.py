"""States of a block and the legal arrows between them (guarantee G1)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from crosstrain.domain.events import EventKind
from crosstrain.domain.phase import WindowRange


class BlockState(StrEnum):
    AVAILABLE = "available"
    LEASED = "leased"
    CONTRIBUTED = "contributed"
    MERGED = "merged"

    @property
    def owned(self) -> bool:
        """Whether a block in this state belongs to a lease."""
        return self in (BlockState.LEASED, BlockState.CONTRIBUTED)


TRANSITIONS: dict[EventKind, tuple[BlockState, BlockState]] = {
    EventKind.GRANTED: (BlockState.AVAILABLE, BlockState.LEASED),
    EventKind.EXPIRED: (BlockState.LEASED, BlockState.AVAILABLE),
    EventKind.RELEASED: (BlockState.LEASED, BlockState.AVAILABLE),
    EventKind.REFUSED: (BlockState.LEASED, BlockState.AVAILABLE),
    EventKind.SHED: (BlockState.LEASED, BlockState.AVAILABLE),
    EventKind.CONTRIBUTED: (BlockState.LEASED, BlockState.CONTRIBUTED),
    EventKind.MERGED: (BlockState.CONTRIBUTED, BlockState.MERGED),
    EventKind.DROPPED: (BlockState.CONTRIBUTED, BlockState.AVAILABLE),
}
"""What each event of a block's history does. There is no other way to change a block."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """The cut of N windows into M blocks of K.

    Attributes:
        windows: N.
        block_windows: K.
    """

    windows: int
    block_windows: int

    @property
    def blocks(self) -> int:
        """M = ceil(N / K); the last block may be short."""
        return -(-self.windows // self.block_windows)

    def block(self, number: int) -> WindowRange:
        """The windows of a block."""
        first = number * self.block_windows
        return WindowRange(first, min(self.block_windows, self.windows - first))

    def window_counts(self, blocks: int) -> frozenset[int]:
        """How many windows `blocks` blocks can have, with or without the short last one."""
        full = blocks * self.block_windows
        return frozenset({full, full - (self.blocks * self.block_windows - self.windows)})
