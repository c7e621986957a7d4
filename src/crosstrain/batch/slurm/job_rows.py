"""A row of squeue or sacct as a `JobRow`. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, tzinfo

from crosstrain.batch.nodelist import expand
from crosstrain.batch.readings import ArrayTasks, JobRow, JobState
from crosstrain.batch.times import duration_s, is_unlimited, timestamp

NAMES = {
    "jobid": "id", "jobidraw": "idraw", "job_id": "id", "array_job_id": "id",
    "name": "name", "jobname": "name", "user": "user", "account": "account", "partition": "partition",
    "st": "state", "state": "state", "jobstate": "state",
    "time": "elapsed", "elapsed": "elapsed", "elapsedraw": "elapsed_s", "time_left": "left",
    "time_limit": "limit", "timelimit": "limit", "timelimitraw": "limit_min",
    "nodes": "nodes", "nnodes": "nodes", "allocnodes": "allocnodes", "cpus": "processors", "ncpus": "processors",
    "alloccpus": "processors", "nodelist(reason)": "where", "nodelist": "nodelist", "reason": "reason",
    "start_time": "start", "start": "start", "end_time": "end", "end": "end", "submit_time": "submit", "submit": "submit",
    "eligible": "eligible", "eligible_time": "eligible", "reserved": "waited", "planned": "waited",
    "schednodes": "sched", "priority": "priority", "qos": "qos", "cluster": "cluster", "exitcode": "exitcode",
    "exec_host": "exec_host", "totalcpu": "totalcpu", "tres_per_node": "tres_per_node", "comment": "comment",
    "alloctres": "alloctres", "reqtres": "reqtres", "reqmem": "reqmem", "min_memory": "min_memory",
}  # fmt: skip
"""Lower-case header words of squeue and sacct, and the canonical column of each."""

CODES = {
    "PD": "PENDING", "CF": "CONFIGURING", "R": "RUNNING", "CG": "COMPLETING", "CD": "COMPLETED", "CA": "CANCELLED",
    "F": "FAILED", "TO": "TIMEOUT", "NF": "NODE_FAIL", "PR": "PREEMPTED", "S": "SUSPENDED", "ST": "STOPPED",
    "BF": "BOOT_FAIL", "DL": "DEADLINE", "OOM": "OUT_OF_MEMORY", "RQ": "REQUEUED", "RF": "REQUEUE_FED",
    "RH": "REQUEUE_HOLD", "RD": "RESV_DEL_HOLD", "SE": "SPECIAL_EXIT", "SI": "SIGNALING", "SO": "STAGE_OUT",
    "RS": "RESIZING", "RV": "REVOKED", "PO": "POWER_UP_NODE", "LF": "LAUNCH_FAILED", "RC": "RECONFIG_FAIL",
    "EI": "EXPEDITING", "UP": "UPDATE_DB",
}  # fmt: skip

MEANING = {
    "PENDING": JobState.PENDING, "REQUEUE_HOLD": JobState.PENDING, "REQUEUE_FED": JobState.PENDING,
    "RESV_DEL_HOLD": JobState.PENDING, "SPECIAL_EXIT": JobState.PENDING,
    "CONFIGURING": JobState.RUNNING, "RUNNING": JobState.RUNNING, "COMPLETING": JobState.RUNNING,
    "SIGNALING": JobState.RUNNING, "STAGE_OUT": JobState.RUNNING, "RESIZING": JobState.RUNNING,
    "POWER_UP_NODE": JobState.RUNNING, "SUSPENDED": JobState.SUSPENDED, "STOPPED": JobState.SUSPENDED,
    "COMPLETED": JobState.COMPLETED, "CANCELLED": JobState.CANCELLED, "REVOKED": JobState.CANCELLED,
    "FAILED": JobState.FAILED, "OUT_OF_MEMORY": JobState.FAILED, "BOOT_FAIL": JobState.FAILED,
    "LAUNCH_FAILED": JobState.FAILED, "RECONFIG_FAIL": JobState.FAILED, "DEADLINE": JobState.FAILED,
    "TIMEOUT": JobState.TIMEOUT, "NODE_FAIL": JobState.NODE_FAIL, "PREEMPTED": JobState.PREEMPTED,
    "REQUEUED": JobState.REQUEUED,
}  # fmt: skip

_ID = re.compile(r"(\d+)(?:_(?:(\d+)|\[([^\]]*)\]?)|\+(\d+))?((?:\.[\w+]+)?)")
_NUMBERS = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?")
_LARGEST_ARRAY = 1_000_000


def state_of(text: str) -> tuple[JobState, str]:
    """Meaning and word of a state as Slurm prints it: codes, "CANCELLED by 1000", words cut off with a plus."""
    words = text.split()
    word = words[0] if words else ""
    if len(word) > 3 and word.endswith("+"):
        word = next((long for long in MEANING if long.startswith(word[:-1].upper())), word)
    return MEANING.get(CODES.get(word, word).upper(), JobState.UNKNOWN), word


def is_step(id_text: str) -> bool:
    """Whether an id is a job step's, such as 12.batch."""
    found = _ID.fullmatch(id_text)
    return bool(found and found[5])


