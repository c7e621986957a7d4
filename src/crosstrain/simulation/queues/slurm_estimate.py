"""What `sbatch --test-only` would say, by Slurm's own formula.

For a new job Slurm does not plan: it takes the first time at which enough nodes are free, counting only running jobs, each to
its time limit, and adds the node-time of the pending jobs of the partition whose priority is not below the new job's, spread
over the whole partition (`_foreach_job_start_data_part` and `_delayed_job_start_time` in Slurm's job_scheduler.c;
`_build_cr_job_list` in cons_tres/job_test.c). The job's own time limit does not enter.
"""

from __future__ import annotations

from collections.abc import Iterable


def drain_s(nodes: int, free: int, running: Iterable[tuple[int, float]]) -> float:
    """Seconds until `nodes` nodes are free if nothing else starts.

    Args:
        free: idle nodes now.
        running: nodes and seconds until the time limit of each running job, soonest first.

    Raises:
        ValueError: the machine has fewer.
    """
    if free >= nodes:
        return 0.0
    for size, left_s in running:
        free += size
        if free >= nodes:
            return left_s
    raise ValueError(f"the machine has {free} nodes, {nodes} are asked for")


def backlog_s(partition_nodes: int, ahead: Iterable[tuple[int, float]]) -> float:
    """Seconds that the partition needs for the pending jobs ahead, given as nodes and time limit, if it were always full."""
    return sum(nodes * limit_s for nodes, limit_s in ahead) / partition_nodes
