"""What holds for the adapter of every batch system: scripts, commands, readings."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

from crosstrain.batch.adapter import Adapter, NotOffered
from crosstrain.batch.command import run
from crosstrain.batch.environment import client_environment
from crosstrain.batch.job import Job, Shape
from crosstrain.batch.local.adapter import Local
from crosstrain.batch.pbs.adapter import Pbs
from crosstrain.batch.printed import Output
from crosstrain.batch.readings import JobState, Outcome
from crosstrain.batch.scheduler import BatchSystem
from crosstrain.batch.slurm.adapter import Slurm
from crosstrain.errors import UsageError

GOLDEN = Path(__file__).parent / "golden"
WEIRD = "a dir with 'quotes', \"double\" ones, $HOME, %j and a\nnew line"

JOB = Job(
    name="plan7-north-3",
    shape=Shape("gpu_h100", 1, 4 * 3600, gpus_per_node=4, cpus_per_task=64, account="pool", qos="normal"),
    command=("crosstrain", "site", "RUN.toml", "--name", "north"),
    directory=PurePosixPath("/scratch/run"),
    modules=("2024", "PyTorch/2.4"),
    setup=("source .venv/bin/activate",),
    after=("12", "13"),
)
CONTAINED = Job(
    name="plan7-lumi-1",
    shape=Shape("standard-g", 1, 2 * 3600 + 1, gpus_per_node=8, options=("--exclusive",)),
    command=("crosstrain", "site", "my run.toml", "--name", "lumi"),
    directory=PurePosixPath("/scratch/my run"),
    container=("apptainer", "exec", "--rocm", "image.sif"),
)


def adapters() -> list[Adapter]:
    return [Slurm(), Pbs(), Local(Path("/state/jobs"), nodes=8)]


@pytest.fixture(params=adapters(), ids=lambda adapter: adapter.name)
def adapter(request: pytest.FixtureRequest) -> Iterator[Adapter]:
    yield request.param


@pytest.mark.parametrize(("job", "part"), [(JOB, "modules"), (CONTAINED, "container")])
def test_script_is_as_written_down(adapter: Adapter, job: Job, part: str) -> None:
    assert adapter.script(job) == (GOLDEN / f"{adapter.name}-{part}.sh").read_text(encoding="utf-8")


def test_script_runs_in_a_directory_of_any_name_and_becomes_its_command(adapter: Adapter, tmp_path: Path) -> None:
    directory = tmp_path / WEIRD
    directory.mkdir()
    show = 'printf "%s|" "$PWD" "$CROSSTRAIN_PLAN_ITEM" "$1"; echo $(($CROSSTRAIN_END_TIME - $(date +%s))) $$'
    job = Job("item-1", Shape("p", 1, 600), ("bash", "-c", show, "name", WEIRD), directory)
    script = tmp_path / "job.sh"
    script.write_text(adapter.script(job), encoding="utf-8")
    done = run(["bash", "-c", 'echo $$; exec bash "$1"', "shell", str(script)], timeout=20)
    first, _, rest = done.stdout.partition("\n")
    place, item, argument, last = rest.split("|")
    left, process = last.split()
    assert (place, item, argument) == (str(directory), "item-1", WEIRD)
    assert 590 <= int(left) <= 600
    # The batch shell was replaced, so a signal for it reaches the command.
    assert process == first


@pytest.mark.parametrize("name", ["", "a b", "-x", "a;b", "a\nb", "ä", "a" * 65, "1", "a'b"])
def test_name_that_is_no_name_is_refused(adapter: Adapter, name: str) -> None:
    with pytest.raises(UsageError, match="cannot be a job's name"):
        adapter.script(Job(name, Shape("p", 1, 600), ("true",), PurePosixPath("/")))


@pytest.mark.parametrize(
    "shape",
    [
        Shape("p q", 1, 600),
        Shape("p", 1, 600, account="a\n#SBATCH --x"),
        Shape("p", 1, 600, options=("--a b",)),
        Shape("p", 0, 60),
    ],
)
def test_shape_that_would_change_the_script_is_refused(adapter: Adapter, shape: Shape) -> None:
    with pytest.raises(UsageError):
        adapter.script(Job("item", shape, ("true",), PurePosixPath("/")))


def test_every_command_is_words_without_a_shell(adapter: Adapter) -> None:
    script = PurePosixPath("/scratch") / WEIRD
    commands = [adapter.submit(JOB, script), adapter.jobs(["12"]), adapter.cancel(["12", "13"]), adapter.queue("me")]
    assert all(isinstance(word, str) and word for command in commands for word in command)
    assert commands[0][-1] == str(script)
    assert "12" in " ".join(commands[0]), "what it comes after"
    assert commands[2][-2:] == ["12", "13"]


@pytest.mark.parametrize("text", ["", "garbage\n\x1b[0m\x00|||{", "Job Id: \n{]\n1|2|3"])
@pytest.mark.parametrize("code", [0, 1])
def test_output_without_a_verdict_is_nothing(adapter: Adapter, text: str, code: int) -> None:
    submission = adapter.read_submit(Output(text, "", code))
    assert submission.outcome is Outcome.UNPARSEABLE
    assert submission.job_ids == ()
    for listing in (adapter.read_jobs(Output(text, "", code)), adapter.read_queue(Output(text, "", code))):
        assert all(row.state is JobState.UNKNOWN for row in listing.rows)
        assert (listing.failure is not None) == (code != 0)


def test_deadline_leaves_open_whether_a_job_exists(adapter: Adapter) -> None:
    submission = adapter.read_submit(Output("", "", -9, timed_out=True))
    assert submission.outcome is Outcome.UNREACHABLE
    assert submission.failure is not None
    assert submission.failure.submission_may_exist


def test_probe_is_a_command_or_not_offered(adapter: Adapter) -> None:
    shape = Shape("gpu", 2, 3600, account="pool")
    if adapter.name == "slurm":
        words = shlex.join(adapter.probe(shape))
        assert (
            words
            == "sbatch --test-only --nodes=2 --time=60 --partition=gpu --account=pool --ntasks-per-node=1 --wrap true"
        )
    else:
        with pytest.raises(NotOffered):
            adapter.probe(shape)


def test_clients_do_not_see_what_would_change_their_output() -> None:
    found = client_environment(
        {"SBATCH_PARTITION": "x", "SLURM_CLUSTERS": "y", "SQUEUE_FORMAT": "%i", "SLURM_JOB_ID": "1", "SLURM_CONF": "/c",
         "SLURM_JWT": "t", "PATH": "/bin", "TZ": "Europe/Helsinki", "LC_ALL": "fi_FI.UTF-8", "HOME": "/h"}
    )  # fmt: skip
    assert found == {
        "SLURM_CONF": "/c", "SLURM_JWT": "t", "PATH": "/bin", "HOME": "/h", "TZ": "UTC", "LC_ALL": "C", "LANG": "C",
        "SLURM_TIME_FORMAT": "%s", "LSB_DISPLAY_YEAR": "Y",
    }  # fmt: skip


def test_command_over_its_deadline_is_a_reading_and_no_crash() -> None:
    slow = BatchSystem(Slurm(), prefix=["bash", "-c", "exec sleep 60"], deadline_s=0.2).probe(Shape("gpu", 1, 3600))
    assert slow.outcome is Outcome.UNREACHABLE
    assert slow.failure is not None
    assert (slow.failure.kind, slow.failure.submission_may_exist) == ("timed_out", False)
