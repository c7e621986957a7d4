"""Which bytes of a blob are there, when they may come in any order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

Span = tuple[int, int]
"""(first byte, byte behind the last)."""


@dataclass(frozen=True, slots=True)
class ByteRanges:
    """A set of bytes.

    Attributes:
        spans: ascending, not empty, with a gap between any two.
    """

    spans: tuple[Span, ...] = ()

    @classmethod
    def of(cls, spans: Iterable[Iterable[int]]) -> ByteRanges:
        """From pairs in any order, which may overlap.

        Raises:
            ValueError: one is no pair of ascending numbers.
        """
        ranges = cls()
        for start, stop in spans:
            ranges = ranges.add(start, stop)
        return ranges

    def add(self, start: int, stop: int) -> ByteRanges:
        """With the bytes from `start` to before `stop`.

        Raises:
            ValueError: the numbers do not ascend.
        """
        if not 0 <= start <= stop:
            raise ValueError(f"expected 0 <= start <= stop, found {start} and {stop}")
        if start == stop:
            return self
        before = [span for span in self.spans if span[1] < start]
        after = [span for span in self.spans if span[0] > stop]
        touched = self.spans[len(before) : len(self.spans) - len(after)]
        if touched:
            start, stop = min(start, touched[0][0]), max(stop, touched[-1][1])
        return ByteRanges((*before, (start, stop), *after))

    def union(self, other: ByteRanges) -> ByteRanges:
        return ByteRanges.of((*self.spans, *other.spans))

    def missing(self, start: int, stop: int) -> Iterator[Span]:
        """What lies between `start` and `stop` and is not there, ascending."""
        for first, last in self.spans:
            if last <= start:
                continue
            if first >= stop:
                break
            if first > start:
                yield start, first
            start = last
        if start < stop:
            yield start, stop

    def covers(self, start: int, stop: int) -> bool:
        return not any(self.missing(start, stop))

    @property
    def length(self) -> int:
        """Number of bytes that are there."""
        return sum(stop - start for start, stop in self.spans)

    @property
    def prefix(self) -> int:
        """Number of bytes that are there without a gap from the first one on."""
        return self.spans[0][1] if self.spans and self.spans[0][0] == 0 else 0
