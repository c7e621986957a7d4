"""What a round adds to the coordinator's disk, and whether there is room for it."""

from __future__ import annotations

from dataclasses import dataclass

from crosstrain.domain.verdict import Verdict

BYTES_PER_PARAMETER = {"bf16": 2.0, "fp32": 4.0, "int8": 1.1, "int4": 0.6}
"""On the wire, scales of the blocks included."""
MASTER_BYTES = 8.0
"""float32 weights and momentum of a generation, per parameter."""
GIGA = 1e9


@dataclass(frozen=True, slots=True)
class Room:
    """What a file system has left; None where it does not say or has no limit."""

    free_bytes: int | None
    free_inodes: int | None


def round_bytes(parameters: float, weights: str, delta: str, sites: int, packed: bool = False) -> int:
    """Bytes that a round adds: weights, momentum, the file that sites download, and a delta of each site.

    Args:
        weights, delta: types of `wire`.
        packed: both travel packed and are needed unpacked too: the deltas until the round is merged. How much smaller they get is
            not known before, so nothing is counted on.
    """
    travels = BYTES_PER_PARAMETER[weights] + sites * BYTES_PER_PARAMETER[delta]
    return round(parameters * (MASTER_BYTES + travels * (2 if packed else 1)))


def round_inodes(sites: int) -> int:
    """Files and directories that a round makes: each blob may need a directory, each upload two files, each delta that travels
    packed two more."""
    return 6 * sites + 14


def may_begin(room: Room, need_bytes: int, need_inodes: int) -> Verdict:
    """Whether the first lease of a round may be given out: a round that cannot be merged would waste its training."""
    if room.free_bytes is not None and room.free_bytes < need_bytes:
        return Verdict(
            False,
            f"waiting for space at the coordinator: the round needs {need_bytes / GIGA:.2f} GB, "
            f"{room.free_bytes / GIGA:.2f} GB are free; free some, or set `coordinator.keep_generations`",
        )
    if room.free_inodes is not None and room.free_inodes < need_inodes:
        return Verdict(
            False,
            f"waiting for space at the coordinator: the round makes up to {need_inodes} files, its file system takes "
            f"{room.free_inodes} more; remove some, or set `coordinator.keep_generations`",
        )
    return Verdict(True, "there is room for the round")
