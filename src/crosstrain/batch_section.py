"""`[sites.NAME.batch]` of RUN.toml: how one site's batch system is asked, and what may be submitted to it.

Local to the machine that `crosstrain collect` and `crosstrain submit` run on; it is no part of the run spec.
"""

from __future__ import annotations

import re
from datetime import date
from typing import Annotated, Literal

from pydantic import Field, model_validator

from crosstrain.domain import timeouts
from crosstrain.section import Count, Fraction, Positive, Section

WORD = r"^[\w.,:=/@+%-]+$"
"""What may stand in a scheduler's option."""
MOST_SHAPES = 100
MOST_HOURS = 8760.0
"""Of a time limit: a year."""
_WALLTIME = re.compile(r"(?:(\d+)-)?(\d+):([0-5]\d):([0-5]\d)")

Word = Annotated[str, Field(pattern=WORD, max_length=200)]
Text = Annotated[str, Field(pattern=r"^[^\x00]*$")]
"""What a command or a script can hold: anything but the character that ends it."""


class ShapeSection(Section):
    """A shape that may be submitted; `hours` or `walltime` must be set."""

    partition: Word
    """Partition or queue."""
    nodes: Annotated[int, Field(ge=1, lt=2**20)] = 1
    """Whole nodes."""
    gpus: Annotated[int, Field(ge=0, lt=2**20)] = 0
    """Accelerators asked for on each node."""
    hours: Annotated[float, Field(gt=0.0, le=MOST_HOURS)] | None = None
    """Time limit of the job; rounded up to whole minutes."""
    walltime: str | None = None
    """The same as HH:MM:SS or D-HH:MM:SS."""
    tokens_per_s: Annotated[float, Field(gt=0.0, le=1e15)] | None = None
    """What such a job trains, if known; it is measured once one ran."""
    windows_per_pass: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    """B x W of such a job; default: `micro_batch` x `ranks` of the site."""

    @model_validator(mode="after")
    def _one_walltime(self) -> ShapeSection:
        if (self.hours is None) == (self.walltime is None):
            raise ValueError("exactly one of hours and walltime must be set")
        if self.walltime is not None and not _WALLTIME.fullmatch(self.walltime):
            raise ValueError("walltime must be HH:MM:SS or D-HH:MM:SS")
        if not 1 <= self.walltime_s <= 3600 * MOST_HOURS:
            raise ValueError(f"walltime must be longer than nothing and at most {MOST_HOURS:g} h")
        return self

    @property
    def walltime_s(self) -> int:
        """Seconds, whole minutes."""
        if self.hours is not None:
            seconds = 3600 * self.hours
        else:
            found = _WALLTIME.fullmatch(self.walltime or "")
            days, hours, minutes, rest = (int(part or 0) for part in found.groups()) if found else (0, 0, 0, 0)
            seconds = 86400 * days + 3600 * hours + 60 * minutes + rest
        return 60 * int(-(-seconds // 60))


class BatchSection(Section):
    """A site's batch system."""

    scheduler: Literal["slurm", "pbs", "local"] = "slurm"
    """`local` runs jobs as processes of this machine, for trials."""
    shapes: tuple[ShapeSection, ...]
    """What may be submitted, as `[[sites.NAME.batch.shapes]]`."""
    account: Word | None = None
    """Account that is charged."""
    qos: Word | None = None
    """Quality of service."""
    options: tuple[Word, ...] = ()
    """More words for the scheduler, for example `["--exclusive"]` for whole nodes of a shared partition."""
    user: Word | None = None
    """Own name at the scheduler; default: that of the process."""
    prefix: tuple[Text, ...] = ()
    """Words before every command of the scheduler, such as `["ssh", "login1"]`; job scripts must be at the same path there."""
    max_queued: Annotated[int, Field(ge=1, le=1000)] = 4
    """Own jobs of the run in the queue at once, running ones counted."""
    depth: Annotated[int, Field(ge=0, le=100)] = 2
    """Most jobs that wait behind a running one."""
    node_hours: Annotated[float, Field(ge=0.0, le=1e12)] | None = None
    """The award for this run; jobs are charged as they were submitted from here. Not set: no limit."""
    award_ends: date | None = None
    """Last day of the award (UTC); no job is submitted that could run beyond it."""
    startup_s: Annotated[float, Field(ge=0.0, le=86400.0)] | None = None
    """From a job's start to its first step, for the planner until it is measured from own jobs; default: 300."""
    tail_s: Annotated[float, Field(ge=0.0, le=86400.0)] | None = None
    """Checkpoint and upload before a job's end, the same; default: 120. `site.margin_s` comes on top."""
    setup: tuple[Text, ...] = ()
    """Lines of shell before the command, such as `source .venv/bin/activate`."""
    modules: tuple[Word, ...] = ()
    """Environment modules to load first."""
    container: tuple[Text, ...] = ()
    """Words before the command, such as `["apptainer", "exec", "--nv", "image.sif"]`."""
    command: Annotated[tuple[Text, ...], Field(min_length=1)] = ("crosstrain",)
    """The program in the job; `site RUN.toml --name NAME` follows."""
    logs: Text = "logs"
    """Directory of the jobs' output; relative to the site's directory."""
    drain_s: Annotated[int, Field(ge=1, le=86400)] = timeouts.DRAIN_SIGNAL_S
    """Seconds before the limit at which the drain signal comes."""
    probe_every_s: Annotated[float, Field(ge=0.0, le=86400.0)] = timeouts.PROBE_EVERY_S
    """Least seconds between two looks of `collect` at the scheduler; each makes at most one probe."""
    shape_every_s: Annotated[float, Field(ge=0.0, le=604800.0)] = timeouts.SHAPE_EVERY_S
    """Least seconds between two probes of one shape."""
    jitter: Fraction = 0.2
    """Those are stretched by up to this share, at random."""
    deadline_s: Annotated[Positive, Field(le=3600.0)] = timeouts.SCHEDULER_S
    """One command of the scheduler may take so long."""
    local_nodes: Count = 1
    """`local` only: nodes that it pretends to have."""

    @model_validator(mode="after")
    def _some_shapes(self) -> BatchSection:
        if not 1 <= len(self.shapes) <= MOST_SHAPES:
            raise ValueError(f"expected 1 to {MOST_SHAPES} shapes")
        return self
