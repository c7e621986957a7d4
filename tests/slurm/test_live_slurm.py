"""The Slurm adapter against Slurm itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.slurm.lab import Cluster, Lab, until

from crosstrain.batch.job import Job, Shape
from crosstrain.batch.readings import JobState, Outcome, Retry
from crosstrain.batch.scheduler import BatchSystem
from crosstrain.batch.slurm import accounting, limits, nodes, queue
from crosstrain.batch.slurm.adapter import Slurm
from crosstrain.clock import SystemClock

pytestmark = pytest.mark.system

HOUR = 3600


def now() -> float:
    return SystemClock().now() / 1000


def job(name: str, directory: Path, command: str, shape: Shape | None = None, after: tuple[str, ...] = ()) -> Job:
    return Job(name, shape or Shape("gpu_h100", 1, HOUR), ("bash", "-c", command), directory, after=after)


def submitted(cluster: Cluster, wanted: Job, directory: Path) -> str:
    found = cluster.system().submit(wanted, directory)
    assert found.outcome is Outcome.SUBMITTED, found
    return found.job_ids[0]


def wait_for(cluster: Cluster, job_id: str, state: JobState) -> None:
    system = cluster.system()
    until(lambda: system.states([job_id])[0][job_id] is state, f"job {job_id} is not {state}")


def test_probe_of_an_idle_cluster_names_now_and_the_nodes(snellius: Cluster) -> None:
    probe = snellius.system().probe(Shape("gpu_h100", 2, 4 * HOUR, gpus_per_node=4))
    assert probe.outcome is Outcome.ESTIMATE, probe
    assert probe.estimate is not None
    assert probe.estimate.nodes == ("gcn1", "gcn2")
    assert probe.estimate.partition == "gpu_h100"
    assert probe.estimate.wait_s(now()) == pytest.approx(0, abs=60)


def test_probe_is_not_misled_by_the_environment(snellius: Cluster) -> None:
    environment = snellius.environment | {"SBATCH_PARTITION": "nope", "SLURM_CLUSTERS": "other", "SBATCH_QUIET": "1"}
    probe = BatchSystem(Slurm(), environment=environment).probe(Shape(None, 1, HOUR))
    assert probe.outcome is Outcome.ESTIMATE, probe


@pytest.mark.parametrize(
    ("shape", "kind", "retry"),
    [
        (Shape("nope", 1, HOUR), "bad_partition", Retry.NEVER),
        (Shape("gpu_h100", 5, HOUR), "node_count", Retry.NEVER),
        (Shape("gpu_h100", 1, 200 * HOUR), "time_limit", Retry.NEVER),
        (Shape("gpu_h100", 1, HOUR, gpus_per_node=5), "node_config_unavailable", Retry.MAYBE),
        (Shape("gpu_h100", 1, HOUR, options=("--gres=tpu:1",)), "bad_resource", Retry.NEVER),
        (Shape("gpu_h100", 1, HOUR, options=("--constraint=nosuch",)), "bad_feature", Retry.NEVER),
        (Shape("gpu_h100", 1, HOUR, options=("--reservation=nosuch",)), "bad_reservation", Retry.NEVER),
        (Shape("gpu_h100", 1, HOUR, options=("--nosuch",)), "bad_option", Retry.NEVER),
    ],
)
def test_refusals_are_told_apart(snellius: Cluster, tmp_path: Path, shape: Shape, kind: str, retry: Retry) -> None:
    probe = snellius.system().probe(shape)
    submission = snellius.system().submit(job("refused", tmp_path, "true", shape), tmp_path)
    for found in (probe, submission):
        assert found.outcome is Outcome.REFUSED, found
        assert found.failure is not None
        assert (found.failure.kind, found.failure.retry) == (kind, retry)


def test_job_runs_in_a_directory_of_any_name_and_knows_its_end(snellius: Cluster, tmp_path: Path) -> None:
    directory = tmp_path / "a dir with 'quotes' and 100%j"
    directory.mkdir()
    job_id = submitted(snellius, job("plan1-a-1", directory, 'echo "$PWD" $CROSSTRAIN_END_TIME'), directory)
    wait_for(snellius, job_id, JobState.COMPLETED)
    log = directory / f"plan1-a-1-{job_id}.log"
    until(log.exists, "no output")
    until(lambda: bool(log.read_text()), "no output")
    place, _, end = log.read_text().strip().rpartition(" ")
    assert place == str(directory)
    assert int(end) - now() == pytest.approx(HOUR, abs=120)


def test_queue_shows_running_waiting_and_planned_jobs(snellius: Cluster, tmp_path: Path) -> None:
    shape = Shape("gpu_h100", 4, 2 * HOUR, options=("--exclusive",))
    running = submitted(snellius, job("first", tmp_path, "sleep infinity", shape), tmp_path)
    wait_for(snellius, running, JobState.RUNNING)
    waiting = submitted(snellius, job("second", tmp_path, "sleep infinity", shape), tmp_path)
    chained = submitted(snellius, job("third", tmp_path, "true", after=(running,)), tmp_path)
    system = snellius.system()

    def rows() -> dict[str, object]:
        output = system.ask(queue.start_command())
        return {row.job_id: row for row in queue.read_queue(output, given=queue.COLUMNS).rows if row.start is not None}

    until(lambda: waiting in rows(), "the backfill plan does not come")
    found = {row.job_id: row for row in system.queue().rows}
    assert set(found) == {running, waiting, chained}
    first, second, third = found[running], found[waiting], found[chained]
    assert (first.state, first.nodes, first.name, first.time_limit_s) == (JobState.RUNNING, 4, "first", 2 * HOUR)
    assert second.state is JobState.PENDING
    assert second.reason in ("Resources", "Priority")
    assert second.start is not None
    assert second.start.epoch is not None
    assert second.start.epoch - now() == pytest.approx(2 * HOUR, abs=300)
    assert second.in_queue
    assert not third.in_queue
    # Counted in full by a probe, though a backfill plan would find a place.
    probe = system.probe(Shape("gpu_h100", 1, HOUR))
    assert probe.estimate is not None
    wait = probe.estimate.wait_s(now())
    assert wait is not None
    assert wait > HOUR


def test_cancelled_and_never_seen_jobs(snellius: Cluster, tmp_path: Path) -> None:
    job_id = submitted(snellius, job("gone", tmp_path, "sleep infinity"), tmp_path)
    wait_for(snellius, job_id, JobState.RUNNING)
    assert snellius.system().cancel([job_id]).exit_code == 0
    wait_for(snellius, job_id, JobState.CANCELLED)
    states, listing = snellius.system().states(["999999"])
    assert states == {"999999": JobState.UNKNOWN}
    assert listing.rows == ()


def test_partitions_reservations_and_nodes_are_read(slurm: Lab) -> None:
    cluster = slurm.clusters["lumi"]
    system = cluster.system()
    found = {row.partition: row for row in limits.read_partitions(system.ask(limits.PARTITIONS)).rows}
    assert (found["standard-g"].max_time_s, found["standard-g"].nodes, found["standard-g"].default) == (
        48 * HOUR,
        8,
        True,
    )
    assert (found["small-g"].max_nodes, found["small-g"].state) == (4, "UP")
    rows = nodes.partition_rows(nodes.read_nodes(system.ask(nodes.COMMAND)))
    standard = next(row for row in rows if row.partition == "standard-g")
    assert (standard.up, standard.state, standard.nodes) == (True, "idle", 8)
    assert (standard.gpu_type, standard.gpus, standard.default) == ("mi250", 8, True)
    assert limits.read_reservations(system.ask(limits.RESERVATIONS)).rows == ()
    words = [
        "reservationname=maint",
        "starttime=now+6hours",
        "duration=12:00:00",
        "nodes=ALL",
        "flags=maint",
        "users=root",
    ]
    assert cluster.run("scontrol", "create", *words).code == 0
    try:
        (maintenance,) = limits.read_reservations(system.ask(limits.RESERVATIONS)).rows
        assert (maintenance.name, maintenance.node_count) == ("maint", 8)
        assert maintenance.start is not None
        assert maintenance.start.epoch is not None
        assert maintenance.start.epoch - now() == pytest.approx(6 * HOUR, abs=60)
        assert "MAINT" in maintenance.flags
        short, long = (system.probe(Shape("standard-g", 1, hours * HOUR)).estimate for hours in (5, 7))
        assert short is not None
        assert long is not None
        assert short.wait_s(now()) == pytest.approx(0, abs=60)
        assert long.wait_s(now()) == pytest.approx(18 * HOUR, abs=120)
    finally:
        assert cluster.run("scontrol", "delete", "reservationname=maint").code == 0


def test_controller_that_is_away_is_unreachable_and_comes_back(slurm: Lab, tmp_path: Path) -> None:
    cluster = slurm.clusters["frontier"]
    cluster.stop_controller()
    try:
        assert limits.is_up(cluster.system().ask(limits.PING)) is False
        probe = cluster.system(deadline_s=60).probe(Shape("batch", 1, HOUR))
        assert probe.outcome is Outcome.UNREACHABLE, probe
        assert probe.failure is not None
        assert (probe.failure.kind, probe.failure.retry) == ("controller_unreachable", Retry.LATER)
        hasty = cluster.system(deadline_s=0.5).submit(job("away", tmp_path, "true", Shape("batch", 1, HOUR)), tmp_path)
        assert hasty.failure is not None
        assert hasty.failure.kind == "timed_out"
    finally:
        cluster.start_controller()
    assert limits.is_up(cluster.system().ask(limits.PING)) is True


def test_accounting_tells_waits_and_ends(slurm_accounting: Lab, tmp_path: Path) -> None:
    cluster = slurm_accounting.clusters["snellius"]
    system = cluster.system()
    begun = int(now()) - 60
    good = submitted(cluster, job("plan2-a-1", tmp_path, "sleep 1"), tmp_path)
    bad = submitted(cluster, job("plan2-a-2", tmp_path, "exit 3"), tmp_path)
    held = submitted(cluster, job("plan2-a-3", tmp_path, "true", after=(good,)), tmp_path)
    for job_id in (good, held):
        wait_for(cluster, job_id, JobState.COMPLETED)
    wait_for(cluster, bad, JobState.FAILED)

    def rows() -> dict[str, object]:
        command = accounting.accounting_command(begun, names=["plan2-a-1", "plan2-a-2", "plan2-a-3"])
        found = accounting.read_accounting(system.ask(command), given=accounting.COLUMNS)
        assert found.failure is None, found
        return {row.job_id: row for row in found.rows if row.state.over}

    until(lambda: {good, bad, held} <= rows().keys(), "accounting does not know the jobs")
    found = accounting.read_accounting(system.ask(accounting.accounting_command(begun)), given=accounting.COLUMNS).rows
    row = next(row for row in found if row.job_id == good)
    assert (row.state, row.nodes, row.partition, row.time_limit_s) == (JobState.COMPLETED, 1, "gpu_h100", HOUR)
    assert row.wait_s is not None
    assert 0 <= row.wait_s < 60
    assert row.usage_ratio == pytest.approx(1 / HOUR, abs=30 / HOUR)
    assert accounting.usage_ratio(found) is not None


def test_job_that_left_the_queue_is_known_to_accounting_or_unknown(
    slurm_accounting: Lab, snellius: Cluster, tmp_path: Path
) -> None:
    # A squeue that has forgotten everything, as Slurm's does five minutes after a job's end.
    forgetful = tmp_path / "bin"
    forgetful.mkdir()
    (forgetful / "squeue").write_text("#!/bin/sh\n", encoding="utf-8")
    (forgetful / "squeue").chmod(0o755)

    def states(cluster: Cluster, job_id: str) -> JobState:
        environment = cluster.environment | {"PATH": f"{forgetful}:{cluster.environment['PATH']}"}
        return BatchSystem(Slurm(), environment=environment).states([job_id])[0][job_id]

    accounted = slurm_accounting.clusters["snellius"]
    job_id = submitted(accounted, job("plan3-a-1", tmp_path, "exit 3"), tmp_path)
    wait_for(accounted, job_id, JobState.FAILED)
    until(lambda: states(accounted, job_id) is JobState.FAILED, "accounting does not know the job")
    assert states(accounted, "999999") is JobState.UNKNOWN
    job_id = submitted(snellius, job("plan3-a-2", tmp_path, "true"), tmp_path)
    wait_for(snellius, job_id, JobState.COMPLETED)
    assert states(snellius, job_id) is JobState.UNKNOWN


def test_limits_of_accounts_and_qos_are_read_and_refuse(slurm_accounting: Lab, tmp_path: Path) -> None:
    cluster = slurm_accounting.clusters["lumi"]
    system = cluster.system()
    qos = {row.name: row for row in limits.read_qos(system.ask(limits.qos_command())).rows}
    debug = qos["debug"]
    assert (debug.max_wall_s, debug.max_nodes, debug.max_submit) == (2 * HOUR, 2, 1)
    assert "DenyOnLimit" in debug.flags
    associations = limits.read_assoc(system.ask(limits.assoc_command("root"))).rows
    assert any(set(row.qos) == {"normal", "debug"} for row in associations if row.name == "pool"), associations
    probe = system.probe(Shape("standard-g", 1, 3 * HOUR, account="pool", qos="debug"))
    assert probe.outcome is Outcome.REFUSED, probe
    assert probe.failure is not None
    assert (probe.failure.kind, probe.failure.retry, probe.failure.detail) == (
        "policy_limit",
        Retry.NEVER,
        "QOSMaxWallDurationPerJobLimit",
    )
    wrong = system.probe(Shape("standard-g", 1, HOUR, account="nosuch"))
    assert wrong.failure is not None
    assert wrong.failure.kind == "bad_account"


def test_without_accounting_sacct_says_so(snellius: Cluster) -> None:
    command = accounting.accounting_command(int(now()) - 60, user=os.environ.get("USER", "root"))
    found = accounting.read_accounting(snellius.system().ask(command), given=accounting.COLUMNS)
    assert found.rows == ()
    assert found.failure is not None
    assert (found.failure.kind, found.failure.retry) == ("accounting_off", Retry.NEVER)
