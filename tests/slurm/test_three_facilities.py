"""The whole chain at three real Slurm clusters: backlog, probes, plan, submission, training, end of the job, the next job, audit.

Jobs are real batch jobs that join a real coordinator. They train with the counting engine, because three torch processes on two
cores take minutes; CROSSTRAIN_TEST_ENGINE=titan trains the tiny model with torchtitan instead. Slurm's walltimes are whole
minutes, so a wide `margin_s` makes the agents drain some 40 s after their start: by the end time that Slurm gave, as always.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.demo.rehearsal import text_file
from tests.slurm.lab import Cluster, Lab, until
from tests.system.runs import Run, write_run
from typer.testing import CliRunner

from crosstrain.assembly import RunFiles, open_run, open_stored_run
from crosstrain.cli.main import app
from crosstrain.coordinator.audit import audit
from crosstrain.corpus.build import build_corpus
from crosstrain.corpus.options import BuildOptions

pytestmark = pytest.mark.system

PARTITIONS = {"snellius": "gpu_h100", "lumi": "standard-g", "frontier": "batch"}
WALLTIME_S = 900
ENGINE = os.environ.get("CROSSTRAIN_TEST_ENGINE", "counting")
TRAINS_S = 40 if ENGINE == "counting" else 180
PATIENCE_S = 90.0 if ENGINE == "counting" else 600.0
FILLER_H = 2


def site_lines(cluster: Cluster, partition: str) -> str:
    """The site's part of RUN.toml, as a user writes it; the prefix says which of the clusters of this machine it is."""
    name = cluster.machine.name
    return f"""margin_s = {WALLTIME_S - TRAINS_S}
[sites.{name}.batch]
user = "root"
prefix = ["env", "SLURM_CONF={cluster.conf}"]
options = ["--exclusive"]
command = ["{sys.executable}", "-m", "crosstrain"]
probe_every_s = 0
max_queued = 3
startup_s = 5
tail_s = 5
[[sites.{name}.batch.shapes]]
partition = "{partition}"
walltime = "00:15:00"
tokens_per_s = 20.0
[[sites.{name}.batch.shapes]]
partition = "{partition}"
nodes = 2
hours = 200
"""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("corpus")
    options = BuildOptions(vocab=300, seq_len=64, heldout=0.05)
    build_corpus([text_file(directory / "text.txt", 300)], directory / "corpus", options, lambda _: None)
    return directory / "corpus"


@pytest.fixture
def facilities(slurm: Lab) -> Iterator[dict[str, Cluster]]:
    """The clusters with a backlog: one job on all nodes, and one that waits for them."""
    for cluster in slurm.clusters.values():
        everything = ["-N", str(cluster.machine.nodes), "--exclusive", "-t", f"{FILLER_H}:00:00", "--job-name=filler"]
        for _ in range(2):
            assert cluster.run("sbatch", *everything, "-o", "/dev/null", "--wrap", "sleep infinity").code == 0
    for cluster in slurm.clusters.values():
        until(lambda cluster=cluster: running(cluster) == ["filler"], "the backlog does not start")
    yield slurm.clusters
    for cluster in slurm.clusters.values():
        cluster.clear()


def running(cluster: Cluster) -> list[str]:
    return cluster.run("squeue", "-h", "-a", "-t", "R", "-o", "%j").stdout.split()


def command(files: RunFiles, verb: str, *words: str) -> dict[str, Any]:
    done = CliRunner().invoke(app, [verb, str(files.path), *words, "--json"])
    assert done.exit_code == 0, (done.output, done.exception)
    return dict(json.loads(done.stdout))


def jobs_of(cluster: Cluster) -> list[str]:
    """Names of the run's live jobs, in the order of submission."""
    names = cluster.run("squeue", "-h", "-a", "-S", "i", "-o", "%j").stdout.split()
    return [name for name in names if name != "filler"]


def joined(run: Run) -> int:
    status = run.status()
    return 0 if status is None else sum(site.entries > 0 for site in status.sites)


def generation(run: Run) -> int:
    status = run.status()
    return -1 if status is None or status.generation is None else status.generation


def entries(files: RunFiles, site: str) -> Sequence[dict[str, Any]]:
    command(files, "collect", "--name", site)
    journal = files.resolve(files.config.site.dir) / site / "batch" / "jobs.json"
    return list(json.loads(journal.read_text())["entries"])


def test_from_backlog_to_audit(facilities: dict[str, Cluster], corpus: Path, tmp_path: Path) -> None:
    inner = f'engine = "{ENGINE}"\n' + ("rehearsal_step_s = 0.05\n" if ENGINE == "counting" else "")
    written = write_run(tmp_path, corpus, (), inner=inner)
    sites = [f"[sites.{name}]\n{site_lines(facilities[name], partition)}" for name, partition in PARTITIONS.items()]
    written.path.write_text("\n".join([written.path.read_text(), *sites]))
    run = Run(open_run(written.path))
    with run:
        for name, cluster in facilities.items():
            seen = command(run.files, "collect", "--name", name)
            (estimate,) = seen["report"]["estimates"]
            # Two fillers of 2 h are ahead by the scheduler's word, and by an own plan of the queue.
            assert 1.5 * 3600 < estimate["test_only_s"] < 8 * 3600
            assert estimate["plan_s"] == pytest.approx(2 * FILLER_H * 3600, rel=0.1)
            assert [each["shape"]["nodes"] for each in seen["report"]["offered"]] == [1]
            assert any("allows" in note and "2 nodes x 200 h" in note for note in seen["report"]["notes"])
            told = command(run.files, "submit", "--name", name, "--apply")
            first = told["submitted"]
            assert first, told
            again = command(run.files, "submit", "--name", name, "--apply")
            assert again["submitted"] == []
            assert jobs_of(cluster) == [job["name"] for job in first]
        for cluster in facilities.values():
            cluster.run("scancel", "--name=filler")
        until(lambda: joined(run) == len(facilities), "not all sites join", PATIENCE_S)
        until(lambda: generation(run) >= 2, "no second generation", PATIENCE_S)
        for name, cluster in facilities.items():
            until(
                lambda cluster=cluster, name=name: jobs_of(cluster)[0].endswith(".2"),
                f"{name} does not chain",
                PATIENCE_S,
            )
            until(lambda cluster=cluster: bool(running(cluster)), f"the next job of {name} does not start")
            before, after = entries(run.files, name)[:2]
            assert before["state"] == "ended"
            assert before["started_ms"] is not None
            assert after["after"] == before["name"]
    for cluster in facilities.values():
        cluster.clear()
    database, objects = open_stored_run(run.files)
    try:
        found = audit(database, objects, replay=True)
    finally:
        database.close()
    assert found.problems == ()
    assert found.replayed > 1
