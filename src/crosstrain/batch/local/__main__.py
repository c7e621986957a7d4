"""Clients of the local batch system: submit, jobs, cancel; and the supervisor that a submission starts."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from crosstrain.batch.command import spawn
from crosstrain.batch.local.jobs import LocalJob, all_jobs, new_job
from crosstrain.batch.local.supervisor import supervise
from crosstrain.clock import SystemClock, pause
from crosstrain.domain.plural import counted
from crosstrain.domain.timeouts import LOCAL_SUPERVISED_S


def main() -> int:
    words = _parser().parse_args()
    directory: Path = words.dir.resolve()
    directory.mkdir(parents=True, exist_ok=True)
    if words.verb == "submit":
        return _submit(words, directory)
    if words.verb == "supervise":
        supervise(LocalJob(directory / str(words.id)), words.nodes)
        return 0
    jobs = [job for job in all_jobs(directory) if not words.ids or job.asked.id in words.ids]
    if words.verb == "cancel":
        for job in jobs:
            job.cancel()
        return 0
    for job in jobs:
        document = job.document()
        if not words.live or document["end"] is None:
            sys.stdout.write(json.dumps(document) + "\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m crosstrain.batch.local", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    submit, listing, cancel = verbs.add_parser("submit"), verbs.add_parser("jobs"), verbs.add_parser("cancel")
    supervisor = verbs.add_parser("supervise")
    for each in (submit, listing, cancel, supervisor):
        each.add_argument("--dir", type=Path, required=True)
    for each in (listing, cancel):
        each.add_argument("ids", type=int, nargs="*")
    listing.add_argument("--live", action="store_true", help="without those that ended")
    supervisor.add_argument("id", type=int)
    for each in (submit, supervisor):
        each.add_argument("--nodes", type=int, required=True, help="that the machine pretends to have")
    submit.add_argument("script", type=Path)
    submit.add_argument("--name", required=True)
    submit.add_argument("--take", type=int, required=True, help="nodes of this job")
    submit.add_argument("--walltime", type=int, required=True, help="seconds")
    submit.add_argument("--drain", type=int, required=True, help="seconds before the end at which SIGUSR1 comes")
    submit.add_argument("--log", type=Path, required=True)
    submit.add_argument("--after", type=int, action="append", default=[])
    return parser


def _submit(words: argparse.Namespace, directory: Path) -> int:
    if words.take > words.nodes:
        sys.stderr.write(f"asked for {counted(words.take, 'node')} of {words.nodes}\n")
        return 2
    job = new_job(
        directory,
        name=words.name,
        script=str(words.script.resolve()),
        log=str(words.log),
        nodes=words.take,
        walltime_s=words.walltime,
        drain_s=words.drain,
        after=tuple(words.after),
        submit=SystemClock().now() / 1000,
    )
    number = job.asked.id
    argv = [sys.executable, "-m", "crosstrain.batch.local", "supervise", f"--dir={directory}", f"--nodes={words.nodes}"]
    spawn([*argv, str(number)], log=job.directory / "supervisor.log")
    # A listing right after this must find the job supervised.
    while not job.has_supervisor and job.fact("end") is None:
        pause(LOCAL_SUPERVISED_S)
    sys.stdout.write(f"{number}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
