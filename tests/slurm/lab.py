"""Three real Slurm clusters on this machine, as child processes of the tests: nothing outlives them.

A lab touches neither /etc nor services: configuration, sockets and state lie in a directory of its own, and ports are free
ones. SLURM_CONF alone chooses the cluster. Nodes are slurmd processes with names; their hardware is claimed, not real, so
jobs must be small programs. Node names do not resolve, and ports of the machine are shared by all "nodes".
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.slurm.configuration import (
    Machine,
    Places,
    cgroup_conf,
    gres_conf,
    machines,
    slurm_conf,
    slurmdbd_conf,
)

from crosstrain.batch.command import Child, Completed, run, spawn
from crosstrain.batch.process_tree import send_signal
from crosstrain.batch.scheduler import BatchSystem
from crosstrain.batch.slurm.adapter import Slurm
from crosstrain.clock import SystemClock, pause

PATIENCE_S = 90.0
PROGRAMS = ("slurmctld", "slurmd", "sbatch", "munged")
ACCOUNTING_PROGRAMS = ("slurmdbd", "sacctmgr", "mariadbd", "mariadb-install-db", "mariadb")
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


def why_not(accounting: bool) -> str | None:
    """Why no lab can be started here, None if it can."""
    if os.geteuid() != 0:
        return "a Slurm lab needs root: slurmctld and slurmd start jobs for users"
    wanted = (*PROGRAMS, *(ACCOUNTING_PROGRAMS if accounting else ()))
    missing = [name for name in wanted if shutil.which(name, path=PATH) is None]
    packages = "slurmctld slurmd slurm-client munge" + (
        " slurmdbd slurm-wlm-mysql-plugin mariadb-server" if accounting else ""
    )
    return f"not installed: {', '.join(missing)} (Debian: {packages})" if missing else None


@dataclass(slots=True)
class Cluster:
    """A running cluster."""

    machine: Machine
    conf: Path
    controller: Child
    restart: Callable[[], Child]

    @property
    def environment(self) -> dict[str, str]:
        """For Slurm's clients."""
        return {"SLURM_CONF": str(self.conf), "PATH": PATH, "HOME": os.environ.get("HOME", "/")}

    def system(self, deadline_s: float = 60.0) -> BatchSystem:
        """The cluster as crosstrain sees it."""
        return BatchSystem(Slurm(), environment=self.environment, deadline_s=deadline_s)

    def run(self, *words: str) -> Completed:
        """Runs a client."""
        return run(words, timeout=60, environment=self.environment | {"LC_ALL": "C"})

    def clear(self) -> None:
        """Cancels everything and waits for an empty queue."""
        self.run("scancel", "-u", "root")
        until(lambda: not self.run("squeue", "-h", "-a").stdout.strip(), f"{self.machine.name} has jobs left")

    def stop_controller(self) -> None:
        self.controller.signal(signal.SIGTERM)
        assert self.controller.wait(PATIENCE_S) is not None

    def start_controller(self) -> None:
        self.controller = self.restart()
        until(lambda: "is UP" in self.run("scontrol", "ping").stdout, f"{self.machine.name} does not come back")


@dataclass(slots=True)
class Lab:
    """Running clusters by name."""

    directory: Path
    clusters: dict[str, Cluster] = field(default_factory=dict)


def until(holds: Callable[[], bool], problem: str, patience_s: float = PATIENCE_S) -> None:
    """Looks until something holds; fails with the problem after `patience_s`."""
    clock = SystemClock()
    end = clock.perf() + patience_s
    while not holds():
        assert clock.perf() < end, problem
        pause(0.1)


