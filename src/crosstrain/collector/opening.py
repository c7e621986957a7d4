"""Puts together what `collect` and `submit` work with."""

from __future__ import annotations

import os
import pwd
import secrets
from pathlib import Path

from crosstrain.batch.adapter import Adapter
from crosstrain.batch.local.adapter import Local
from crosstrain.batch.pbs.adapter import Pbs
from crosstrain.batch.scheduler import BatchSystem
from crosstrain.batch.slurm.adapter import Slurm
from crosstrain.batch_section import BatchSection
from crosstrain.clock import SystemClock
from crosstrain.collector.journal import Journal
from crosstrain.collector.outbox import Outbox
from crosstrain.collector.post import Post
from crosstrain.config import RunConfig
from crosstrain.errors import UsageError
from crosstrain.storage.durable import make_directory

BATCH = "batch"


def open_post(config: RunConfig, run_file: Path, sites: Path, name: str) -> Post:
    """One site's batch system.

    Args:
        sites: the resolved `site.dir`; the site's directory is below it.

    Raises:
        UsageError: the run file says nothing of this site's batch system.
        EnvironmentFault: the site's directory cannot be written.
    """
    site = config.site_named(name)
    if site.batch is None:
        known = sorted(each for each in config.sites if config.site_named(each).batch is not None)
        found = f"those with one are {', '.join(known)}" if known else "no site has one"
        raise UsageError(
            f"The run file has no [sites.{name}.batch]; {found}.",
            "see docs/guides/placement.md for what belongs there, or correct --name",
        )
    directory = sites / name / BATCH
    journal = Journal(directory)
    return Post(
        run=config.run.name,
        site=name,
        run_file=run_file,
        section=site.batch,
        windows_per_pass=site.micro_batch * site.ranks,
        user=_user(site.batch),
        system=BatchSystem(_adapter(site.batch, directory), prefix=site.batch.prefix, deadline_s=site.batch.deadline_s),
        journal=journal,
        outbox=Outbox(journal.reports),
        logs=make_directory(sites / name / site.batch.logs, f"sites.{name}.batch.logs"),
        clock=SystemClock(),
        draw=secrets.SystemRandom().random,
    )


def _adapter(section: BatchSection, directory: Path) -> Adapter:
    match section.scheduler:
        case "slurm":
            return Slurm()
        case "pbs":
            return Pbs()
        case "local":
            return Local(directory / "local", section.local_nodes)


def _user(section: BatchSection) -> str | None:
    """Behind a prefix such as ssh the name may be another; then rows are told by the jobs' names alone."""
    if section.user is not None or section.prefix:
        return section.user
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return None
