"""PBS as an `Adapter`. Pure. There is no dry run: a wait is known from jobs that queue, or from history."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import UTC
from pathlib import PurePath

from crosstrain.batch.adapter import NotOffered
from crosstrain.batch.job import Job, Shape, script
from crosstrain.batch.pbs.qstat import read_full
from crosstrain.batch.pbs.refusals import read_qsub
from crosstrain.batch.printed import Output
from crosstrain.batch.readings import JobRow, Listing, Probe, Submission
from crosstrain.domain.plural import counted


class Pbs:
    """OpenPBS and PBS Professional; times are UTC, because the clients run with TZ=UTC."""

    name = "pbs"

    def script(self, job: Job) -> str:
        directives = [f"#PBS {word}" for word in ("-N " + job.name, *_shape(job.shape), "-j oe", "-r n")]
        return script(job, directives, "")

    def submit(self, job: Job, script: PurePath) -> list[str]:
        log = ["-o", str(job.log or job.directory / f"{job.name}.log")]
        after = ["-W", f"depend=afterany:{':'.join(job.after)}"] if job.after else []
        return ["qsub", *log, *after, str(script)]

    def read_submit(self, output: Output) -> Submission:
        return read_qsub(output)

    def jobs(self, ids: Sequence[str]) -> list[str]:
        # -x: jobs that ended too, as long as the server keeps their history.
        return ["qstat", "-x", "-f", *ids]

    def read_jobs(self, output: Output) -> Listing[JobRow]:
        found = read_full(output, UTC)
        return Listing(tuple(each.row for each in found.rows), found.problems, found.failure)

    def ended(self, ids: Sequence[str]) -> list[str]:
        raise NotOffered(f"qstat -x tells of jobs that ended (asked for {len(ids)} more)")

    def read_ended(self, output: Output) -> Listing[JobRow]:
        return self.read_jobs(output)

    def queue(self, user: str | None) -> list[str]:
        return ["qstat", "-f", *(["-u", user] if user else [])]

    def read_queue(self, output: Output) -> Listing[JobRow]:
        return self.read_jobs(output)

    def named(self, name: str) -> list[str]:  # noqa: ARG002 qstat cannot choose by name; its reader does
        return ["qstat", "-x", "-f"]

    def named_ended(self, name: str, since: int) -> list[str]:
        raise NotOffered(f"qstat -x tells of jobs that ended (asked for {name} since {since})")

    def cancel(self, ids: Sequence[str]) -> list[str]:
        return ["qdel", *ids]

    def probe(self, shape: Shape) -> list[str]:
        raise NotOffered(f"PBS has no dry run (asked for {counted(shape.nodes, 'node')})")

    def read_probe(self, output: Output) -> Probe:
        raise NotOffered(f"PBS has no dry run (given {len(output.stdout)} characters)")


def _shape(shape: Shape) -> list[str]:
    chunk = [str(shape.nodes)]
    chunk += [f"ncpus={shape.cpus_per_task}"] if shape.cpus_per_task else []
    chunk += [f"ngpus={shape.gpus_per_node}"] if shape.gpus_per_node else []
    hours, minutes = divmod(shape.minutes, 60)
    words = [f"-l select={':'.join(chunk)}", f"-l walltime={hours:02}:{minutes:02}:00"]
    words += [f"-q {shape.partition}"] if shape.partition else []
    words += [f"-A {shape.account}"] if shape.account else []
    return [*words, *(shlex.quote(word) for word in shape.options)]
