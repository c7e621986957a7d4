"""What a person sees while the demo runs: a live view on a terminal, otherwise lines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from crosstrain.dashboard.terminal import render
from crosstrain.wire.messages import GenerationStatus, StatusReply

FRAME_LINES = 5
"""Lines of the live view beside the status and the faults: a title, and room for two faults that need two lines."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that the demo did to its run, `t_s` seconds after the first process was started."""

    t_s: float
    what: str


@dataclass(frozen=True, slots=True)
class Frame:
    """One look at the run; `status` is the newest that was had, and `reachable` whether it is of this moment."""

    t_s: float
    status: StatusReply | None
    reachable: bool
    faults: tuple[Fault, ...]


class Watcher(Protocol):
    """Shows frames."""

    def show(self, frame: Frame) -> None: ...


class LiveView:
    """Redraws one view in place."""

    def __init__(self, live: Live) -> None:
        self._live = live

    def show(self, frame: Frame) -> None:
        self._live.update(_picture(frame), refresh=True)


class Lines:
    """Prints a line for each generation and each fault."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._generations = 0
        self._faults = 0

    def show(self, frame: Frame) -> None:
        for fault in frame.faults[self._faults :]:
            self._say(fault.t_s, fault.what)
        self._faults = len(frame.faults)
        if frame.status is None:
            return
        for record in frame.status.generations[self._generations :]:
            newest = record.generation == frame.status.generation
            if record.loss is None and newest:
                return  # its measure comes in a moment
            self._say(frame.t_s, _generation_line(record, frame.status.rounds))
            self._generations += 1

    def _say(self, t_s: float, sentence: str) -> None:
        self._console.print(Text(f"{t_s:6.1f} s  {sentence}"), soft_wrap=True)


def _generation_line(record: GenerationStatus, rounds: int) -> str:
    sites = "1 site" if record.contributions == 1 else f"{record.contributions} sites"
    origin = f"from {sites}" if record.generation else "from the seed"
    quality = "" if record.perplexity is None else f", held-out perplexity {record.perplexity:,.1f}"
    return f"generation {record.generation} of {rounds} {origin}, {record.tokens:,} tokens{quality}"


def fault_table(faults: tuple[Fault, ...]) -> RenderableType:
    """The faults with their times."""
    table = Table.grid(padding=(0, 2))
    table.add_column(justify="right", style="dim", no_wrap=True)
    table.add_column()
    for fault in faults:
        table.add_row(f"{fault.t_s:.1f} s", Text(fault.what))
    return table


def _picture(frame: Frame) -> RenderableType:
    parts: list[RenderableType] = []
    if frame.status is None:
        parts.append(Text(f"The processes are starting ({frame.t_s:.0f} s).", "dim"))
    else:
        parts.append(render(frame.status, below=len(frame.faults) + FRAME_LINES))
    if frame.faults:
        parts += [Text(), Rule(Text("what the demo did", "bold"), align="left", style="dim"), fault_table(frame.faults)]
    if frame.status is not None and not frame.reachable:
        parts.append(Text("The coordinator does not answer; the sites try again until it does.", "bold red"))
    return Group(*parts)
