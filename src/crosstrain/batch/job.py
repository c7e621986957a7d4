"""A job to submit: its shape, what it runs, and its script. Pure text; one template for all batch systems.

The job's name is the id of the plan item that wants it: submitting again after a crash finds the job by that name. The
script takes the job's end from the scheduler where it says it, else from its own start and limit, and becomes the site
agent by `exec`, so that a signal for the batch shell reaches the agent.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath

from crosstrain.domain.plural import counted
from crosstrain.domain.timeouts import DRAIN_SIGNAL_S
from crosstrain.errors import UsageError

_NAME = re.compile(r"[A-Za-z][\w.-]{0,63}")
_WORD = re.compile(r"[\w.,:=/@+%-]+")


@dataclass(frozen=True, slots=True)
class Shape:
    """What is asked of a batch system.

    Attributes:
        walltime_s: rounded up to whole minutes, as Slurm does.
        options: words for the scheduler's command, for what has no field here, such as ``--constraint=h100``.
    """

    partition: str | None
    nodes: int
    walltime_s: int
    gpus_per_node: int = 0
    cpus_per_task: int | None = None
    account: str | None = None
    qos: str | None = None
    options: tuple[str, ...] = ()

    @property
    def minutes(self) -> int:
        return -(-self.walltime_s // 60)


@dataclass(frozen=True, slots=True)
class Job:
    """A job of a plan.

    Attributes:
        name: id of the plan item.
        command: the words of the program, such as ``crosstrain site RUN.toml --name north``.
        directory: where it runs.
        modules: environment modules to load first.
        container: words before the command, such as ``apptainer exec --nv image.sif``, for a site where crosstrain itself
            lives in an image.
        setup: lines of shell before the command, such as ``source .venv/bin/activate``; taken as they are.
        log: where output goes; the directory must exist.
        after: ids of jobs that must have ended before, however they ended.
    """

    name: str
    shape: Shape
    command: tuple[str, ...]
    directory: PurePath
    modules: tuple[str, ...] = ()
    container: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    log: PurePath | None = None
    after: tuple[str, ...] = ()
    drain_s: int = DRAIN_SIGNAL_S


def check_job(job: Job) -> None:
    """Refuses what no scheduler would take or what would change the script's meaning.

    Raises:
        UsageError: a name, partition, account or option that is not one word, or amounts below one.
    """
    if not _NAME.fullmatch(job.name):
        raise UsageError(
            f"{job.name!r} cannot be a job's name.",
            "a letter, then up to 63 letters, digits, dots, dashes or underscores",
        )
    shape = job.shape
    words = [
        word for word in (shape.partition, shape.account, shape.qos, *shape.options, *job.modules) if word is not None
    ]
    if wrong := [word for word in words if not _WORD.fullmatch(word)]:
        raise UsageError(f"{wrong[0]!r} is not one word of a scheduler's options.", "no blanks, quotes or line ends")
    if shape.nodes < 1 or shape.walltime_s < 1 or shape.gpus_per_node < 0 or not job.command:
        raise UsageError(
            f"Expected at least one node, a second and a command; found {counted(shape.nodes, 'node')}, {shape.walltime_s} s.",
            "correct the shape",
        )


def script(job: Job, directives: Sequence[str], end_time: str) -> str:
    """The text of a job script.

    Args:
        directives: lines for the scheduler, as comments of the shell.
        end_time: a shell word for the job's end in epoch seconds as this scheduler tells it, empty if it does not.
    """
    check_job(job)
    own = f"$(($(date +%s) + {60 * job.shape.minutes}))"
    end = f"${{{end_time}:-{own}}}" if end_time else own
    lines = [
        "#!/bin/bash",
        *directives,
        "",
        "# Written by crosstrain for one item of its plan; changes here are not read back.",
        "set -eu",
        f'export CROSSTRAIN_END_TIME="{end}"',
        f"export CROSSTRAIN_PLAN_ITEM={shlex.quote(job.name)}",
        f"cd -- {shlex.quote(str(job.directory))}",
    ]
    if job.modules:
        # The module command of many sites reads unset variables.
        lines += ["set +u", *(f"module load {shlex.quote(module)}" for module in job.modules), "set -u"]
    lines += [*job.setup, f"exec {shlex.join((*job.container, *job.command))}"]
    return "\n".join(lines) + "\n"
