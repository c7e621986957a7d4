"""Real Slurm for tests. Both fixtures last the session and are skipped, with the reason, where Slurm is not installed.

* `slurm`: three clusters (snellius 4 nodes, lumi 8, frontier 16) without accounting, up in a few seconds.
* `slurm_accounting`: the same facilities with 2, 2 and 2 nodes, slurmdbd and MariaDB: sacct, QoS, limits of accounts.

`slurm.clusters["lumi"]` is a `Cluster`: `.system()` is what crosstrain works with, `.run("squeue")` any client, `.environment`
what a process needs to reach it. Leave clusters empty: `cluster.clear()`, which the fixture `snellius` does by itself. Times
are real: a walltime is at least a minute, and Slurm looks for jobs over it every 30 s.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.slurm.lab import Cluster, Lab, lab, why_not


@pytest.fixture(scope="session")
def slurm() -> Iterator[Lab]:
    if reason := why_not(accounting=False):
        pytest.skip(reason)
    with lab() as found:
        yield found


@pytest.fixture(scope="session")
def slurm_accounting() -> Iterator[Lab]:
    if reason := why_not(accounting=True):
        pytest.skip(reason)
    with lab((2, 2, 2), accounting=True) as found:
        yield found


@pytest.fixture
def snellius(slurm: Lab) -> Iterator[Cluster]:
    """A cluster of four nodes, empty before and after."""
    cluster = slurm.clusters["snellius"]
    yield cluster
    cluster.clear()
