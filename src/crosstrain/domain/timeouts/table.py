"""The whole table for a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from crosstrain.domain.timeouts.circumstances import Circumstances
from crosstrain.domain.timeouts.flower import of_flower
from crosstrain.domain.timeouts.mailbox import of_mailboxes
from crosstrain.domain.timeouts.programs import of_doctors, of_schedulers, of_trainers
from crosstrain.domain.timeouts.requests import of_commands, of_sites
from crosstrain.domain.timeouts.rounds import of_leases, of_rounds
from crosstrain.domain.timeouts.row import Timeout
from crosstrain.domain.timeouts.server import of_coordinators, of_databases
from crosstrain.domain.timeouts.transfers import of_blobs, of_stores

Rows = Callable[[Circumstances], tuple[Timeout, ...]]
TOPICS: dict[str, Rows] = {
    "requests": of_sites,
    "transfers": of_blobs,
    "leases": of_leases,
    "rounds and jobs": of_rounds,
    "object store": of_stores,
    "mailbox": of_mailboxes,
    "Flower": of_flower,
    "coordinator": of_coordinators,
    "database": of_databases,
    "programs": of_trainers,
    "batch systems": of_schedulers,
    "commands": of_commands,
    "doctor": of_doctors,
}


def derive(found: Circumstances) -> tuple[Timeout, ...]:
    """All rows, topic by topic."""
    return tuple(replace(row, topic=topic) for topic, rows in TOPICS.items() for row in rows(found))