@contextmanager
def lab(nodes: Sequence[int] = (4, 8, 16), *, accounting: bool = False) -> Iterator[Lab]:
    """Clusters with so many nodes each, ready for jobs.

    Args:
        accounting: with slurmdbd, an account `pool` with root in it, and QoS `normal` and `debug` (2 h, 2 nodes, 1 job).
    """
    # Paths of sockets are short, so not the test's own directory.
    directory = Path(tempfile.mkdtemp(prefix="ct-slurm-"))
    chosen = machines(nodes)
    ports = iter(_free_ports(2 + sum(1 + machine.nodes for machine in chosen)))
    places = Places(directory, (next(ports), next(ports)), accounting)
    children: list[Child] = []
    found = Lab(directory)
    try:
        (directory / "log").mkdir()
        _link_daemons(directory)
        children.append(_start_munge(places))
        if accounting:
            children += _start_accounting(places)
        own = {machine: [next(ports) for _ in range(1 + machine.nodes)] for machine in chosen}
        for machine in chosen:
            _write_cluster(machine, places, own[machine])
        if accounting:
            # A controller that accounting does not know would not start.
            _fill_accounting(chosen, places)
        for machine in chosen:
            cluster, daemons = _start_cluster(machine, places)
            children += daemons
            found.clusters[machine.name] = cluster
        for cluster in found.clusters.values():
            until(
                lambda cluster=cluster: _is_ready(cluster), f"{cluster.machine.name} is not ready; see {directory}/log"
            )
        yield found
    finally:
        for child in [*(cluster.controller for cluster in found.clusters.values()), *reversed(children)]:
            child.kill_group()
        # Steps and jobs live in sessions of their own; they know the lab by their environment.
        send_signal(_processes_of(directory), signal.SIGKILL)
        shutil.rmtree(directory, ignore_errors=True)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _start(places: Places, name: str, *words: str, conf: Path | None = None) -> Child:
    prefix = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
    environment = {"PATH": PATH, "LC_ALL": "C"} | ({"SLURM_CONF": str(conf)} if conf else {})
    return spawn([*prefix, *words], env=environment, log=places.directory / "log" / f"{name}.out")


def _link_daemons(directory: Path) -> None:
    # Debian's are called slurmctld-wlm and so on, and 22.05 tells from its own name what it is.
    (directory / "bin").mkdir()
    for name in ("slurmctld", "slurmd", "slurmstepd", "slurmdbd"):
        places = [Path("/usr/sbin") / f"{name}-wlm", Path("/usr/sbin") / name]
        if found := next((place for place in places if place.exists()), None):
            (directory / "bin" / name).symlink_to(found)


def _start_munge(places: Places) -> Child:
    home = places.munge_socket.parent
    home.mkdir(mode=0o755)
    key = home / "key"
    key.write_bytes(secrets.token_bytes(1024))
    key.chmod(0o400)
    files = [f"--{name}-file={home / name}" for name in ("key", "pid", "seed", "log")]
    # --force: it is particular about the directories above.
    child = _start(places, "munged", "munged", "--foreground", "--force", f"--socket={places.munge_socket}", *files)
    until(places.munge_socket.exists, "munged does not start")
    return child


def _start_accounting(places: Places) -> list[Child]:
    data, home = places.directory / "db", places.directory / "slurmdbd"
    made = run(
        ["mariadb-install-db", "--no-defaults", "--user=root", f"--datadir={data}", "--skip-test-db",
         "--auth-root-authentication-method=normal", "--innodb-log-file-size=16M"],
        timeout=PATIENCE_S,
    )  # fmt: skip
    assert made.code == 0, made.stderr
    socket_path = places.directory / "db.socket"
    database = _start(
        places, "mariadbd", "mariadbd", "--no-defaults", "--user=root", f"--datadir={data}", f"--socket={socket_path}",
        "--bind-address=127.0.0.1", f"--port={places.ports[1]}", "--skip-name-resolve", "--innodb-log-file-size=16M",
        "--innodb-buffer-pool-size=64M", "--innodb-lock-wait-timeout=900", "--innodb-flush-log-at-trx-commit=0",
        f"--pid-file={places.directory / 'db.pid'}",
    )  # fmt: skip
    grant = (
        "CREATE DATABASE slurm_acct; CREATE USER 'slurm'@'127.0.0.1' IDENTIFIED BY 'slurm';"
        "GRANT ALL ON slurm_acct.* TO 'slurm'@'127.0.0.1'"
    )
    client = ["mariadb", "--no-defaults", "-S", str(socket_path), "-u", "root", "-e"]
    until(lambda: run([*client, "SELECT 1"], timeout=10).code == 0, "mariadbd does not start")
    granted = run([*client, grant], timeout=30)
    assert granted.code == 0, granted.stderr
    home.mkdir()
    conf = home / "slurmdbd.conf"
    conf.touch(mode=0o600)
    conf.write_text(slurmdbd_conf(places), encoding="utf-8")
    # It looks for its own file beside SLURM_CONF.
    return [
        database,
        _start(places, "slurmdbd", str(places.directory / "bin/slurmdbd"), "-D", conf=home / "slurm.conf"),
    ]


