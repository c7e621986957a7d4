"""A whole run of real processes with its blobs in a bucket, packed; the coordinator loses its directory of blobs on the way."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from tests import s3 as s3_server
from tests.system.runs import PATIENCE_S, Run, check_the_record, crosstrain, ended, write_run

from crosstrain.assembly import open_run
from crosstrain.storage.s3_bucket import Place

pytestmark = pytest.mark.system


def on_bucket(path: Path, place: Place) -> None:
    """Puts the blobs of a run into a bucket."""
    objects = f"s3://{place.bucket}/{place.prefix.rstrip('/').replace(' ', '-')}"
    setting = (
        f'[coordinator]\nobjects = "{objects}"\nobjects_endpoint = "{place.endpoint}"\n'
        f'objects_region = "{place.region}"\n'
    )
    path.write_text(path.read_text().replace("[coordinator]\n", setting))


def test_coordinator_does_not_start_on_a_bucket_that_is_missing(
    corpus: Path, tmp_path: Path, s3: s3_server.Server
) -> None:
    path = write_run(tmp_path, corpus).path
    on_bucket(path, replace(s3.place(), bucket="nowhere"))
    code, said = ended(crosstrain("coordinator", path))
    assert (code, "Traceback" in said) == (3, False)
    assert "error: The object store s3://nowhere/" in said
    assert "NoSuchBucket" in said
    assert "hint: create the bucket, or correct `coordinator.objects`" in said


def test_run_on_a_bucket_outlives_the_coordinators_directory(
    corpus: Path, tmp_path: Path, s3: s3_server.Server
) -> None:
    path = write_run(tmp_path, corpus, rounds=4).path
    on_bucket(path, s3.place())
    path.write_text(path.read_text() + '\n[wire]\ncompress = "planes"\n')
    files = open_run(path)
    with Run(files) as run:
        for name in ("alpha", "beta"):
            run.fleet.start_site(name)
        run.until(lambda status: (status.generation or 0) >= 2)
        run.fleet.kill("coordinator")
        shutil.rmtree(files.coordinator_dir / "objects")
        run.fleet.start_coordinator()
        run.until(lambda status: status.finished)
        run.fleet.await_sites(PATIENCE_S)
        assert run.fleet.sites == ()
    check_the_record(files, ("alpha", "beta"))
    assert not list((files.coordinator_dir / "objects" / "uploads").glob("*"))
