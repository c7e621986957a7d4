"""Slurm as an `Adapter`. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC
from pathlib import PurePath

from crosstrain.batch.job import Job, Shape, script
from crosstrain.batch.printed import Output
from crosstrain.batch.readings import JobRow, Listing, Probe, Submission
from crosstrain.batch.slurm import accounting, queue
from crosstrain.batch.slurm.submission import read_probe, read_submission


class Slurm:
    """Slurm 20.02 to 26.05. All times are asked for in epoch seconds, and taken for UTC where a wrapper loses that wish."""

    name = "slurm"

    def script(self, job: Job) -> str:
        words = _shape(job.shape)
        directives = [
            f"--job-name={job.name}",
            *words,
            "--ntasks-per-node=1",
            f"--signal=B:USR1@{job.drain_s}",
            # A requeued job goes on in the same file.
            "--open-mode=append",
        ]
        return script(job, [f"#SBATCH {word}" for word in directives], "SLURM_JOB_END_TIME")

    def submit(self, job: Job, script: PurePath) -> list[str]:
        # Paths on the command line, where blanks need no quoting; a percent sign would be a pattern.
        log = str(job.log or job.directory / job.name).replace("%", "%%") + ("" if job.log else "-%j.log")
        after = [f"--dependency=afterany:{':'.join(job.after)}"] if job.after else []
        return ["sbatch", "--parsable", f"--chdir={job.directory}", f"--output={log}", *after, str(script)]

    def read_submit(self, output: Output) -> Submission:
        return read_submission(output)

    def jobs(self, ids: Sequence[str]) -> list[str]:
        return ["squeue", "-h", "-a", "-t", "all", "-j", ",".join(ids), "-o", queue.FORMAT]

    def read_jobs(self, output: Output) -> Listing[JobRow]:
        return self.read_queue(output)

    def ended(self, ids: Sequence[str]) -> list[str]:
        return accounting.accounting_command(0, jobs=ids)

    def read_ended(self, output: Output) -> Listing[JobRow]:
        return accounting.read_accounting(output, UTC, given=accounting.COLUMNS)

    def queue(self, user: str | None) -> list[str]:
        return queue.queue_command(user=user, states=("PENDING", "RUNNING", "SUSPENDED", "CONFIGURING"))

    def read_queue(self, output: Output) -> Listing[JobRow]:
        return queue.read_queue(output, UTC, given=queue.COLUMNS)

    def named(self, name: str) -> list[str]:
        return ["squeue", "-h", "-a", "-t", "all", f"--name={name}", "-o", queue.FORMAT]

    def named_ended(self, name: str, since: int) -> list[str]:
        return accounting.accounting_command(since, names=[name])

    def cancel(self, ids: Sequence[str]) -> list[str]:
        return ["scancel", *ids]

    def probe(self, shape: Shape) -> list[str]:
        # --wrap: inside a job script --test-only would also read that script's directives.
        return ["sbatch", "--test-only", *_shape(shape), "--ntasks-per-node=1", "--wrap", "true"]

    def read_probe(self, output: Output) -> Probe:
        return read_probe(output, UTC)


def _shape(shape: Shape) -> list[str]:
    words = [
        f"--nodes={shape.nodes}",
        f"--time={shape.minutes}",
        f"--partition={shape.partition}" if shape.partition else None,
        f"--account={shape.account}" if shape.account else None,
        f"--qos={shape.qos}" if shape.qos else None,
        f"--gpus-per-node={shape.gpus_per_node}" if shape.gpus_per_node else None,
        f"--cpus-per-task={shape.cpus_per_task}" if shape.cpus_per_task else None,
        *shape.options,
    ]
    return [word for word in words if word is not None]
