"""Configuration files of the test clusters: real Slurm on one machine, nodes and GPUs being names. Pure text."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HOST = socket.gethostname().partition(".")[0]
"""Daemons find themselves by the short name of their machine."""


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition over all nodes of its cluster; times as slurm.conf has them."""

    name: str
    max_time: str
    whole_nodes: bool = True
    max_nodes: int | None = None


@dataclass(frozen=True, slots=True)
class Machine:
    """What a facility looks like: node names, hardware, partitions."""

    name: str
    prefix: str
    first: int
    nodes: int
    gpus: int
    gpu_type: str
    sockets: int
    cores: int
    threads: int
    partitions: tuple[Partition, ...]

    def node(self, index: int) -> str:
        return f"{self.prefix}{self.first + index}"

    @property
    def all_nodes(self) -> str:
        return f"{self.prefix}[{self.first}-{self.first + self.nodes - 1}]"


def machines(nodes: Sequence[int] = (4, 8, 16)) -> tuple[Machine, ...]:
    """Three facilities after public ones, with as many nodes as asked for."""
    return (
        Machine("snellius", "gcn", 1, nodes[0], 4, "h100", 2, 32, 1, (Partition("gpu_h100", "120:00:00", False),)),
        Machine(
            "lumi", "nid", 5001, nodes[1], 8, "mi250", 1, 56, 2,
            (Partition("standard-g", "48:00:00"), Partition("small-g", "48:00:00", False, 4)),
        ),
        Machine("frontier", "frontier", 1001, nodes[2], 8, "mi250x", 1, 56, 2, (Partition("batch", "24:00:00"),)),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Places:
    """Where one lab keeps its things.

    Attributes:
        ports: free ones; the first is slurmdbd's, the second the database's.
        accounting: whether slurmdbd runs.
    """

    directory: Path
    ports: tuple[int, ...]
    accounting: bool

    @property
    def munge_socket(self) -> Path:
        return self.directory / "munge" / "socket"

    def cluster(self, machine: Machine) -> Path:
        return self.directory / machine.name

    def conf(self, machine: Machine) -> Path:
        return self.cluster(machine) / "slurm.conf"


def slurm_conf(machine: Machine, places: Places, ports: Sequence[int]) -> str:
    """slurm.conf of a cluster; the first port is the controller's, then one per node."""
    home = places.cluster(machine)
    lines = [
        f"ClusterName={machine.name}",
        f"SlurmctldHost={HOST}(127.0.0.1)",
        f"SlurmctldPort={ports[0]}",
        "SlurmUser=root",
        "SlurmdUser=root",
        "AuthType=auth/munge",
        f"AuthInfo=socket={places.munge_socket}",
        "CredType=cred/munge",
        f"StateSaveLocation={home}/state",
        f"SlurmdSpoolDir={home}/spool/%n",
        f"SlurmctldPidFile={home}/slurmctld.pid",
        f"SlurmdPidFile={home}/spool/%n.pid",
        # Neither cgroups nor a service manager are needed for names of nodes.
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "JobAcctGatherType=jobacct_gather/none",
        "SlurmdParameters=config_overrides",
        "MpiDefault=none",
        "ReturnToService=2",
        # Short, so that an absent controller and a killed job show soon.
        "MessageTimeout=5",
        "TCPTimeout=2",
        "KillWait=3",
        "InactiveLimit=0",
        "MinJobAge=300",
        "EnforcePartLimits=ALL",
        "PropagateResourceLimits=NONE",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core",
        "GresTypes=gpu",
        "PriorityType=priority/multifactor",
        "PriorityWeightAge=1000",
        "PriorityWeightQOS=10000",
        "SchedulerType=sched/backfill",
        "SchedulerParameters=bf_interval=2,bf_window=10080,bf_resolution=60,bf_continue,sched_interval=5,batch_sched_delay=1",
        *_accounting(places),
        *(_node(machine, index, ports[1 + index]) for index in range(machine.nodes)),
        *(_partition(machine, partition, index == 0) for index, partition in enumerate(machine.partitions)),
    ]
    return "\n".join(lines) + "\n"


def _accounting(places: Places) -> list[str]:
    if not places.accounting:
        return ["AccountingStorageType=accounting_storage/none"]
    return [
        "AccountingStorageType=accounting_storage/slurmdbd",
        f"AccountingStorageHost={HOST}",
        f"AccountingStoragePort={places.ports[0]}",
        # To slurmdbd, this is where the path of munge's socket goes.
        f"AccountingStoragePass={places.munge_socket}",
        "AccountingStorageTRES=gres/gpu",
        "AccountingStorageEnforce=associations,limits,qos",
    ]


def _node(machine: Machine, index: int, port: int) -> str:
    hardware = (
        f"Sockets={machine.sockets} CoresPerSocket={machine.cores} ThreadsPerCore={machine.threads} RealMemory=65536"
    )
    gpus = f"Gres=gpu:{machine.gpu_type}:{machine.gpus}"
    return f"NodeName={machine.node(index)} NodeHostname={HOST} NodeAddr=127.0.0.1 Port={port} {hardware} {gpus}"


def _partition(machine: Machine, partition: Partition, default: bool) -> str:
    words = [
        f"PartitionName={partition.name}",
        f"Nodes={machine.all_nodes}",
        f"Default={'YES' if default else 'NO'}",
        f"MaxTime={partition.max_time}",
        "DefaultTime=30:00",
        f"OverSubscribe={'EXCLUSIVE' if partition.whole_nodes else 'NO'}",
    ]
    words += [f"MaxNodes={partition.max_nodes}"] if partition.max_nodes else []
    return " ".join(words)


def gres_conf(machine: Machine, places: Places) -> str:
    """GPUs are links to the null device; the numbers of their names are what jobs are told."""
    files = f"{places.cluster(machine)}/gpu/gpu[0-{machine.gpus - 1}]"
    return f"NodeName={machine.all_nodes} Name=gpu Type={machine.gpu_type} File={files}\n"


def cgroup_conf(version: tuple[int, int], directory: Path) -> str:
    """slurmd loads a cgroup plugin even if nothing uses it; before 24.05 none can be switched off."""
    if version >= (24, 5):
        return "CgroupPlugin=disabled\n"
    return f"CgroupPlugin=cgroup/v1\nCgroupAutomount=no\nCgroupMountpoint={directory}\n"


def slurmdbd_conf(places: Places) -> str:
    """slurmdbd.conf of the one accounting service of all clusters."""
    lines = [
        "AuthType=auth/munge",
        f"AuthInfo=socket={places.munge_socket}",
        f"DbdHost={HOST}",
        "DbdAddr=127.0.0.1",
        f"DbdPort={places.ports[0]}",
        "SlurmUser=root",
        f"LogFile={places.directory}/log/slurmdbd.log",
        f"PidFile={places.directory}/slurmdbd/slurmdbd.pid",
        "StorageType=accounting_storage/mysql",
        "StorageHost=127.0.0.1",
        f"StoragePort={places.ports[1]}",
        "StorageUser=slurm",
        "StoragePass=slurm",
        "StorageLoc=slurm_acct",
    ]
    return "\n".join(lines) + "\n"
