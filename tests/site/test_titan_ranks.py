"""Two ranks of torchrun train what one trains, take up what one saved, and end when their agent does."""

from __future__ import annotations

import dataclasses
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.site.bench import Bench, descendants, plan, running, until, weights_of
from tests.site.test_trainer_link import KillAgent, done, event, failure, kill_agent

from crosstrain.domain.ids import Generation
from crosstrain.domain.phase import window_numbers
from crosstrain.errors import Diverged, IntegrityError
from crosstrain.site.commands import plan_to_json, result_from_json
from crosstrain.site.process_link import ProcessLink
from crosstrain.site.settings import TrainerSettings, window_log_path
from crosstrain.site.trainer import Trainer
from crosstrain.site.trainer_link import Failed, Ready
from crosstrain.storage.weights_file import Entry, WeightsFile, WeightsWriter

__all__ = ["kill_agent"]

pytestmark = [pytest.mark.torch, pytest.mark.system]

PHASE = plan((4, 6), (40, 7), (90, 8), per_step=4)
NEXT = plan((120, 9), per_step=4, first_step=6)


@pytest.fixture(scope="module")
def pair(settings: TrainerSettings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessLink]:
    """A trainer of two ranks that keeps a window log."""
    directory = tmp_path_factory.mktemp("pair")
    link = ProcessLink(dataclasses.replace(settings, window_log=directory / "windows"), directory / "log", ranks=2)
    link.start()
    found = event(link)
    assert isinstance(found, Ready), found
    yield link
    link.close()


@pytest.fixture
def one(benches: Callable[[str], Bench]) -> Bench:
    bench = benches("titan")
    bench.reset()
    return bench


def held_by(link: ProcessLink, directory: Path) -> dict[str, Any]:
    path = directory / "held"
    done(link, "export", path=str(path), base=None, codec="fp32")
    with WeightsFile(path) as file:
        return {entry.name: file.array(entry.name) for entry in file.entries}


def assert_close(first: dict[str, Any], second: dict[str, Any]) -> None:
    assert list(first) == list(second)
    for name in first:
        np.testing.assert_allclose(first[name], second[name], rtol=0, atol=1e-5, err_msg=name)


def train_alone(trainer: Trainer, *, between: Path | None = None) -> dict[str, Any]:
    trainer.run(PHASE, lambda _: False)
    if between:
        trainer.save(between)
    trainer.run(NEXT, lambda _: False)
    return weights_of(trainer)


def test_two_ranks_train_what_one_trains(pair: ProcessLink, one: Bench, tmp_path: Path) -> None:
    done(pair, "initialise", seed=1, path=str(tmp_path / "initial"))
    assert (tmp_path / "initial").read_bytes() == one.initial.read_bytes()
    done(pair, "load", path=str(tmp_path / "initial"), generation=0)
    result = result_from_json(done(pair, "run", plan=plan_to_json(PHASE)))
    expected = one.trainer.run(PHASE, lambda _: False)
    assert (result.steps, result.windows, result.tokens, result.blocks) == (6, 21, 21 * 16, 3)
    assert result.windows_digest == expected.windows_digest
    np.testing.assert_allclose(result.losses, expected.losses, rtol=1e-5)
    np.testing.assert_allclose(result.grad_norms, expected.grad_norms, rtol=1e-4)
    assert_close(held_by(pair, tmp_path), weights_of(one.trainer))
    nll = done(pair, "evaluate", windows=7)
    assert nll["tokens"] == 7 * 16
    assert nll["nll"] == pytest.approx(one.trainer.evaluate(7)[0], rel=1e-5)
    words = {"prompt": [1, 3, 5], "tokens": 4, "temperature": 0.0, "seed": 1}
    assert done(pair, "generate", **words)["tokens"] == one.trainer.generate([1, 3, 5], 4, 0.0, 1)


