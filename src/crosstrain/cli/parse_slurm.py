"""Slurm's outputs as JSON documents."""

from __future__ import annotations

from datetime import UTC

from crosstrain.batch.flux import read_submission as read_flux
from crosstrain.batch.pbs.refusals import read_qsub
from crosstrain.batch.printed import Output
from crosstrain.batch.readings import JobState, Limits, NodeRow, Outcome, PartitionLimits, PartitionRow, Reservation
from crosstrain.batch.slurm import limits as slurm_limits
from crosstrain.batch.slurm import nodes as slurm_nodes
from crosstrain.batch.slurm.accounting import accounting_table, counts_for_usage, histories, read_accounting
from crosstrain.batch.slurm.queue import columns_of, queue_table, read_queue
from crosstrain.batch.slurm.submission import read_probe, read_submission
from crosstrain.cli.parse_documents import (
    Context,
    Document,
    failure_document,
    job_document,
    listing_document,
    submission_document,
    when,
)


def testonly(output: Output, context: Context) -> Document:
    """`sbatch --test-only`."""
    probe = read_probe(output, context.zone, context.now)
    found = probe.estimate
    document: Document = {
        "outcome": probe.outcome.value,
        **when("start", found.start if found else None),
        "start_text": found.start_text if found else None,
        "node_list": list(found.nodes) if found else None,
        "node_expr": found.node_expr if found else None,
        "node_count": len(found.nodes) if found and found.nodes else None,
        "processors": found.processors if found else None,
        "partition": found.partition if found else None,
        "cluster": found.cluster if found else None,
        "placeholder_job_id": found.placeholder_job_id if found else None,
        "job_id": None,
        "preempts": [int(job) if job.isdecimal() else job for job in found.preempts] if found else [],
        "warnings": list(probe.warnings),
        **failure_document(probe.failure),
    }
    if found and found.start and context.now is not None:
        # Both are read in one zone, or both in none.
        now = context.now.replace(tzinfo=context.zone or UTC).timestamp()
        since = found.start.epoch if found.start.epoch is not None else found.start.bare
        document["wait_s"] = max(0.0, since - now)
    return document


def submit(output: Output, _context: Context) -> Document:
    """`sbatch`, `srun` or `salloc`; an output of `qsub` or `flux batch` is told by its words."""
    found = read_submission(output)
    if found.outcome is Outcome.UNPARSEABLE:
        for read in (read_qsub, read_flux):
            other = read(output)
            if other.outcome is not Outcome.UNPARSEABLE:
                return submission_document(other)
    return submission_document(found)


def squeue(output: Output, context: Context) -> Document:
    """`squeue`, `squeue --start`."""
    given = columns_of(context.columns) if context.columns else ()
    listing = read_queue(output, context.zone, context.now, given)
    rows = [
        {
            **job_document(row, row.state_word),
            "time_used_s": row.elapsed_s,
            "sched_nodes": list(row.sched_nodes) or None,
            "priority": row.priority,
            "queue_estimate": row.start_is_plan if row.state is JobState.PENDING else None,
            "eligible": row.in_queue if row.state is JobState.PENDING else None,
        }
        for row in listing.rows
    ]
    return listing_document(listing, rows, queue_table(output, given).source)


def sacct(output: Output, context: Context) -> Document:
    """`sacct`; where all rows are of one job, also that job in sum."""
    given = columns_of(context.columns) if context.columns else ()
    listing = read_accounting(output, context.zone, context.now, given)
    rows = [
        {
            **job_document(row, row.state_word if row.state is not JobState.UNKNOWN else f"UNKNOWN:{row.state_word}"),
            "elapsed_s": row.elapsed_s,
            "wait_s": row.wait_s,
            "waiting_so_far_s": row.waited_s if row.state is JobState.PENDING else None,
            "ratio": None if row.usage_ratio is None else round(row.usage_ratio, 3),
            "use_for_usage_ratio": counts_for_usage(row),
            "steps": row.steps,
        }
        for row in listing.rows
    ]
    document = listing_document(listing, rows, accounting_table(output, given).source)
    jobs = histories(listing.rows)
    if len(jobs) == 1 and len(listing.rows) > 1:
        job, final = jobs[0], jobs[0].final
        ratio = final.elapsed_s / final.time_limit_s if final.elapsed_s and final.time_limit_s else None
        document |= {
            "job_id": job.job_id,
            "incarnations": job.incarnations,
            "components": job.components,
            "allocation_rows": list(dict.fromkeys(row.id_text for row in job.rows)),
            "elapsed_s": [row.elapsed_s for row in job.rows],
            "state": final.state_word,
            "final_state": final.state_word,
            "usage_ratio_of_final": None if ratio is None else round(ratio, 3),
        }
    return document


