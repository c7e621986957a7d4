"""One look at a scheduler: what it says, and notes on what it does not. Asks, and decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC

from crosstrain.batch.printed import Output
from crosstrain.batch.readings import Failure, JobRow, Listing, PartitionRow, Reservation, Retry, Row
from crosstrain.batch.scheduler import BatchSystem
from crosstrain.batch.slurm import accounting, limits, nodes
from crosstrain.batch_section import BatchSection
from crosstrain.collector.eligible import Rules
from crosstrain.collector.facts import Facts
from crosstrain.domain.ids import Instant
from crosstrain.domain.plural import counted

HISTORY_S = 48 * 3600
"""How far back accounting is read: the usage discount is that of the last two days."""


@dataclass(slots=True)
class Look:
    """What was seen.

    Attributes:
        queue: all jobs that may be seen.
        nodes: per partition and state; empty if not known.
        rules: what the site allows.
        history: rows of accounting of the last two days; None if there is none.
        reservations: of nodes.
        notes: what could not be seen, for people.
    """

    queue: Listing[JobRow]
    nodes: tuple[PartitionRow, ...] = ()
    rules: Rules = field(default_factory=Rules)
    history: tuple[JobRow, ...] | None = None
    reservations: tuple[Reservation, ...] = ()
    notes: list[str] = field(default_factory=list)

    @property
    def answered(self) -> bool:
        """Whether there is a scheduler to ask more."""
        return self.queue.failure is None


def take_look(
    system: BatchSystem, facts: Facts, section: BatchSection, user: str | None, now: Instant, history: bool
) -> Look:
    """Asks for the queue and, of Slurm, for nodes, limits and accounting. After a queue that did not answer nothing else is
    asked: each command of an absent controller takes its whole time-out.

    Args:
        history: whether accounting is read too.
    """
    look = Look(system.queue())
    _note(look, "the queue", look.queue)
    if section.scheduler != "slurm":
        look.notes.append(f"{section.scheduler} has no dry run: waits are known from history alone")
        return look
    if not look.answered:
        # What it said before still forbids what it forbade.
        look.rules = _rules(Look(look.queue), facts.kept, user)
        return look
    found = nodes.read_nodes(system.ask(nodes.COMMAND), given=tuple(name for _, name in nodes.FIELDS))
    _note(look, "the state of the nodes (sinfo)", found)
    look.nodes = nodes.partition_rows(found)
    look.rules = _rules(look, facts.ask, user)
    reservations = limits.read_reservations(facts.ask("reservations", limits.RESERVATIONS), UTC)
    look.reservations = reservations.rows
    if history:
        look.history = _history(look, system, section, now)
    return look


def _rules(look: Look, ask: Callable[[str, Sequence[str]], Output], user: str | None) -> Rules:
    partitions = limits.read_partitions(ask("partitions", limits.PARTITIONS))
    _note(look, "partitions (scontrol)", partitions)
    qos = limits.read_qos(ask("qos", limits.qos_command()))
    _note(look, "limits of QoS (sacctmgr)", qos)
    if user is None or qos.failure is not None:
        return Rules(_rows(partitions), _rows(qos))
    own = limits.read_assoc(ask("associations", limits.assoc_command(user)))
    _note(look, "limits of the account (sacctmgr)", own)
    return Rules(_rows(partitions), _rows(qos), _rows(own))


def _history(look: Look, system: BatchSystem, section: BatchSection, now: Instant) -> tuple[JobRow, ...] | None:
    names = ",".join(sorted({shape.partition for shape in section.shapes}))
    command = [*accounting.accounting_command(now // 1000 - HISTORY_S), "-r", names]
    found = accounting.read_accounting(system.ask(command), UTC, given=accounting.COLUMNS)
    _note(look, "accounting (sacct)", found)
    return None if found.failure is not None else found.rows


def _rows(listing: Listing[Row]) -> tuple[Row, ...] | None:
    return None if listing.failure is not None else listing.rows


def _note(look: Look, what: str, listing: Listing[Row]) -> None:
    if listing.failure is not None:
        look.notes.append(f"{what} cannot be seen: {said(listing.failure)}")
    elif listing.problems:
        first = listing.problems[0]
        look.notes.append(
            f"{counted(len(listing.problems), 'line')} of {what} cannot be read, such as {first.text[:80]!r}"
        )


def said(failure: Failure) -> str:
    """A failure in words."""
    again = {Retry.LATER: ", later it may", Retry.MAYBE: ", later it might", Retry.NEVER: ""}[failure.retry]
    detail = f" ({failure.detail})" if failure.detail else ""
    return f"{failure.kind.replace('_', ' ')}{detail}{again}"