def _fill_accounting(chosen: Sequence[Machine], places: Places) -> None:
    environment = {"SLURM_CONF": str(places.conf(chosen[0])), "PATH": PATH, "LC_ALL": "C"}

    def sacctmgr(*words: str) -> Completed:
        return run(["sacctmgr", *words], timeout=60, environment=environment)

    until(lambda: sacctmgr("-n", "show", "cluster").code == 0, "slurmdbd does not answer")
    for words in (
        f"add cluster {' '.join(machine.name for machine in chosen)}",
        "add qos debug set Priority=100 MaxWall=02:00:00 MaxTRESPerJob=node=2 MaxSubmitJobsPerUser=1 Flags=DenyOnLimit",
        "add account pool Description=pool Organization=pool QOS=normal,debug DefaultQOS=normal",
        "add user root Account=pool DefaultAccount=pool",
        "modify user root set DefaultAccount=pool",
    ):
        done = sacctmgr("-i", *words.split())
        text = (done.stdout + done.stderr).lower()
        assert done.code == 0 or "already exist" in text or "nothing" in text, (words, text)


def _write_cluster(machine: Machine, places: Places, ports: Sequence[int]) -> None:
    home = places.cluster(machine)
    for name in ("state", "spool", "gpu"):
        (home / name).mkdir(parents=True)
    for index in range(machine.gpus):
        (home / "gpu" / f"gpu{index}").symlink_to("/dev/null")
    places.conf(machine).write_text(slurm_conf(machine, places, ports), encoding="utf-8")
    (home / "gres.conf").write_text(gres_conf(machine, places), encoding="utf-8")
    (home / "cgroup.conf").write_text(cgroup_conf(_version(places.directory / "bin"), home), encoding="utf-8")


def _start_cluster(machine: Machine, places: Places) -> tuple[Cluster, list[Child]]:
    home, conf, programs = places.cluster(machine), places.conf(machine), places.directory / "bin"

    def controller() -> Child:
        return _start(places, f"{machine.name}-ctld", str(programs / "slurmctld"), "-D", "-f", str(conf), conf=conf)

    daemons: list[Child] = []
    for index in range(machine.nodes):
        node = machine.node(index)
        (home / "spool" / node).mkdir()
        words = [str(programs / "slurmd"), "-D", "-N", node, "-f", str(conf), "-d", str(programs / "slurmstepd")]
        daemons.append(_start(places, f"{machine.name}-{node}", *words, conf=conf))
    return Cluster(machine, conf, controller(), controller), daemons


def _version(programs: Path) -> tuple[int, int]:
    found = re.search(r"(\d+)\.(\d+)", run([str(programs / "slurmctld"), "-V"], timeout=20).stdout)
    assert found is not None
    return int(found[1]), int(found[2])


def _is_ready(cluster: Cluster) -> bool:
    done = cluster.run("sinfo", "-h", "-N", "-o", "%t")
    states = set(done.stdout.split())
    return done.code == 0 and states == {"idle"}


def _processes_of(directory: Path) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                if f"SLURM_CONF={directory}/".encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
    return [pid for pid in found if pid != os.getpid()]
