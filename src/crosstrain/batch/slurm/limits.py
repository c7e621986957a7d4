"""`scontrol show partition|reservation` and `sacctmgr show qos|assoc`: what a site allows. Pure.

A probe does not test most of these: walltimes over a partition's limit, partitions that are down and limits on running jobs
all pass `--test-only` and then wait for ever. Shapes are checked against this first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, tzinfo
from itertools import zip_longest

from crosstrain.batch.nodelist import expand
from crosstrain.batch.printed import Output, numbered_lines
from crosstrain.batch.readings import Limits, Listing, PartitionLimits, Problem, Reservation
from crosstrain.batch.slurm.messages import failed, is_message
from crosstrain.batch.tables import read_table
from crosstrain.batch.times import duration_s, timestamp

PARTITIONS = ["scontrol", "-a", "-o", "show", "partition"]
RESERVATIONS = ["scontrol", "-a", "-o", "show", "reservation"]
PING = ["scontrol", "ping"]

QOS_FIELDS = ("Name", "MaxWall", "MaxTRES", "MaxTRESPU", "GrpTRES", "MaxJobsPU", "MaxSubmitPU", "Flags")
ASSOC_FIELDS = ("Account", "Partition", "MaxWall", "MaxTRES", "GrpTRES", "MaxJobs", "MaxSubmit", "QOS")

_PAIR = re.compile(r"(?:^|\s)([A-Za-z][\w/:()]*)=")
_NODES = re.compile(r"(?:^|,)node=(\d+)")
_NAMES = {
    "name": "name", "maxwall": "wall", "maxwalldurationperjob": "wall", "maxtres": "tres", "maxtrespj": "tres",
    "maxtresperjob": "tres", "maxtrespu": "user_tres", "maxtresperuser": "user_tres", "grptres": "group_tres",
    "maxjobspu": "jobs", "maxjobsperuser": "jobs", "maxjobs": "jobs", "maxsubmitpu": "submit", "maxsubmit": "submit",
    "maxsubmitjobsperuser": "submit", "maxsubmitjobs": "submit", "maxsubmitjobspu": "submit", "flags": "flags",
    "account": "account", "partition": "partition", "qos": "qos", "user": "user", "cluster": "cluster",
    "priority": "priority", "share": "share", "grpjobs": "group_jobs", "grpsubmit": "group_submit",
    "grpwall": "group_wall", "def qos": "default_qos", "gracetime": "grace", "preempt": "preempt",
}  # fmt: skip


def qos_command() -> list[str]:
    """Limits of every QoS."""
    return ["sacctmgr", "-nP", "show", "qos", f"format={','.join(QOS_FIELDS)}"]


def assoc_command(user: str) -> list[str]:
    """Limits and QoS of a user's associations."""
    fields = ",".join(ASSOC_FIELDS)
    return ["sacctmgr", "-nP", "show", "assoc", f"user={user}", f"format={fields}"]


def is_up(output: Output) -> bool | None:
    """Reads `scontrol ping`, which answers at once where every other command takes its time-out: whether a controller is
    up, None if that cannot be told.
    """
    if re.search(r"\bis UP\b", output.both):
        return True
    return False if re.search(r"\bis DOWN\b", output.both) else None


def read_partitions(output: Output) -> Listing[PartitionLimits]:
    """Reads `scontrol show partition`, with one record per line or indented."""
    rows, problems = [], []
    for number, record in _records(output.stdout, "PartitionName"):
        name = record.get("PartitionName", "")
        if not name:
            problems.append(Problem(number, str(dict(record))[:200], "no PartitionName"))
            continue
        rows.append(
            PartitionLimits(
                partition=name,
                state=record.get("State", "UNKNOWN"),
                nodes=_whole(record.get("TotalNodes")),
                max_nodes=_whole(record.get("MaxNodes")),
                min_nodes=_whole(record.get("MinNodes")),
                max_time_s=duration_s(record.get("MaxTime", "")),
                default_time_s=duration_s(record.get("DefaultTime", "")),
                default=record.get("Default") == "YES",
                qos=None if record.get("QoS", "N/A") == "N/A" else record["QoS"],
            )
        )
    return Listing(tuple(rows), (*problems, *_messages(output.stdout)), failed(output))


def read_reservations(output: Output, zone: tzinfo | None = None, now: datetime | None = None) -> Listing[Reservation]:
    """Reads `scontrol show reservation`."""
    rows = [
        Reservation(
            name=record["ReservationName"],
            start=timestamp(record.get("StartTime", ""), zone, now),
            end=timestamp(record.get("EndTime", ""), zone, now),
            nodes=expand(record.get("Nodes", "")),
            node_count=_whole(record.get("NodeCnt")),
            flags=frozenset(flag for flag in record.get("Flags", "").split(",") if flag),
            state=record.get("State"),
            partition=None if record.get("PartitionName", "(null)") == "(null)" else record["PartitionName"],
        )
        for _, record in _records(output.stdout, "ReservationName")
    ]
    return Listing(tuple(rows), _messages(output.stdout), failed(output))


def read_qos(output: Output, given: Sequence[str] = ()) -> Listing[Limits]:
    """Reads `qos_command`, or `sacctmgr -P show qos` with a header."""
    return _limits(output, given or tuple(_NAMES[field.lower()] for field in QOS_FIELDS))


def read_assoc(output: Output, given: Sequence[str] = ()) -> Listing[Limits]:
    """Reads `assoc_command`, or `sacctmgr -P show assoc` with a header."""
    return _limits(output, given or tuple(_NAMES[field.lower()] for field in ASSOC_FIELDS))


def _limits(output: Output, columns: Sequence[str]) -> Listing[Limits]:
    table = read_table(output.stdout, _NAMES, lambda _rows: columns, given=columns, error=is_message)
    rows = tuple(_limit(line.cells) for line in table.rows)
    return Listing(rows, table.problems, failed(output))


def _limit(cells: Mapping[str, str]) -> Limits:
    name = cells.get("name") or "/".join(filter(None, (cells.get("account"), cells.get("partition"))))
    return Limits(
        name=name,
        max_wall_s=duration_s(cells.get("wall", "")),
        max_nodes=_node_count(cells.get("tres", "")),
        user_nodes=_node_count(cells.get("user_tres", "")),
        group_nodes=_node_count(cells.get("group_tres", "")),
        max_jobs=_whole(cells.get("jobs")),
        max_submit=_whole(cells.get("submit")),
        qos=tuple(word for word in cells.get("qos", "").split(",") if word),
        flags=frozenset(flag for flag in cells.get("flags", "").split(",") if flag),
    )


def _records(text: str, first: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Records of ``Key=value`` pairs; each begins with the key `first`. Values may hold blanks."""
    record: dict[str, str] = {}
    begun = 0
    for number, line in numbered_lines(text):
        pairs = list(_PAIR.finditer(line))
        for found, following in zip_longest(pairs, pairs[1:]):
            if found[1] == first and record:
                yield begun, record
                record = {}
            if found[1] == first or record:
                begun = number if found[1] == first else begun
                record[found[1]] = line[found.end() : following.start() if following else len(line)].strip()
    if record:
        yield begun, record


def _messages(text: str) -> tuple[Problem, ...]:
    return tuple(
        Problem(number, line, "a message, not a row") for number, line in numbered_lines(text) if is_message(line)
    )


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None


def _node_count(tres: str) -> int | None:
    found = _NODES.search(tres)
    return int(found[1]) if found else None
