"""Outputs of Slurm 22.05 as an ordinary user gets them under PrivateData=jobs,usage in slurm.conf and slurmdbd.conf, while
another user's jobs hold all nodes."""

from __future__ import annotations

from datetime import UTC

from crosstrain.batch.printed import Output
from crosstrain.batch.slurm import nodes
from crosstrain.batch.slurm.accounting import COLUMNS, read_accounting
from crosstrain.batch.slurm.queue import read_queue
from crosstrain.collector.history import discount
from crosstrain.collector.own_plan import others_hidden

QUEUE = "             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)\n"
NODES = (
    "standard-g*\x1fup\x1f2-00:00:00\x1f3\x1fallocated\x1fgpu:mi250:8\x1fnid[5001-5003]\n"
    "small-g\x1fup\x1f2-00:00:00\x1f3\x1fallocated\x1fgpu:mi250:8\x1fnid[5001-5003]\n"
)
ACCOUNTING = "7\x1fCOMPLETED\x1f1796004280\x1f1796004280\x1f1796004280\x1f1796004283\x1f3\x1f5\x1f1\x1fsmall-g\x1fpooler\x1fNone\n"
REFUSED = "slurm_load_partitions: Access/permission denied\n"
"""Of sinfo with `partitions` among the private data."""


def test_an_empty_queue_beside_busy_nodes_is_not_taken_for_no_queue() -> None:
    queue = read_queue(Output(QUEUE, "", 0), UTC)
    listing = nodes.read_nodes(Output(NODES, "", 0), given=tuple(name for _, name in nodes.FIELDS))
    assert queue.rows == () and queue.failure is None
    assert others_hidden(queue.rows, nodes.partition_rows(listing))


def test_an_own_job_of_seconds_is_no_usage_of_the_machine() -> None:
    listing = read_accounting(Output(ACCOUNTING, "", 0), UTC, given=COLUMNS)
    assert [each.user for each in listing.rows] == ["pooler"]
    assert discount(listing.rows) == (None, "no usage discount: only 1 job of 1 user can be seen")


def test_hidden_partitions_are_no_failure_of_the_controller() -> None:
    listing = nodes.read_nodes(Output("", REFUSED, 1))
    assert listing.rows == () and listing.failure is not None and listing.failure.kind == "access_denied"
