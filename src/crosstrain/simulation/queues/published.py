"""The logs that benchmarks replay, with the shapes that are probed. The logs are not part of the project."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from crosstrain.errors import UsageError
from crosstrain.simulation.queues.probes import HOUR_S, ProbeSpec

TRACES_VARIABLE = "CROSSTRAIN_TRACES"
CACHE_VARIABLE = "CROSSTRAIN_CACHE"


@dataclass(frozen=True, slots=True)
class Log:
    """A log and its probes.

    Attributes:
        file: its name in the directory of logs.
        nodes: nodes (or cores) of the replayed machine.
    """

    file: str
    nodes: int
    probes: ProbeSpec


THETA = Log(
    "theta-2022-first12k.swf.gz",
    4392,
    ProbeSpec(((128, 1 * HOUR_S), (128, 6 * HOUR_S), (512, 6 * HOUR_S), (1024, 12 * HOUR_S))),
)
MIRA = Log(
    "mira-2018-first12k.swf.gz",
    49152,
    ProbeSpec(((512, 1 * HOUR_S), (512, 6 * HOUR_S), (2048, 6 * HOUR_S), (8192, 12 * HOUR_S))),
)
CERIT = Log(
    "cerit-wagap-2013-first12k.swf.gz",
    1300,
    ProbeSpec(((16, 1 * HOUR_S), (16, 6 * HOUR_S), (64, 6 * HOUR_S), (128, 24 * HOUR_S))),
)
"""Cores, as one pool; fewer than the 2,176 of the machine, for its limits per cluster are not in the log and without them hardly a job waits."""
LOGS = {"theta": THETA, "mira": MIRA, "cerit": CERIT}
SCORED = ("theta", "mira")
"""The wait model is scored on the second halves of these; its constants were chosen on their first halves and on the third."""


def traces_directory(chosen: Path | None) -> Path:
    """Where the logs are: as chosen, else as `CROSSTRAIN_TRACES` says, else `../shared/traces` beside the checkout.

    Raises:
        UsageError: there is no such directory.
    """
    place = chosen or Path(os.environ.get(TRACES_VARIABLE) or "../shared/traces")
    if not place.is_dir():
        raise UsageError(
            f"expected job logs in {place}, which is no directory", f"give --traces DIR or set {TRACES_VARIABLE}"
        )
    return place


def cache_directory() -> Path:
    """Where tables of probes are kept: as `CROSSTRAIN_CACHE` says, else in the user's cache."""
    if chosen := os.environ.get(CACHE_VARIABLE):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "crosstrain"
