"""Looks at the machine: its disks, its limits, what is installed."""

from __future__ import annotations

import importlib.util
import os
import resource
import shutil
import socket
from collections.abc import Mapping
from pathlib import Path

from crosstrain.clock import Clock, pause
from crosstrain.doctor.observations import Box, Disk, Machine
from crosstrain.domain import timeouts
from crosstrain.errors import CrosstrainError
from crosstrain.storage.file_system import file_system_of
from crosstrain.wire.congestion import prefer_bbr
from crosstrain.wire.mailbox import Mailbox

SCHEDULERS = ("sbatch", "qsub", "flux", "bsub", "msub")
JOBS = {"SLURM_JOB_ID": "Slurm job", "PBS_JOBID": "PBS job", "FLUX_JOB_ID": "Flux job", "LSB_JOBID": "LSF job"}
"""Variables that batch systems set inside a job, and what to call it."""
CONGESTION = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
TRAINER = ("torch", "torchtitan")


def look_at_machine(environment: Mapping[str, str]) -> Machine:
    limit, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    inside = [f"{words} {environment[name]}" for name, words in JOBS.items() if environment.get(name)]
    try:
        allowed = tuple(CONGESTION.read_text(encoding="ascii").split())
    except OSError:
        allowed = None
    return Machine(
        host=socket.gethostname(),
        cores=len(os.sched_getaffinity(0)),
        processes=None if limit == resource.RLIM_INFINITY else limit,
        job=", ".join(inside),
        schedulers=tuple(name for name in SCHEDULERS if shutil.which(name)),
        bbr=_bbr(),
        congestion=allowed,
        # find_spec imports nothing: torch alone would take seconds and gigabytes.
        missing=tuple(name for name in TRAINER if importlib.util.find_spec(name) is None),
    )


def _bbr() -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as trial:
        return prefer_bbr(trial)


def look_at_disk(setting: str, directory: Path) -> Disk:
    """The directory, or the nearest above it that exists; nothing is made."""
    place = directory
    while not place.exists() and place != place.parent:
        place = place.parent
    mount, kind = file_system_of(place)
    try:
        found = os.statvfs(place)
    except OSError:
        return Disk(setting, str(directory), kind, mount)
    return Disk(
        setting,
        str(directory),
        kind,
        mount,
        free_bytes=found.f_bavail * found.f_frsize,
        free_inodes=found.f_favail if found.f_files else None,
        writable=place.is_dir() and os.access(place, os.W_OK | os.X_OK),
    )


def look_at_box(directory: Path, clock: Clock) -> Box:
    """Opens the mailbox, tries a rename in it, and watches the relay for a little longer than its pulse."""
    _, kind = file_system_of(directory)
    try:
        box = Mailbox(directory)
        trial, renamed = directory / f".doctor-{os.getpid()}", directory / f".doctor-{os.getpid()}-renamed"
        trial.write_bytes(b"x")
        trial.replace(renamed)
        seen = renamed.read_bytes() == b"x"
        renamed.unlink()
    except CrosstrainError as error:
        return Box(str(directory), kind, f"{error.message} {error.hint}")
    except OSError as error:
        return Box(str(directory), kind, f"{directory} cannot be used: {error.strerror}.")
    if not seen:
        return Box(str(directory), kind, f"{directory} loses what is renamed in it.")
    first = newest = box.pulse()
    ends = clock.perf() + timeouts.PULSE_WATCHED_S
    while first is not None and not first.ended and newest == first and clock.perf() < ends:
        pause(timeouts.RELAY_PULSE_S / 4)
        newest = box.pulse()
    return Box(str(directory), kind, pulse=newest, moved=newest != first)
