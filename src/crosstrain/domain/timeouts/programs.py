"""Programs that are started and awaited: trainers, batch systems, trials of the doctor."""

from __future__ import annotations

from crosstrain.domain.timeouts.circumstances import Circumstances
from crosstrain.domain.timeouts.mailbox import RELAY_PULSE_S
from crosstrain.domain.timeouts.requests import REQUEST_S
from crosstrain.domain.timeouts.row import Timeout, fixed

TRAINER_LOOK_S = 0.05
TRAINER_ENDS_S = 5.0
COLLECTIVE_S = 1800.0
NEXT_COMMAND_S = 365 * 86400.0
GENERATE_S = 600.0
GENERATE_LOOK_S = 0.02
WORKERS_LOOK_S = 0.2
SCHEDULER_S = 60.0
DRAIN_SIGNAL_S = 300
PROBE_EVERY_S = 60.0
SHAPE_EVERY_S = 600.0
LOCAL_LOOK_S = 0.05
LOCAL_SUPERVISED_S = 0.01
LOCAL_KILL_S = 5.0
MEASURED_S = 5.0
NAME_S = 10.0
SILENCE_TRIED_S = 3.0
PULSE_WATCHED_S = 2.5 * RELAY_PULSE_S


def of_trainers(_found: Circumstances) -> tuple[Timeout, ...]:
    """The agent's children, and other work on this machine."""
    return (
        fixed("look while a trainer works", TRAINER_LOOK_S, "clock, coordinator and signals are heard so soon"),
        fixed(
            "end of a trainer",
            TRAINER_ENDS_S,
            "by itself, then by SIGTERM, then it is killed: all within a job's last 30 s",
        ),
        fixed(
            "other ranks in a collective", COLLECTIVE_S, "one checkpoint on a busy shared file system, as for a phase"
        ),
        fixed(
            "next command of rank 0",
            NEXT_COMMAND_S,
            "a year, for no end: a site may wait for hours; a lost rank 0 is noticed",
        ),
        fixed("answer of `generate`'s trainer", GENERATE_S, "its start, and a few hundred tokens on a processor"),
        fixed("look at that trainer", GENERATE_LOOK_S, "a person waits"),
        fixed("look at the workers of a corpus", WORKERS_LOOK_S, "progress is shown so often"),
    )


def of_schedulers(_found: Circumstances) -> tuple[Timeout, ...]:
    """Batch systems."""
    return (
        fixed(
            "one command of a scheduler", SCHEDULER_S, "Slurm's clients take 18 s to say that the controller is away"
        ),
        fixed(
            "drain signal before a job's end",
            DRAIN_SIGNAL_S,
            "default of `batch.drain_s`; only where the end is not known",
        ),
        fixed(
            "next look at a scheduler", PROBE_EVERY_S, "default of `batch.probe_every_s`: a scheduler is left in peace"
        ),
        fixed("next probe of a shape", SHAPE_EVERY_S, "default of `batch.shape_every_s`: forecasts change slowly"),
        fixed("look of a local job's supervisor", LOCAL_LOOK_S, "it stands for a scheduler in trials"),
        fixed("local job's supervisor", LOCAL_SUPERVISED_S, "looked for so often at the submission"),
        fixed("end of a local job", LOCAL_KILL_S, "between SIGTERM and SIGKILL"),
    )


def of_doctors(_found: Circumstances) -> tuple[Timeout, ...]:
    """Trials from where one stands."""
    return (
        fixed("answer to a trial", REQUEST_S, "as for a request"),
        fixed("name service", NAME_S, "those without a server take minutes to say so"),
        fixed("measurement of a rate", MEASURED_S, "long enough: larger bodies are left out then"),
        fixed(
            "connection that is left alone",
            SILENCE_TRIED_S,
            "default of `--silence`: a person waits for it; what cuts later shows when it is raised",
        ),
        fixed("pulse of a relay, watched", PULSE_WATCHED_S, "two of them, and a little for the file system"),
    )
