"""Which file system a directory is on, and which of them can hold no database."""

from __future__ import annotations

from pathlib import Path

from crosstrain.errors import EnvironmentFault

NETWORK_FILE_SYSTEMS = frozenset(
    {"nfs", "nfs4", "lustre", "gpfs", "beegfs", "cifs", "smb3", "ceph", "fuse.sshfs", "panfs", "wekafs", "afs"}
)


def refuse_network_file_system(directory: Path, mounts: Path = Path("/proc/mounts")) -> None:
    """SQLite's locks and WAL are unsafe on network file systems; refuse them with the reason.

    Raises:
        EnvironmentFault: `directory` is on NFS, Lustre, GPFS or the like.
    """
    mount_point, kind = file_system_of(directory, mounts)
    if kind in NETWORK_FILE_SYSTEMS:
        raise EnvironmentFault(
            f"{directory} is on {kind} (mounted at {mount_point}), where SQLite can lose committed data.",
            "put `coordinator.dir` on a local disk",
        )


def file_system_of(directory: Path, mounts: Path = Path("/proc/mounts")) -> tuple[str, str]:
    """(mount point, kind) of the file system that holds `directory`; empty where the kernel does not say."""
    best = ("", "")
    if not mounts.exists():
        return best
    resolved = str(directory.resolve())
    for line in mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        _, mount_point, kind, *_ = line.split(" ")
        mount_point = mount_point.replace("\\040", " ")
        inside = resolved == mount_point or resolved.startswith(mount_point.rstrip("/") + "/")
        if inside and len(mount_point) >= len(best[0]):
            best = (mount_point, kind)
    return best