def sinfo(output: Output, context: Context) -> Document:
    """`sinfo`."""
    given = [slurm_nodes.NAMES.get(word, "-") for word in _words(context.columns)] if context.columns else ()
    listing = slurm_nodes.read_nodes(output, given)
    rows = [_partition(row) if isinstance(row, PartitionRow) else _node(row) for row in listing.rows]
    return listing_document(listing, rows, slurm_nodes.node_table(output, given).source)


def _words(columns: str) -> list[str]:
    letters = {"P": "partition", "R": "partition", "a": "avail", "l": "timelimit", "D": "nodes", "T": "state",
               "t": "state", "F": "nodes(a/i/o/t)", "N": "nodelist", "G": "gres", "n": "hostnames"}  # fmt: skip
    if "%" in columns:
        return [letters.get(part.lstrip(".0123456789")[:1], "-") for part in columns.split("%")[1:]]
    return [word.partition(":")[0].strip().lower() for word in columns.split(",")]


def _partition(row: PartitionRow) -> Document:
    document: Document = {
        "partition": row.partition,
        "default": row.default,
        "avail": row.availability,
        "time_limit_s": row.time_limit_s,
        "unlimited": row.unlimited,
        "nodes": row.nodes,
        "state": row.state,
        "not_responding": "not_responding" in row.flags,
        "planned": "planned" in row.flags,
        "flags": sorted(row.flags),
        "node_list": row.node_list,
        "gpu_type": row.gpu_type,
        "gpus": row.gpus,
        "cluster": row.cluster,
    }
    if row.counts is not None:
        document |= dict(zip(("alloc", "idle", "other", "total"), row.counts, strict=True))
    return document


def _node(row: NodeRow) -> Document:
    return {
        "node": row.node,
        "gpu_type": row.gpu_type,
        "gpus": row.gpus,
        "gpus_used": row.gpus_used,
        "state": row.state,
        "not_responding": "not_responding" in row.flags,
        "planned": "planned" in row.flags,
        "flags": sorted(row.flags),
    }


def scontrol_partition(output: Output, _context: Context) -> Document:
    """`scontrol show partition`."""
    listing = slurm_limits.read_partitions(output)
    return listing_document(listing, [_partition_limits(row) for row in listing.rows])


def _partition_limits(row: PartitionLimits) -> Document:
    return {
        "partition": row.partition,
        "state": row.state,
        "default": row.default,
        "nodes": row.nodes,
        "max_nodes": row.max_nodes,
        "min_nodes": row.min_nodes,
        "max_time_s": row.max_time_s,
        "default_time_s": row.default_time_s,
        "qos": row.qos,
    }


def scontrol_reservation(output: Output, context: Context) -> Document:
    """`scontrol show reservation`."""
    listing = slurm_limits.read_reservations(output, context.zone, context.now)
    return listing_document(listing, [_reservation(row) for row in listing.rows])


def _reservation(row: Reservation) -> Document:
    return {
        "name": row.name,
        **when("start", row.start),
        **when("end", row.end),
        "nodes": list(row.nodes),
        "node_count": row.node_count,
        "flags": sorted(row.flags),
        "state": row.state,
        "partition": row.partition,
    }


def sacctmgr_qos(output: Output, _context: Context) -> Document:
    """`sacctmgr -nP show qos` with our columns, or with a header."""
    listing = slurm_limits.read_qos(output)
    return listing_document(listing, [_limits(row) for row in listing.rows])


def sacctmgr_assoc(output: Output, _context: Context) -> Document:
    """`sacctmgr -nP show assoc` with our columns, or with a header."""
    listing = slurm_limits.read_assoc(output)
    return listing_document(listing, [_limits(row) for row in listing.rows])


def _limits(row: Limits) -> Document:
    return {
        "name": row.name,
        "max_wall_s": row.max_wall_s,
        "max_nodes": row.max_nodes,
        "user_nodes": row.user_nodes,
        "group_nodes": row.group_nodes,
        "max_jobs": row.max_jobs,
        "max_submit": row.max_submit,
        "qos": list(row.qos),
        "flags": sorted(row.flags),
    }
