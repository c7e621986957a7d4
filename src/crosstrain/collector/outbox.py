"""Reports on their way to the coordinator: kept in the site's directory until it has them.

A report is written before it is sent, so that a network that fails costs nothing but time. Its age grows meanwhile, and its id
makes it count once, however often it is sent.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from crosstrain.collector.journal import write_whole
from crosstrain.domain.ids import Instant
from crosstrain.domain.timeouts import REPORT_ANSWER_S
from crosstrain.errors import Refused, Unreachable
from crosstrain.wire.client import ControlClient
from crosstrain.wire.messages import Accepted
from crosstrain.wire.placement import ReportRequest

log = logging.getLogger(__name__)

MOST_KEPT = 500
"""Reports that wait for a network; beyond it the oldest are dropped."""


class Kept(BaseModel):
    """One report and when it was made, in UTC milliseconds of this machine."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    at: int
    report: ReportRequest


@dataclass(frozen=True, slots=True)
class Delivery:
    """What became of the reports.

    Attributes:
        delivered: that the coordinator has now.
        left: that still wait.
        trouble: why they wait; empty if none does.
        refused: what the coordinator said of reports that it does not take; they are set aside.
    """

    delivered: int
    left: int
    trouble: str = ""
    refused: tuple[str, ...] = ()


class Outbox:
    """The directory of reports that are not delivered."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def put(self, report: ReportRequest, now: Instant) -> None:
        """Keeps a report; it is on the disk on return."""
        waiting = self._waiting()
        for path in waiting[: max(0, len(waiting) + 1 - MOST_KEPT)]:
            log.warning("dropping %s: more than %d reports wait for the coordinator", path.name, MOST_KEPT)
            path.unlink(missing_ok=True)
        number = 1 + max((int(path.stem) for path in waiting), default=0)
        kept = Kept(at=now, report=report)
        write_whole(self._directory / f"{number:08}.json", kept.model_dump_json().encode())

    def deliver(self, client: ControlClient, site: str, now: Instant) -> Delivery:
        """Sends what waits, oldest first, until something is not answered."""
        delivered, refused = 0, list[str]()
        for path in self._waiting():
            try:
                kept = Kept.model_validate_json(path.read_bytes())
            except (OSError, ValidationError):
                path.replace(path.with_suffix(".damaged"))
                continue
            request = kept.report.model_copy(update={"age_ms": max(0, now - kept.at)})
            try:
                client.post(f"placement/{site}/reports", request, Accepted, REPORT_ANSWER_S)
            except Unreachable as error:
                return Delivery(delivered, len(self._waiting()), error.message, tuple(refused))
            except Refused as error:
                if error.kind != "malformed":
                    # A proxy's or an older coordinator's no says nothing of the report.
                    return Delivery(delivered, len(self._waiting()), error.message, tuple(refused))
                refused.append(error.message)
                path.replace(path.with_suffix(".refused"))
            else:
                delivered += 1
                path.unlink()
        return Delivery(delivered, 0, "", tuple(refused))

    def __len__(self) -> int:
        return len(self._waiting())

    def _waiting(self) -> list[Path]:
        return sorted(path for path in self._directory.glob("*.json") if path.stem.isdecimal())
