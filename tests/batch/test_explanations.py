"""Whatever a scheduler refuses, a person is told what it means and what to do."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from typer.main import get_command

from crosstrain.batch.explanations import EXPLANATIONS, explained
from crosstrain.batch.pbs import refusals as pbs
from crosstrain.batch.readings import Failure, Retry, Scope
from crosstrain.batch.slurm import refusals as slurm
from crosstrain.cli.main import app

WITHOUT_SENTENCE = {"timed_out", "empty_output", "no_verdict", "site_policy", "other", "unknown"}


def test_every_kind_is_explained_and_nothing_else() -> None:
    assert EXPLANATIONS.keys() == slurm.KINDS | slurm.UNREACHABLE | pbs.KINDS | WITHOUT_SENTENCE


@pytest.mark.parametrize("kind", sorted(EXPLANATIONS))
def test_an_explanation_is_a_sentence_and_something_to_do(kind: str) -> None:
    told = EXPLANATIONS[kind]
    assert told.means[0].isupper() and told.means.endswith(".")
    assert told.fix and not told.fix.endswith(".")


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ("QOSMinNode", "smaller than the QoS allows"),
        ("AssocMaxSubmitJobLimit", "As many own jobs"),
        ("qosmaxwalldurationperjoblimit", "walltime is longer"),
        ("AssocGrpCPUMinutesLimit", "does not pay"),
        ("QOSMaxNodePerUserLimit", "more nodes than"),
        ("SomethingElse", "A limit of account"),
    ],
)
def test_a_limit_is_told_by_its_name(limit: str, words: str) -> None:
    failure = slurm.with_detail(Failure("policy_limit", Retry.MAYBE, Scope.SHAPE), limit)
    assert words in explained(failure).means


@pytest.mark.parametrize(
    ("kind", "output", "exit_code", "means", "fix"),
    [
        ("testonly", "allocation failure: Requested time limit is invalid (missing or exceeds some limit)", 1,
         "walltime", "MaxTime"),
        ("submit", "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified",
         1, "account", "batch.account"),
        ("pbs_submit", "qsub: Unknown queue", 170, "no such partition or queue", "qstat -Q"),
        ("flux_submit", "flux-batch: ERROR: unsatisfiable request", 1, "so many nodes", "fewer"),
        ("squeue", "squeue: error: Unable to contact slurm controller (connect failure)", 1, "does not answer", "again"),
    ],
)  # fmt: skip
def test_parse_tells_it(kind: str, output: str, exit_code: int, means: str, fix: str) -> None:
    words = ["parse", kind, "-", "--exit-code", str(exit_code)]
    found = json.loads(CliRunner().invoke(get_command(app), words, input=output).stdout)
    assert means in found["means"] and fix in found["fix"]


def test_parse_explains_nothing_where_nothing_failed() -> None:
    words = ["parse", "submit", "-"]
    found = json.loads(CliRunner().invoke(get_command(app), words, input="Submitted batch job 7\n").stdout)
    assert (found["means"], found["fix"]) == (None, None)
