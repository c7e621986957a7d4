"""Options, names and keys that are wrong: a sentence and the exit code of a usage error, before anything is made."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from crosstrain.cli.main import app
from crosstrain.config import load_run
from crosstrain.errors import UsageError

MODEL = "[model]\nvocab_size = 8\n"


@pytest.mark.parametrize(
    "words",
    [
        ["site", "RUN.toml", "--name", "a", "--connect", "nan"],
        ["site", "RUN.toml", "--name", "a", "--connect", "-5"],
        ["site", "RUN.toml", "--name", "a", "--ends-in", "inf"],
        ["status", "--url", "http://127.0.0.1:1", "--every", "nan", "--watch"],
        ["status", "--url", "http://127.0.0.1:1", "--every", "-1", "--watch"],
        ["chaos", "--minutes", "nan"],
    ],
)
def test_an_amount_that_is_no_amount_is_refused(words: list[str]) -> None:
    error = CliRunner().invoke(app, words).exception
    assert isinstance(error, UsageError)
    assert "Expected a number from" in error.message


@pytest.mark.parametrize("port", ["-1", "99999"])
def test_a_port_out_of_range_is_refused(port: str) -> None:
    assert CliRunner().invoke(app, ["coordinator", "RUN.toml", "--port", port]).exit_code == 2


@pytest.mark.parametrize("name", ["a/b", "", "..", "ä b", "a" * 100])
def test_a_name_that_cannot_be_a_directory_is_refused_before_one_is_made(name: str, tmp_path: Path) -> None:
    (tmp_path / "RUN.toml").write_text(MODEL, encoding="utf-8")
    error = CliRunner().invoke(app, ["site", str(tmp_path / "RUN.toml"), "--name", name]).exception
    assert isinstance(error, UsageError)
    assert "cannot be a site's name" in error.message
    assert [path.name for path in tmp_path.iterdir()] == ["RUN.toml"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[round]\ncutoff_s = inf\n", "round.cutoff_s"),
        ("[round]\ncutoff_s = 30\ndrain_s = 30\n", "round.drain_s: must be shorter than round.cutoff_s (30)"),
        ("[round]\ncutoff_s = 30\n", "round.drain_s: must be shorter than round.cutoff_s (30)"),
        ("[lease]\nheartbeat_s = inf\n", "lease.heartbeat_s"),
        ('[coordinator]\nobjects_endpoint = "http://s3"\n', "coordinator.objects_endpoint: coordinator.objects is not"),
        (
            '[coordinator]\nobjects = "s3://b"\nobjects_endpoint = "s3.local"\n',
            "coordinator.objects_endpoint: must be http:// or https://",
        ),
        ("[inner]\nlr = inf\n", "inner.lr"),
        ("[sites.north]\nranks = -3\n", "sites.north.ranks"),
        ("[sites.north]\nrank = 3\n", "sites.north.rank: unknown key; did you mean ranks?"),
        ('[run]\nrounds = "60"\n', "run.rounds: Input should be a valid integer, found '60'"),
        ("[run]\nrounds = 60.0\n", "run.rounds: Input should be a valid integer, found 60.0"),
        ("[run]\nseed = true\n", "run.seed: Input should be a valid integer, found True"),
        ('[sites.north]\nmargin_s = "60"\n', "sites.north.margin_s: Input should be a valid number, found '60'"),
    ],
)
def test_a_wrong_key_is_named_in_full(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "RUN.toml"
    path.write_text(MODEL + text, encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        load_run(path)
    assert said in caught.value.message


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            'walltime = "99999999999-00:00:00"',
            "batch.shapes.0: walltime must be longer than nothing and at most 8760 h",
        ),
        ('walltime = "8761:00:00"', "batch.shapes.0: walltime must be longer than nothing and at most 8760 h"),
        ('walltime = "ten minutes"', "batch.shapes.0: walltime must be HH:MM:SS or D-HH:MM:SS"),
        ('walltime = "on 00:10:00"', "batch.shapes.0: walltime must be HH:MM:SS or D-HH:MM:SS"),
    ],
)
def test_a_time_limit_that_no_scheduler_takes_is_refused(line: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "RUN.toml"
    shape = f'[[sites.north.batch.shapes]]\npartition = "p"\n{line}\n'
    path.write_text(MODEL + shape, encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        load_run(path)
    assert said in caught.value.message
    assert "Value error" not in caught.value.message


@pytest.mark.parametrize(
    "words", ['prefix = ["a\\u0000b"]', 'command = ["a\\u0000b"]', 'setup = ["\\u0000"]', "command = []"]
)
def test_words_that_can_start_no_program_are_refused(words: str, tmp_path: Path) -> None:
    path = tmp_path / "RUN.toml"
    path.write_text(
        f'{MODEL}[sites.north.batch]\n{words}\nshapes = [{{ partition = "p", hours = 1 }}]\n', encoding="utf-8"
    )
    with pytest.raises(UsageError) as caught:
        load_run(path)
    assert f"sites.north.batch.{words.split()[0]}" in caught.value.message


def test_a_byte_order_mark_is_read_over(tmp_path: Path) -> None:
    path = tmp_path / "RUN.toml"
    path.write_text(MODEL, encoding="utf-8-sig")
    assert load_run(path).model.vocab_size == 8
