"""Judgements on a machine and its disks. Pure."""

from __future__ import annotations

from crosstrain.doctor.finding import Finding, Level
from crosstrain.doctor.observations import Disk, Machine
from crosstrain.domain.plural import counted
from crosstrain.storage.file_system import NETWORK_FILE_SYSTEMS

GB = 1e9
ENOUGH_ROUNDS = 10


def judge_machine(seen: Machine) -> tuple[Finding, ...]:
    """Where it stands, and what is installed there."""
    place = f"on {seen.host}, in {seen.job}" if seen.job else f"on {seen.host}, outside any batch job"
    few = seen.processes is not None and seen.processes < 200
    return (
        Finding(
            Level.OK,
            "place",
            f"{place}, with {counted(seen.cores, 'core')}",
            "" if seen.job else "compute nodes may see another network: try it inside a job too",
        ),
        Finding(
            Level.WARN if few else Level.OK,
            "processes",
            f"this user may start {counted(seen.processes, 'process', 'processes')}"
            if seen.processes is not None
            else "no limit on processes",
            "a site needs about 30 per rank" if few else "",
        ),
        _schedulers(seen),
        _congestion(seen),
        Finding(
            Level.WARN if seen.missing else Level.OK,
            "trainer",
            f"{' and '.join(seen.missing)} cannot be imported"
            if seen.missing
            else "torch and torchtitan are installed",
            "needed at sites alone: pip install 'crosstrain[train]'" if seen.missing else "",
        ),
    )


def _schedulers(seen: Machine) -> Finding:
    if seen.schedulers:
        return Finding(Level.OK, "scheduler", f"found {', '.join(seen.schedulers)}")
    return Finding(Level.OK, "scheduler", "no batch system's commands on PATH", "sites can be started by hand as well")


def _congestion(seen: Machine) -> Finding:
    name = "congestion control"
    if seen.bbr:
        return Finding(Level.OK, name, "uploads go by bbr: they keep their rate on a line that loses packets")
    if seen.congestion is None:
        return Finding(Level.UNKNOWN, name, "the kernel does not say which algorithms a socket may choose")
    return Finding(
        Level.WARN,
        name,
        f"a socket may choose {', '.join(seen.congestion)}, not bbr: at 1 % loss uploads are many times slower",
        "ask for net.ipv4.tcp_allowed_congestion_control to include bbr, or relay through a node that has it",
    )


def judge_disk(seen: Disk, need: int, inodes: int, *, database: bool, per: int | None = None) -> tuple[Finding, ...]:
    """A directory: its file system and its room.

    Args:
        need: bytes below which the run cannot work.
        database: whether SQLite is to live there.
        per: bytes that every round adds, None at a site.
    """
    found = []
    if seen.writable is False:
        advice = f"set `{seen.setting}` to a directory that this user can write"
        found.append(Finding(Level.FAIL, seen.setting, f"{seen.path} cannot be written", advice))
    found.append(_kind(seen, database))
    if seen.free_bytes is None:
        return (*found, Finding(Level.UNKNOWN, f"{seen.setting} room", f"{seen.path} does not say what is free"))
    return (*found, _room(seen, seen.free_bytes, need, per), _inodes(seen, inodes))


def _kind(seen: Disk, database: bool) -> Finding:
    if not seen.kind:
        return Finding(Level.UNKNOWN, seen.setting, f"the file system of {seen.path} is not known here")
    sentence = f"{seen.path} is on {seen.kind}, mounted at {seen.mount}"
    if database and seen.kind in NETWORK_FILE_SYSTEMS:
        return Finding(
            Level.FAIL,
            seen.setting,
            f"{sentence}, where SQLite can lose committed data",
            "a local disk, or PostgreSQL (`coordinator.database`)",
        )
    return Finding(Level.OK, seen.setting, sentence)


def _room(seen: Disk, free: int, need: int, per: int | None) -> Finding:
    name = f"{seen.setting} room"
    sentence = f"{free / GB:.1f} GB free, {need / GB:.1f} GB needed at least"
    if per is not None:
        sentence += f"; enough for {counted(free // max(1, per), 'round')}"
    if free < need:
        return Finding(Level.FAIL, name, sentence, f"free space, or set `{seen.setting}` to another disk")
    if per is not None and free < ENOUGH_ROUNDS * per:
        return Finding(Level.WARN, name, sentence, "a larger disk, or keep fewer generations")
    return Finding(Level.OK, name, sentence)


def _inodes(seen: Disk, need: int) -> Finding:
    name = f"{seen.setting} files"
    if seen.free_inodes is None:
        return Finding(Level.OK, name, "the number of files has no fixed limit")
    sentence = f"{seen.free_inodes} more files may be made, about {need} are"
    if seen.free_inodes < need:
        return Finding(Level.FAIL, name, sentence, "remove files, or ask for a larger quota")
    return Finding(Level.OK, name, sentence)
