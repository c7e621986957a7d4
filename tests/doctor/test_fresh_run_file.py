"""A run file as `crosstrain init` writes it gives the doctor nothing to say, unless the link was measured to be slow."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.fakes import corpus_manifest

from crosstrain.config import load_run
from crosstrain.doctor.examine import USUAL_ROUND_S, circumstances, judge_settings, least, settings_of
from crosstrain.runfile import LINK, RECIPES, write_run_file

MANIFEST = corpus_manifest().model_copy(update={"vocab_size": 151_936, "seq_len": 1024})


@pytest.mark.parametrize("size", RECIPES)
@pytest.mark.parametrize("rate", [None, LINK, 100 * LINK])
def test_its_durations_are_long_enough(tmp_path: Path, size: str, rate: float | None) -> None:
    write_run_file(tmp_path / "RUN.toml", "first", size, tmp_path, MANIFEST)
    config = load_run(tmp_path / "RUN.toml")
    table = least(circumstances(config, USUAL_ROUND_S, rate, 0.1))
    assert judge_settings(table, settings_of(config, table)) == ()


def test_a_measured_link_that_is_too_slow_is_told(tmp_path: Path) -> None:
    write_run_file(tmp_path / "RUN.toml", "first", "0.6b", tmp_path, MANIFEST)
    config = load_run(tmp_path / "RUN.toml")
    table = least(circumstances(config, USUAL_ROUND_S, LINK / 10, 0.1))
    assert {"round.drain_s", "site.margin_s"} <= {
        each.name for each in judge_settings(table, settings_of(config, table))
    }


def test_a_link_that_was_not_measured_does_not_hide_a_drain_that_is_short_on_any(tmp_path: Path) -> None:
    write_run_file(tmp_path / "RUN.toml", "first", "60m", tmp_path, MANIFEST)
    config = load_run(tmp_path / "RUN.toml")
    config = config.model_copy(update={"round": config.round.model_copy(update={"drain_s": 10.0})})
    table = least(circumstances(config, USUAL_ROUND_S, None, 0.1))
    assert [each.name for each in judge_settings(table, settings_of(config, table))] == ["round.drain_s"]
