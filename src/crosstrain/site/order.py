"""From leased positions to windows: the site's half of the interval ledger."""

from __future__ import annotations

from array import array
from collections.abc import Iterable

from crosstrain.domain.block import Corpus
from crosstrain.domain.permutation import epoch_order
from crosstrain.domain.phase import WindowRange


class BlockOrder:
    """Maps positions of an epoch to blocks; keeps the order of one epoch, 4 M bytes."""

    def __init__(self, corpus: Corpus, seed: int) -> None:
        self._corpus = corpus
        self._seed = seed
        self._epoch = -1
        self._order: array[int] = array("I")

    def windows(self, spans: Iterable[tuple[int, int, int]]) -> tuple[WindowRange, ...]:
        """The blocks of (epoch, start, stop) spans, in the order of training."""
        return tuple(
            self._corpus.block(self._block(epoch, position))
            for epoch, start, stop in spans
            for position in range(start, stop)
        )

    def _block(self, epoch: int, position: int) -> int:
        if epoch != self._epoch:
            self._order = epoch_order(self._corpus.blocks, self._seed, epoch)
            self._epoch = epoch
        return self._order[position]


def first_blocks(spans: Iterable[tuple[int, int, int]], blocks: int) -> tuple[tuple[int, int, int], ...]:
    """The first `blocks` blocks of (epoch, start, stop) spans."""
    found: list[tuple[int, int, int]] = []
    for epoch, start, stop in spans:
        end = min(stop, start + blocks)
        if end > start:
            found.append((epoch, start, end))
            blocks -= end - start
    return tuple(found)
