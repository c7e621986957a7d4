"""`sinfo`: partitions, states of nodes, GPUs. Pure. Idle nodes are no proof of a short wait: others may be ahead."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from crosstrain.batch.printed import Output
from crosstrain.batch.readings import Listing, NodeRow, PartitionRow, Problem
from crosstrain.batch.slurm.messages import failed, is_message
from crosstrain.batch.tables import SEPARATOR, Table, read_table
from crosstrain.batch.times import duration_s, is_unlimited

FIELDS = (
    ("%P", "partition"), ("%a", "avail"), ("%l", "limit"), ("%D", "nodes"), ("%T", "state"), ("%G", "gres"),
    ("%N", "nodelist"),
)  # fmt: skip

COMMAND = ["sinfo", "-h", "-a", "-o", SEPARATOR.join(letter for letter, _ in FIELDS)]
"""One row per partition, state and kind of node."""

NAMES = {
    "partition": "partition", "avail": "avail", "timelimit": "limit", "nodes": "nodes", "state": "state",
    "statelong": "state", "statecompact": "state", "nodelist": "nodelist", "hostnames": "node", "nodehost": "node",
    "nodes(a/i/o/t)": "counts", "cpus(a/i/o/t)": "cpu_counts", "cpus": "cpus", "s:c:t": "sct", "memory": "memory",
    "tmp_disk": "tmp_disk", "weight": "weight", "avail_fe": "features", "avail_features": "features",
    "active_features": "features", "reason": "reason", "gres": "gres", "gres_used": "gres_used",
    "gresused": "gres_used", "free_mem": "free_mem", "cpu_load": "cpu_load", "user": "user", "timestamp": "start",
    "resv_name": "resv", "start_time": "start", "end_time": "end", "duration": "duration", "root": "root", "oversubs": "oversubs", "groups": "groups", "job_size": "job_size", "prio_tier": "prio",
}  # fmt: skip

FLAGS = {
    "*": "not_responding", "~": "powered_off", "#": "powering_up", "%": "powering_down", "$": "maintenance",
    "@": "pending_reboot", "^": "reboot_issued", "!": "pending_power_down", "-": "planned",
}  # fmt: skip
"""Suffixes of a node state; `planned` is held by the backfill plan for a job that waits."""

_SAID = {
    "planned": "planned", "plnd": "planned", "maint": "maintenance", "maintenance": "maintenance",
    "not_responding": "not_responding", "no_respond": "not_responding", "powered_down": "powered_off",
    "pow_dn": "powered_off", "powering_down": "powering_down", "powering_up": "powering_up", "pow_up": "powering_up",
    "reboot_requested": "pending_reboot", "reboot_issued": "reboot_issued",
}  # fmt: skip
"""The same said in words: as a state of its own, or joined on with a plus by StateComplete."""

_GPU = re.compile(r"gpu(?::([\w.-]+))?:(\d+)(?![\w.])")
"""A type can begin with a digit, as the slices of a GPU do: 1g.10gb."""
_STATE = re.compile(r"([A-Za-z_]+(?:\+[A-Za-z_]+)*)([*~#%$@^!-]*)")
_NODE_LIST = re.compile(r"[A-Za-z][\w.-]*\d(?:,.*)?|[A-Za-z][\w.-]*\[[\d,-]+\].*")
_COUNTS = re.compile(r"(\d+)/(\d+)/(\d+)/(\d+)")
_LIMIT = re.compile(r"infinite|unlimited|(?:\d+-)?\d+:\d\d(?::\d\d)?", re.IGNORECASE)


def read_nodes(output: Output, given: Sequence[str] = ()) -> Listing[PartitionRow | NodeRow]:
    """Reads sinfo: rows of partitions, or of nodes where the format names nodes and no partition."""
    failure = failed(output)
    table = node_table(output, given)
    rows: list[PartitionRow | NodeRow] = []
    problems = list(table.problems)
    for line in table.rows:
        row = _partition(line.cells, line.cluster) if line.cells.get("partition") else _node(line.cells)
        if row is None:
            problems.append(Problem(line.number, line.text.strip(), "neither a partition nor a node"))
        else:
            rows.append(row)
    return Listing(tuple(rows), tuple(problems), failure)


def node_table(output: Output, given: Sequence[str] = ()) -> Table:
    """The rows as text."""
    return read_table(output.stdout, NAMES, _guess, given=given, error=is_message)


def partition_rows(listing: Listing[PartitionRow | NodeRow]) -> tuple[PartitionRow, ...]:
    """The rows about partitions."""
    return tuple(row for row in listing.rows if isinstance(row, PartitionRow))


def node_state(text: str) -> tuple[str | None, frozenset[str]]:
    """Base state in lower case, and what its suffixes say."""
    found = _STATE.fullmatch(text.strip())
    if not found:
        return None, frozenset()
    words = found[1].lower().split("+")
    return found[1].lower(), frozenset(FLAGS[mark] for mark in found[2]) | {
        _SAID[word] for word in words if word in _SAID
    }


def _partition(cells: Mapping[str, str], cluster: str | None) -> PartitionRow | None:
    name = cells["partition"]
    available = cells.get("avail")
    limit = cells.get("limit", "")
    state, flags = node_state(cells.get("state", ""))
    counts = _COUNTS.fullmatch(cells.get("counts", ""))
    nodes = cells.get("nodes", "")
    kind, gpus = _gpus(cells.get("gres", ""))
    if not re.fullmatch(r"[\w.+-]+\*?", name):
        return None
    return PartitionRow(
        partition=name.removesuffix("*"),
        default=name.endswith("*"),
        up=None if available is None else available.lower() == "up",
        availability=available.lower() if available else None,
        time_limit_s=duration_s(limit),
        unlimited=is_unlimited(limit),
        nodes=int(nodes) if nodes.isdecimal() else (int(counts[4]) if counts else None),
        state=state,
        flags=flags,
        counts=(int(counts[1]), int(counts[2]), int(counts[3]), int(counts[4])) if counts else None,
        node_list=cells.get("nodelist") or cells.get("node") or None,
        gpu_type=kind,
        gpus=gpus,
        cluster=cluster,
    )


def _node(cells: Mapping[str, str]) -> NodeRow | None:
    name = cells.get("node") or cells.get("nodelist") or ""
    if not re.fullmatch(r"[A-Za-z][\w.-]*(?:\[[\d,-]+\])?", name):
        return None
    state, flags = node_state(cells.get("state", ""))
    kind, gpus = _gpus(cells.get("gres", ""))
    return NodeRow(name, state, flags, kind, gpus, _gpus(cells.get("gres_used", ""))[1])


def _gpus(gres: str) -> tuple[str | None, int | None]:
    """Type and number of GPUs in a gres text such as ``gpu:a100:4(S:0-3),nsight:1``; several types add up."""
    found = _GPU.findall(gres)
    if not found:
        return None, None
    kinds = {kind for kind, _ in found if kind}
    return kinds.pop() if len(kinds) == 1 else None, sum(int(count) for _, count in found)


def _guess(rows: Sequence[Sequence[str]]) -> list[str]:
    width = max((len(row) for row in rows), default=0)
    if width == len(FIELDS) and all(len(row) == width and row[1] in ("up", "down", "drain", "inact") for row in rows):
        return [column for _, column in FIELDS]
    names = ["-"] * width
    for index in range(width):
        cells = [row[index].strip() for row in rows if index < len(row)]
        for name, fits in (
            ("gres_used", lambda cell: "IDX:" in cell or ("gpu:" in cell and "gres" in names)),
            ("gres", lambda cell: "gpu:" in cell or cell == "(null)"),
            ("counts", lambda cell: "nodes" not in names and _COUNTS.fullmatch(cell)),
            ("avail", lambda cell: cell.lower() in ("up", "down", "drain", "inact", "inactive")),
            ("limit", _LIMIT.fullmatch),
            ("nodes", str.isdecimal),
            ("state", lambda cell: node_state(cell)[0] in _STATES),
        ):
            if name not in names and cells and all(fits(cell) for cell in cells):
                names[index] = name
                break
    if width and names[0] == "-":
        # Nothing but a partition's row says up or down, or how long its jobs may be.
        names[0] = "partition" if {"avail", "limit", "counts"} & set(names) else "node"
    for index in range(1, width):
        if names[index] == "-" and all(_NODE_LIST.fullmatch(row[index].strip()) for row in rows if index < len(row)):
            names[index] = "nodelist"
            break
    return names


_STATES = frozenset(
    {
        "idle", "alloc", "allocated", "mix", "mixed", "down", "drain", "drained", "draining", "drng", "comp",
        "completing", "maint", "resv", "reserved", "plnd", "planned", "fail", "failing", "unk", "unknown", "boot",
        "future", "futr", "inval", "powering_down", "powered_down", "pow_dn", "pow_up", "powering_up", "reboot",
        "no_respond", "perfctrs", "npc", "blocked", "block",
    }
)  # fmt: skip
