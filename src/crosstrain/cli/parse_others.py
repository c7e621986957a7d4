"""Outputs of PBS, Moab, LSF and Flux as JSON documents."""

from __future__ import annotations

from crosstrain.batch import flux, lsf, moab
from crosstrain.batch.pbs import qstat
from crosstrain.batch.pbs.refusals import read_qsub
from crosstrain.batch.printed import Output
from crosstrain.cli.parse_documents import (
    Context,
    Document,
    job_document,
    listing_document,
    submission_document,
    when,
)


def pbs_submit(output: Output, _context: Context) -> Document:
    """`qsub`."""
    return submission_document(read_qsub(output))


def flux_submit(output: Output, _context: Context) -> Document:
    """`flux batch` or `flux submit`."""
    return submission_document(flux.read_submission(output))


def pbs_qstat_f(output: Output, context: Context) -> Document:
    """`qstat -f`, as text or with `-F json`."""
    listing = qstat.read_full(output, context.zone, context.now)
    rows = [
        {
            **job_document(found.row, found.row.state_word),
            "queue": found.row.partition,
            **when("est_start", found.estimate),
            "elapsed_s": found.row.elapsed_s,
            "exit_status": found.exit_status,
        }
        for found in listing.rows
    ]
    return listing_document(listing, rows)


def pbs_qstat_t(output: Output, context: Context) -> Document:
    """`qstat -T`; a time of day is taken for one of `--now`."""
    listing = qstat.read_estimates(output, context.zone, context.now)
    rows = [
        {
            **job_document(found.row, found.row.state_word),
            "queue": found.row.partition,
            "array": found.array,
            **when("est_start", found.estimate),
            "est_start_text": found.estimate_text,
            "resolution": found.resolution,
        }
        for found in listing.rows
    ]
    return listing_document(listing, rows)


def moab_showstart(output: Output, _context: Context) -> Document:
    """`showstart JOB`."""
    listing = moab.read_showstart(output)
    rows = [
        {
            "job_id": row.job_id,
            "wait_s": row.wait_s,
            "start_text": row.start_text,
            "year_missing": row.year_missing,
            "processors": row.processors,
            "time_limit_s": row.time_limit_s,
        }
        for row in listing.rows
    ]
    return listing_document(listing, rows) | (rows[0] if rows else {})


def lsf_bjobs(output: Output, context: Context) -> Document:
    """`bjobs`."""
    listing = lsf.read_bjobs(output, [word.strip() for word in context.columns.split(",") if word.strip()])
    rows = [
        {
            "job_id": row.job_id,
            "state": row.state_word,
            "meaning": row.state.value,
            "queue": row.queue,
            "user": row.user,
            "name": row.name,
            "submit_text": row.submit_text,
            "start": None,
            "start_text": row.start_text,
            "killed_at_limit": row.killed_at_limit,
        }
        for row in listing.rows
    ]
    return listing_document(listing, rows)


def flux_json(output: Output, _context: Context) -> Document:
    """`flux jobs --json`, `flux job list`."""
    listing = flux.read_jobs(output)
    rows = [
        {
            **job_document(found.row, found.row.state_word),
            "job_id": int(found.row.job_id) if found.row.job_id.isdecimal() else found.row.job_id,
            "est_start_epoch": found.estimate,
            "wait_s_from_submit": None if found.wait_from_submit_s is None else round(found.wait_from_submit_s, 3),
        }
        for found in listing.rows
    ]
    return listing_document(listing, rows)