def is_job_id(text: str) -> bool:
    """Whether a text is the id of a job, an array task, a component or a step."""
    return _ID.fullmatch(text) is not None


def job_row(
    cells: Mapping[str, str], zone: tzinfo | None, now: datetime | None, cluster: str | None = None, steps: int = 0
) -> JobRow:
    """A row from canonical cells.

    Raises:
        ValueError: the id is not one; the message says so.
    """
    id_text = cells.get("id") or cells.get("idraw") or ""
    found = _ID.fullmatch(id_text)
    if found is None:
        raise ValueError(f"{id_text[:40]!r} is no job id")
    state, word = state_of(cells.get("state", ""))
    limit = cells.get("limit", "")
    minutes = cells.get("limit_min", "")
    elapsed = cells.get("elapsed_s", "")
    return JobRow(
        job_id=f"{found[1]}_{found[2]}" if found[2] else found[1],
        state=state,
        state_word=word,
        id_text=id_text,
        component=int(found[4]) if found[4] else None,
        array=_array(found[3]) if found[3] is not None else None,
        name=cells.get("name"),
        user=cells.get("user"),
        partition=cells.get("partition") or None,
        cluster=cells.get("cluster") or cluster,
        nodes=_whole(cells.get("nodes") or cells.get("allocnodes")),
        processors=_whole(cells.get("processors")),
        submit=timestamp(cells.get("submit", ""), zone, now),
        eligible=timestamp(cells.get("eligible", ""), zone, now),
        start=timestamp(cells.get("start", ""), zone, now),
        end=timestamp(cells.get("end", ""), zone, now),
        time_limit_s=60 * int(minutes) if minutes.isdecimal() else duration_s(limit),
        unlimited=is_unlimited(limit) or is_unlimited(minutes),
        elapsed_s=int(elapsed) if elapsed.isdecimal() else duration_s(cells.get("elapsed", "")),
        waited_s=duration_s(cells.get("waited", "")),
        priority=_number(cells.get("priority")),
        reason=_reason(cells),
        sched_nodes=expand(cells.get("sched", "")),
        steps=steps,
    )


def _reason(cells: Mapping[str, str]) -> str | None:
    """Why a job waits; NODELIST(REASON) holds it in parentheses, or else the nodes of a running job."""
    where = cells.get("where", "")
    reason = cells.get("reason") or (where if where.startswith("(") else "")
    if reason.startswith("("):
        reason = reason[1:].removesuffix(")")
    return None if reason.lower() in ("", "none") else reason


def _array(text: str) -> ArrayTasks | None:
    members, _, throttle = text.partition("%")
    indices: list[int] = []
    ranges = 0
    for part in members.split(","):
        found = _NUMBERS.fullmatch(part.strip())
        if not found:
            # "..." where Slurm cut a long list.
            continue
        first, last, step = int(found[1]), int(found[2] or found[1]), int(found[3] or 1)
        if not 0 <= last - first < _LARGEST_ARRAY - len(indices) or step < 1:
            return None
        indices += range(first, last + 1, step)
        ranges += 1
    return ArrayTasks(tuple(indices), ranges, int(throttle) if throttle.isdecimal() else None)


def _whole(text: str | None) -> int | None:
    found = re.match(r"\d+(?=\D?)", text or "")
    if not found:
        return None
    # squeue abbreviates thousands: 2K
    return int(found[0]) * (1024 if (text or "").upper().endswith("K") else 1)


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None
