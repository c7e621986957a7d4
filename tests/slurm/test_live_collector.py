"""`collect` and `submit` at a real Slurm with accounting: limits that no probe shows, a job that ended, an answer that was lost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.slurm.lab import Cluster, Lab, until

from crosstrain.batch.scheduler import BatchSystem
from crosstrain.collector.collect import collect
from crosstrain.collector.difference import Difference
from crosstrain.collector.opening import open_post
from crosstrain.collector.post import Post
from crosstrain.collector.submit import apply, look_at_queue
from crosstrain.config import RunConfig
from crosstrain.wire.placement import ItemBody, ShapeBody

pytestmark = pytest.mark.system

HOUR = 3600
SHAPES = [
    {"partition": "standard-g", "nodes": nodes, "hours": hours} for nodes, hours in ((1, 1.0), (2, 2.0), (1, 3.0))
]
SMALL = ShapeBody(partition="standard-g", nodes=1, walltime_s=HOUR)


@pytest.fixture
def lumi(slurm_accounting: Lab) -> Iterator[Cluster]:
    cluster = slurm_accounting.clusters["lumi"]
    yield cluster
    cluster.clear()


def post(cluster: Cluster, directory: Path, qos: str, command: str = "sleep 1") -> Post:
    program = directory / "program"
    program.write_text(f"#!/bin/sh\n{command}\n")
    program.chmod(0o755)
    batch = {
        "shapes": SHAPES,
        "account": "pool",
        "qos": qos,
        "user": "root",
        "prefix": ["env", f"SLURM_CONF={cluster.conf}"],
        "command": [str(program)],
        "probe_every_s": 0,
    }
    site = {"dir": str(directory), "batch": batch}
    config = RunConfig.model_validate(
        {"model": {"vocab_size": 8}, "run": {"name": f"live-{qos}"}, "sites": {"lumi": site}}
    )
    return open_post(config, directory / "RUN.toml", directory / "sites", "lumi")


def submit(at: Post, number: int) -> str:
    """Submits one item, whatever the planner would say."""
    item = ItemBody(name=f"{at.run}.lumi.{number}", shape=SMALL)
    queue = look_at_queue(at)
    done = apply(at, queue, Difference((), (item,), (), ()), None)
    assert done.refused == (), done
    return done.submitted[0].job_id or ""


def test_limits_of_qos_that_no_probe_shows_take_shapes_from_the_offer(lumi: Cluster, tmp_path: Path) -> None:
    found = collect(post(lumi, tmp_path, "debug")).report
    assert found is not None
    assert [(each.shape.nodes, each.shape.walltime_s) for each in found.offered] == [(1, HOUR), (2, 2 * HOUR)]
    assert any("QoS debug allows 2 h" in note for note in found.notes)
    assert found.max_queued == 1
    assert found.discount is None or 0 < found.discount <= 1


def test_job_that_slurm_forgot_is_known_from_accounting(lumi: Cluster, tmp_path: Path) -> None:
    at = post(lumi, tmp_path, "normal")
    job_id = submit(at, 1)
    until(lambda: not lumi.run("squeue", "-h", "-j", job_id, "-t", "PD,R,CG").stdout.strip(), "the job does not end")
    # As if it had happened long ago: neither queue nor journal know its id.
    (entry,) = at.journal.jobs().entries
    lost = entry.model_copy(update={"state": "intent", "job_id": None, "intent_ms": at.clock.now() - 30_000})
    at.journal.keep_jobs(at.journal.jobs().put(lost))
    forgetful = tmp_path / "squeue"
    forgetful.write_text('#!/bin/sh\n[ "$1" = squeue ] && exit 0\nexec "$@"\n')
    forgetful.chmod(0o755)
    system = BatchSystem(at.system.adapter, prefix=("env", f"SLURM_CONF={lumi.conf}", str(forgetful)))
    amnesic = replace(at, system=system)

    def state() -> str:
        collect(amnesic)
        (now,) = at.journal.jobs().entries
        return now.state

    assert amnesic.system.queue().rows == ()
    until(lambda: state() == "ended", "accounting does not know the job")
    (known,) = at.journal.jobs().entries
    assert (known.job_id, known.started_ms is not None) == (job_id, True)