def test_the_logs_of_two_ranks_hold_every_window_once(pair: ProcessLink, one: Bench, tmp_path: Path) -> None:
    log = pair._settings.window_log
    assert log
    done(pair, "load", path=str(one.initial), generation=5)
    done(pair, "run", plan=plan_to_json(dataclasses.replace(PHASE, generation=Generation(5))))
    seen: Counter[int] = Counter()
    for rank in (0, 1):
        lines = [line.split() for line in window_log_path(log, rank).read_text().splitlines()]
        lines = [line for line in lines if line[0] == "0" and line[1] == "5"]
        assert [int(line[2]) for line in lines] == list(range(6))
        assert {line[3] for line in lines} == {str(rank)}
        seen.update(int(window) for line in lines for window in line[4:])
    assert seen == Counter(window_numbers(PHASE.blocks))


def test_loading_after_evaluating_reaches_every_layer(pair: ProcessLink, one: Bench, tmp_path: Path) -> None:
    done(pair, "evaluate", windows=3)
    done(pair, "load", path=str(one.initial), generation=0)
    done(pair, "evaluate", windows=3)
    assert_close(held_by(pair, tmp_path), weights_of(one.trainer))


def test_two_ranks_take_up_what_one_saved_and_one_what_two_saved(pair: ProcessLink, one: Bench, tmp_path: Path) -> None:
    expected = train_alone(one.trainer, between=tmp_path / "of one")
    done(pair, "restore", directory=str(tmp_path / "of one"))
    done(pair, "save", directory=str(tmp_path / "of two"))
    done(pair, "run", plan=plan_to_json(NEXT))
    assert_close(held_by(pair, tmp_path), expected)
    assert one.trainer.restore(tmp_path / "of two").global_step == 6
    one.trainer.run(NEXT, lambda _: False)
    assert_close(weights_of(one.trainer), expected)


def test_errors_leave_both_ranks_in_step(pair: ProcessLink, one: Bench, tmp_path: Path) -> None:
    done(pair, "load", path=str(one.initial), generation=0)
    stranger = tmp_path / "stranger"
    with WeightsWriter(stranger, [Entry("stranger", "F32", (1,))]) as writer:
        writer.write("stranger", np.ones(1, np.float32))
    assert isinstance(failure(pair, "load", path=str(stranger), generation=1), IntegrityError)
    assert isinstance(failure(pair, "restore", directory=str(tmp_path)), IntegrityError)
    failure(pair, "export", path=str(tmp_path / "no" / "way"), base=None, codec="fp32")
    failure(pair, "save", directory=str(tmp_path))
    failure(pair, "run", plan=plan_to_json(plan((0, 8), generation=9)))
    assert isinstance(failure(pair, "run", plan=plan_to_json(plan((0, 40), lr=1e38))), Diverged)
    done(pair, "load", path=str(one.initial), generation=0)
    done(pair, "run", plan=plan_to_json(PHASE))


def test_a_stop_reaches_both_ranks(pair: ProcessLink, one: Bench) -> None:
    done(pair, "load", path=str(one.initial), generation=0)
    pair.submit("run", plan=plan_to_json(PHASE))
    pair.request_stop()
    result = until(lambda: result_from_json(found.value) if hasattr(found := pair.poll(), "value") else None)
    assert result.windows == sum(block.count for block in PHASE.blocks[: result.blocks])


def test_ranks_that_torchrun_lost_end_too(pair: ProcessLink) -> None:
    assert pair.pid
    ranks = descendants(pair.pid)
    assert len(ranks) >= 2
    os.kill(pair.pid, signal.SIGKILL)
    failed = event(pair)
    assert isinstance(failed, Failed)
    assert not pair.alive
    until(lambda: not any(map(running, ranks)), patience=30.0)


def test_torchrun_and_all_ranks_end_when_the_agent_is_killed(kill_agent: KillAgent, settings: TrainerSettings) -> None:
    family = kill_agent(settings, "training", 2)
    assert len(family) >= 3
    until(lambda: not any(map(running, family)), patience=30.0)
