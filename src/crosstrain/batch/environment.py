"""The environment that scheduler clients are run with. Pure.

Inside a job, or with a profile that sets defaults, SBATCH_PARTITION redirects a probe, SLURM_CLUSTERS breaks it, and
SQUEUE_FORMAT changes what has to be parsed. So those variables go; what says which cluster this is stays.
"""

from __future__ import annotations

from collections.abc import Mapping

DROPPED = (
    "SLURM_",
    "SBATCH_",
    "SRUN_",
    "SALLOC_",
    "SQUEUE_",
    "SACCT_",
    "SINFO_",
    "SCONTROL_",
    "SPRIO_",
    "PBS_",
    "QSUB_",
)
KEPT = frozenset({"SLURM_CONF", "SLURM_JWT", "PBS_CONF_FILE", "PBS_EXEC", "PBS_SERVER", "PBS_DEFAULT"})
SET = {"LC_ALL": "C", "LANG": "C", "SLURM_TIME_FORMAT": "%s", "TZ": "UTC", "LSB_DISPLAY_YEAR": "Y"}
"""Epoch seconds from Slurm, UTC from the others: no zone and no change of the clock to get wrong."""


def client_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The whole environment of a scheduler client, from that of this process."""
    return _kept(environment) | SET


def submission_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Of a client that submits: schedulers hand it on to the job, which must keep the machine's zone and language."""
    return _kept(environment)


def _kept(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name in KEPT or not name.upper().startswith(DROPPED)}
