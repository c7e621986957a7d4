"""Messages of Slurm's clients among their rows, and commands that failed. Pure."""

from __future__ import annotations

import re

from crosstrain.batch.printed import Output
from crosstrain.batch.readings import Failure
from crosstrain.batch.slurm.submission import refused_by

_MESSAGE = re.compile(
    r"\s*(?:(?:squeue|sacct|sinfo|scontrol|sacctmgr|scancel)[\w.-]*: |slurm_load_\w+(?: error)?: |slurm_\w+ error: |Slurm accounting storage)",
    re.I,
)


def is_message(line: str) -> bool:
    """Whether a line is a client's message and no row."""
    return _MESSAGE.match(line) is not None


def failed(output: Output) -> Failure | None:
    """The failure of a command that lists something; None where it listed, be it nothing."""
    if output.exit_code == 0 and not output.timed_out:
        return None
    return refused_by(output)
