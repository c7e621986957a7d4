"""How a transfer is dealt out: which bytes the next request moves, and how many at once."""

from __future__ import annotations

from collections.abc import Sequence

from crosstrain.domain.byte_ranges import ByteRanges, Span

PART_BYTES = 16 << 20
"""Body of one request: small enough for proxies with a size limit, large enough that its round trip is noise."""
LEAST_BYTES = 1 << 18
"""Below this a part's round trips and headers would cost more than the bytes that a cut loses."""
EVEN_BYTES = 2 << 20
"""Parts get smaller towards the end, so that all streams end together, but not below this."""
GROW_AFTER = 4
"""Parts in a row that must pass before larger ones are tried again."""


class PartSize:
    """The largest part that the way seems to let through.

    Args:
        most, least: bytes.
    """

    def __init__(self, most: int, least: int) -> None:
        self._most, self._least = most, least
        self._passed = 0
        self.now = most

    def passed(self) -> None:
        self._passed += 1
        if self._passed >= GROW_AFTER:
            self.now, self._passed = min(self._most, 2 * self.now), 0

    def cut(self, length: int) -> None:
        """The line broke within a part of that length."""
        self._passed = 0
        if length <= self.now:  # parts that began before it shrank say nothing new
            self.now = max(self._least, min(self.now, length) // 2)

    def too_large(self, length: int) -> bool:
        """A part of that length was refused for its size, as every one will be; False if it cannot be smaller."""
        if length <= self._least:
            return False
        self._most = max(self._least, length // 2)
        self.now, self._passed = min(self.now, self._most), 0
        return True


class Shares:
    """The bytes of one blob: there, on their way, or to be dealt out."""

    def __init__(self, total: int, held: ByteRanges, streams: int) -> None:
        self.total, self.held = total, held
        self._streams = streams
        self._busy: list[Span] = []

    @property
    def complete(self) -> bool:
        return self.held.covers(0, self.total)

    def take(self, size: int) -> Span | None:
        """The next bytes to move, at most `size`; None if all are there or on their way."""
        spoken_for = ByteRanges.of((*self.held.spans, *self._busy))
        free = list(spoken_for.missing(0, self.total))
        if not free:
            return None
        even = max(EVEN_BYTES, sum(stop - start for start, stop in free) // (2 * self._streams))
        start, stop = free[0]
        span = (start, min(stop, start + min(size, even)))
        self._busy.append(span)
        return span

    def settle(self, span: Span, held: ByteRanges) -> None:
        """A request for that span is over; `held` is what is known to be there by now."""
        self._busy.remove(span)
        self.held = held


class FixedShares(Shares):
    """Bytes that somebody else cut into parts, each of which is moved whole.

    Args:
        spans: what is missing, or some of it; the rest counts as held.
    """

    def __init__(self, total: int, spans: Sequence[Span]) -> None:
        held = ByteRanges()
        for start, stop in ByteRanges.of(spans).missing(0, total):
            held = held.add(start, stop)
        super().__init__(total, held, 1)
        self._spans = tuple(spans)

    def take(self, _size: int) -> Span | None:
        for span in self._spans:
            if span not in self._busy and not self.held.covers(*span):
                self._busy.append(span)
                return span
        return None
