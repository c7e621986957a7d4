"""Pictures made of characters: they carry their meaning in their shape, so colour may be missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.text import Text

SPARKS = "▁▂▃▄▅▆▇█"
LEAST_WIDTH = 6


@dataclass(frozen=True, slots=True)
class Part:
    """One stretch of a bar.

    Attributes:
        plain: stands for `glyph` where the output has ASCII only.
    """

    amount: int
    glyph: str
    plain: str
    style: str


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar of `width` characters, or of all the room there is."""

    parts: tuple[Part, ...]
    width: int | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = min(self.width or options.max_width, options.max_width)
        text = Text(no_wrap=True)
        for part, cells in zip(self.parts, share([part.amount for part in self.parts], width), strict=True):
            text.append((part.plain if options.ascii_only else part.glyph) * cells, part.style)
        yield text

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        widest = min(self.width or options.max_width, options.max_width)
        return Measurement(min(self.width or LEAST_WIDTH, widest), widest)


def share(amounts: Sequence[int], width: int) -> list[int]:
    """Cells of each amount, `width` in all; whatever is not zero gets at least one where there is room for that."""
    total = sum(amounts)
    if total <= 0 or width <= 0:
        return [0] * len(amounts)
    ends = [width * sum(amounts[: end + 1]) // total for end in range(len(amounts))]
    cells = [end - start for start, end in zip([0, *ends], ends, strict=False)]
    for index, amount in enumerate(amounts):
        largest = max(range(len(cells)), key=cells.__getitem__)
        if amount > 0 and not cells[index] and cells[largest] > 1:
            cells[index], cells[largest] = 1, cells[largest] - 1
    return cells


def done_of(done: int, total: int, width: int) -> Bar:
    """How far something is; an empty bar while `total` is not known."""
    done = min(max(done, 0), total)
    rest = max(1, total - done) if total <= 0 else total - done
    return Bar((Part(done, "█", "#", "green"), Part(rest, "░", ".", "dim")), width)


def sparkline(values: Sequence[float], width: int) -> str:
    """The newest `width` values as a line of small bars, the lowest of them at the bottom."""
    shown = values[-width:]
    if len(shown) < 2:
        return ""
    low, high = min(shown), max(shown)
    scale = (len(SPARKS) - 1) / (high - low) if high > low else 0.0
    return "".join(SPARKS[round((value - low) * scale)] for value in shown)
