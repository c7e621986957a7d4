"""Every sentence of the Trainer protocol, on every trainer."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.site.bench import Bench, build, plan, same, weights_of, write_initial

from crosstrain.domain.ids import Generation
from crosstrain.domain.phase import NO_LEASE, PhaseProgress, digest_windows, sum_windows, window_numbers
from crosstrain.errors import Diverged, EnvironmentFault, IntegrityError
from crosstrain.site import saved
from crosstrain.site.commands import perform, plan_from_json, plan_to_json, result_from_json
from crosstrain.site.settings import TrainerSettings, window_log_path
from crosstrain.site.trainer import Trainer
from crosstrain.site.window_log import trained_windows
from crosstrain.storage.weights_file import Entry, WeightsFile, WeightsWriter

pytestmark = pytest.mark.filterwarnings("error")


def never(_: PhaseProgress) -> bool:
    return False


@pytest.fixture(params=["counting", pytest.param("titan", marks=pytest.mark.torch)])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def bench(engine: str, benches: Callable[[str], Bench]) -> Bench:
    bench = benches(engine)
    bench.reset()
    return bench


@pytest.fixture
def trainer(bench: Bench) -> Trainer:
    return bench.trainer


def test_starts_without_a_generation(engine: str, settings: TrainerSettings) -> None:
    trainer = build(engine, settings)
    assert trainer.position.generation is None
    assert trainer.position.inner_state == "fresh"
    with pytest.raises(ValueError, match="generation None"):
        trainer.run(plan((0, 4)), never)
    trainer.close()


def test_export_follows_the_manifest(trainer: Trainer) -> None:
    held = weights_of(trainer)
    assert list(held) == [spec.name for spec in trainer.manifest]
    assert [tensor.shape for tensor in held.values()] == [spec.shape for spec in trainer.manifest]
    assert all(tensor.dtype == np.float32 for tensor in held.values())


def test_initialise_depends_on_the_seed_alone(bench: Bench, tmp_path: Path) -> None:
    trainer = bench.trainer
    before = weights_of(trainer)
    again = write_initial(trainer, tmp_path / "again", seed=1)
    other = write_initial(trainer, tmp_path / "other", seed=2)
    assert same(weights_of(trainer), before)
    trainer.run(plan((0, 8)), never)
    later = write_initial(trainer, tmp_path / "later", seed=1)
    assert again.read_bytes() == bench.initial.read_bytes() == later.read_bytes() != other.read_bytes()


def test_load_adopts_exactly_what_the_file_holds(bench: Bench) -> None:
    trainer = bench.trainer
    trainer.run(plan((0, 8)), never)
    trainer.load(bench.initial, Generation(7))
    with WeightsFile(bench.initial) as file:
        assert same(weights_of(trainer), {spec.name: file.array(spec.name) for spec in trainer.manifest})
    assert trainer.position.generation == 7


def test_load_takes_bfloat16(bench: Bench, tmp_path: Path) -> None:
    trainer = bench.trainer
    held = weights_of(trainer)
    path = tmp_path / "bf16"
    with WeightsWriter(path, [Entry(spec.name, "BF16", spec.shape) for spec in trainer.manifest]) as writer:
        for name, tensor in held.items():
            writer.write(name, tensor)
    trainer.load(path, Generation(1))
    with WeightsFile(path) as file:
        assert same(weights_of(trainer), {name: file.array(name).astype(np.float32) for name in held})


@pytest.mark.parametrize("damage", ["missing", "unknown", "shape"])
def test_load_refuses_other_tensors_and_changes_nothing(bench: Bench, tmp_path: Path, damage: str) -> None:
    trainer = bench.trainer
    specs = list(trainer.manifest)
    if damage == "missing":
        specs = specs[:-1]
    entries = [Entry(spec.name, "F32", spec.shape) for spec in specs]
    if damage == "unknown":
        entries.append(Entry("stranger", "F32", (2,)))
    if damage == "shape":
        entries[-1] = dataclasses.replace(entries[-1], shape=(*entries[-1].shape, 2))
    path = tmp_path / "weights"
    with WeightsWriter(path, entries) as writer:
        for entry in entries:
            writer.write(entry.name, np.ones(entry.shape, np.float32))
    before, position = weights_of(trainer), trainer.position
    named = "stranger" if damage == "unknown" else trainer.manifest[-1].name
    with pytest.raises(IntegrityError, match=named):
        trainer.load(path, Generation(1))
    assert same(weights_of(trainer), before)
    assert trainer.position == position


def test_load_keeps_the_inner_state(bench: Bench) -> None:
    trainer = bench.trainer
    trainer.run(plan((0, 8)), never)
    trainer.load(bench.initial, Generation(1))
    assert trainer.position.inner_state == "restored"
    trainer.run(plan((8, 8), generation=1), never)
    with_moments = weights_of(trainer)
    bench.reset()
    trainer.load(bench.initial, Generation(1))
    trainer.run(plan((8, 8), generation=1), never)
    assert not same(weights_of(trainer), with_moments)


def test_load_makes_the_inner_state_fresh_on_request(bench: Bench) -> None:
    trainer = bench.trainer
    trainer.load(bench.initial, Generation(1), fresh=True)  # of one that is fresh already
    trainer.run(plan((8, 8), generation=1), never)
    without_moments = weights_of(trainer)
    trainer.load(bench.initial, Generation(1), fresh=True)
    assert trainer.position.inner_state == "fresh"
    trainer.run(plan((8, 8), generation=1), never)
    assert same(weights_of(trainer), without_moments)


def test_run_is_deterministic(bench: Bench) -> None:
    trainer = bench.trainer
    phase = plan((4, 6), (40, 7))
    first = trainer.run(phase, never)
    weights = weights_of(trainer)
    bench.reset()
    second = trainer.run(phase, never)
    assert dataclasses.replace(first, seconds=0.0) == dataclasses.replace(second, seconds=0.0)
    assert same(weights_of(trainer), weights)


def test_run_says_what_it_did(trainer: Trainer, settings: TrainerSettings) -> None:
    phase = plan((4, 6), (40, 7), per_step=4, first_step=30)
    result = trainer.run(phase, never)
    assert (result.steps, result.windows, result.blocks, result.stopped) == (4, 13, 2, False)
    assert result.tokens == 13 * settings.seq_len
    assert result.windows_digest == digest_windows(13, sum_windows(window_numbers(phase.blocks)))
    assert len(result.losses) == len(result.grad_norms) == 4
    assert all(norm > 0 for norm in result.grad_norms)
    assert result.seconds > 0
    assert (trainer.position.generation, trainer.position.global_step) == (0, 34)


def test_plans_and_results_survive_json(trainer: Trainer) -> None:
    phase = plan((0, 5))
    result = trainer.run(plan_from_json(plan_to_json(phase)), never)
    assert plan_from_json(plan_to_json(phase)) == phase
    assert result_from_json(dataclasses.asdict(result)) == result


def test_training_lowers_the_loss(trainer: Trainer) -> None:
    before = trainer.evaluate(16)[0]
    losses = trainer.run(plan((0, 120), per_step=4), never).losses
    assert np.mean(losses[-5:]) < np.mean(losses[:5])
    assert trainer.evaluate(16)[0] < before


def test_watch_is_asked_before_every_step_and_after_the_last(trainer: Trainer) -> None:
    seen: list[PhaseProgress] = []

    def watch(progress: PhaseProgress) -> bool:
        seen.append(progress)
        return False

    result = trainer.run(plan((0, 6), (20, 4)), watch)
    assert [(each.steps, each.windows, each.blocks) for each in seen] == [(0, 0, 0), (1, 4, 0), (2, 8, 1), (3, 10, 2)]
    assert [each.loss for each in seen] == [None, *result.losses]


@pytest.mark.parametrize(("asked_after", "windows", "blocks", "steps"), [(0, 0, 0, 0), (4, 6, 1, 2), (8, 12, 2, 3)])
def test_stop_ends_at_the_next_block_boundary(
    trainer: Trainer, asked_after: int, windows: int, blocks: int, steps: int
) -> None:
    phase = plan((0, 6), (20, 6), (40, 6))
    result = trainer.run(phase, lambda progress: progress.windows == asked_after)
    assert (result.windows, result.blocks, result.steps, result.stopped) == (windows, blocks, steps, True)
    assert result.windows_digest == digest_windows(windows, sum_windows(window_numbers(phase.blocks[:blocks])))


def test_stop_after_the_last_step_is_no_stop(trainer: Trainer) -> None:
    assert not trainer.run(plan((0, 8)), lambda progress: progress.windows == 8).stopped


def test_a_stopped_phase_trains_as_the_phase_of_its_blocks(bench: Bench) -> None:
    trainer = bench.trainer
    whole = plan((0, 6), (20, 6))
    trainer.run(whole, lambda progress: progress.windows == 4)
    stopped = weights_of(trainer)
    bench.reset()
    prefix = dataclasses.replace(whole, blocks=whole.blocks[:1], learning_rates=whole.learning_rates[:2])
    trainer.run(prefix, never)
    assert same(weights_of(trainer), stopped)


def test_a_short_step_weighs_its_windows_as_a_full_one_does(bench: Bench) -> None:
    trainer = bench.trainer
    short = trainer.run(plan((10, 3), per_step=8), never)
    padded = weights_of(trainer)
    bench.reset()
    full = trainer.run(plan((10, 3), per_step=3), never)
    assert short.losses == full.losses
    assert same(weights_of(trainer), padded)


def test_the_mean_is_over_windows_however_they_are_dealt(bench: Bench) -> None:
    trainer = bench.trainer
    together = trainer.run(plan((10, 3), per_step=3), never).losses[0]
    apart = []
    for window in (10, 11, 12):
        bench.reset()
        apart.append(trainer.run(plan((window, 1), per_step=1), never).losses[0])
    assert together == pytest.approx(np.mean(apart), rel=1e-5)


def test_order_and_rates_matter(bench: Bench) -> None:
    trainer = bench.trainer
    outcomes = []
    for phase in (plan((0, 8), (20, 8)), plan((20, 8), (0, 8)), plan((0, 8), (20, 8), lr=1e-3)):
        bench.reset()
        trainer.run(phase, never)
        outcomes.append(weights_of(trainer))
    assert not same(outcomes[0], outcomes[1])
    assert not same(outcomes[0], outcomes[2])


def test_plans_that_do_not_fit_are_refused_before_training(trainer: Trainer) -> None:
    good = plan((0, 8))
    before, position = weights_of(trainer), trainer.position
    for bad in (
        dataclasses.replace(good, learning_rates=good.learning_rates[:1]),
        dataclasses.replace(good, learning_rates=(*good.learning_rates, 1e-3)),
        dataclasses.replace(good, windows_per_step=0),
        dataclasses.replace(good, generation=Generation(1)),
        plan((0, 0)),
    ):
        with pytest.raises(ValueError, match="expected"):
            trainer.run(bad, lambda _: pytest.fail("training began"))
    assert same(weights_of(trainer), before)
    assert trainer.position == position


def test_an_empty_plan_does_nothing(trainer: Trainer) -> None:
    before = weights_of(trainer)
    result = trainer.run(plan(), never)
    assert (result.steps, result.windows, result.stopped) == (0, 0, False)
    assert same(weights_of(trainer), before)


def test_divergence_is_raised_and_asks_for_other_weights(bench: Bench) -> None:
    trainer = bench.trainer
    with pytest.raises(Diverged):
        trainer.run(plan((0, 40), lr=1e38), never)
    with pytest.raises(Diverged):
        trainer.run(plan((0, 8)), never)
    trainer.load(bench.initial, Generation(0))
    assert trainer.position.inner_state == "fresh"
    result = trainer.run(plan((0, 8)), never)
    assert np.isfinite(result.losses).all()
    recovered = weights_of(trainer)
    bench.reset()
    trainer.run(plan((0, 8)), never)
    assert same(weights_of(trainer), recovered)


def test_restore_ends_a_divergence_too(bench: Bench) -> None:
    with pytest.raises(Diverged):
        bench.trainer.run(plan((0, 40), lr=1e38), never)
    bench.reset()
    assert np.isfinite(bench.trainer.run(plan((0, 8)), never).losses).all()


def test_replay_from_a_saved_state_is_exact(bench: Bench, tmp_path: Path) -> None:
    trainer = bench.trainer
    trainer.run(plan((0, 8), first_step=10), never)
    trainer.save(tmp_path / "state")
    at_save, position = weights_of(trainer), trainer.position
    phase = plan((20, 9), first_step=12)
    first = trainer.run(phase, never)
    after = weights_of(trainer)
    assert trainer.restore(tmp_path / "state") == trainer.position == position
    assert (position.global_step, position.inner_state) == (12, "restored")
    assert same(weights_of(trainer), at_save)
    assert trainer.run(phase, never).losses == first.losses
    assert same(weights_of(trainer), after)


def test_states_are_restored_in_any_order(bench: Bench, tmp_path: Path) -> None:
    trainer = bench.trainer
    trainer.run(plan((0, 8)), never)
    trainer.save(tmp_path / "state")
    trainer.run(plan((20, 8)), never)
    expected = weights_of(trainer)
    bench.reset()
    assert trainer.position.inner_state == "fresh"
    trainer.restore(tmp_path / "state")
    trainer.run(plan((20, 8)), never)
    assert same(weights_of(trainer), expected)


def test_saving_changes_nothing(bench: Bench, tmp_path: Path) -> None:
    trainer = bench.trainer
    trainer.run(plan((0, 8)), never)
    plain = weights_of(trainer)
    bench.reset()
    trainer.save(tmp_path / "before the first step")
    trainer.run(plan((0, 8)), never)
    trainer.save(tmp_path / "after it")
    assert same(weights_of(trainer), plain)


def test_another_trainer_takes_up_a_saved_state(
    bench: Bench, engine: str, settings: TrainerSettings, tmp_path: Path
) -> None:
    bench.trainer.run(plan((0, 8)), never)
    bench.trainer.save(tmp_path / "state")
    bench.trainer.run(plan((20, 8)), never)
    other = build(engine, settings)
    other.restore(tmp_path / "state")
    other.run(plan((20, 8)), never)
    assert same(weights_of(other), weights_of(bench.trainer))
    other.close()


def test_a_state_needs_a_directory_of_its_own(trainer: Trainer, tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match="exists already"):
        trainer.save(tmp_path)


def test_what_a_crash_left_of_a_state_does_not_matter(trainer: Trainer, tmp_path: Path) -> None:
    (tmp_path / "state.partial").mkdir()
    (tmp_path / "state.partial" / "rubbish").touch()
    trainer.save(tmp_path / "state")
    assert not (tmp_path / "state.partial").exists()
    assert not (tmp_path / "state" / "rubbish").exists()


@pytest.mark.parametrize("damage", ["nothing there", "no marker", "file lost", "file cut"])
def test_an_incomplete_state_is_refused(trainer: Trainer, tmp_path: Path, damage: str) -> None:
    directory = tmp_path / "state"
    trainer.run(plan((0, 8)), never)
    trainer.save(directory)
    data = next(path for path in directory.iterdir() if path.name != saved.MARKER)
    if damage == "nothing there":
        directory.rename(tmp_path / "elsewhere")
    elif damage == "no marker":
        (directory / saved.MARKER).unlink()
    elif damage == "file lost":
        data.unlink()
    else:
        data.write_bytes(data.read_bytes()[:-1])
    before, position = weights_of(trainer), trainer.position
    with pytest.raises(IntegrityError):
        trainer.restore(directory)
    assert same(weights_of(trainer), before)
    assert trainer.position == position
    trainer.run(plan((0, 4)), never)


def test_evaluate_sums_over_the_first_heldout_windows(trainer: Trainer, settings: TrainerSettings) -> None:
    three, four = trainer.evaluate(3), trainer.evaluate(4)
    assert three[1] == 3 * settings.seq_len
    assert four[1] == 4 * settings.seq_len
    assert 0 < three[0] < four[0]
    assert trainer.evaluate(3) == three
    assert trainer.evaluate(0) == (0.0, 0)


def test_evaluate_and_generate_change_nothing(bench: Bench) -> None:
    trainer = bench.trainer
    trainer.run(plan((0, 8)), never)
    plain = weights_of(trainer)
    bench.reset()
    trainer.evaluate(5)
    trainer.generate([1, 2], 3, 0.5, 1)
    trainer.run(plan((0, 8)), never)
    assert same(weights_of(trainer), plain)


def test_generate_continues_the_prompt(trainer: Trainer, settings: TrainerSettings) -> None:
    prompt = list(range(1, settings.seq_len))
    likely = trainer.generate(prompt, 5, 0.0, 1)
    assert len(likely) == 5
    assert likely == trainer.generate(prompt, 5, 0.0, 2)
    drawn = trainer.generate(prompt, 5, 1.0, 1)
    assert drawn == trainer.generate(prompt, 5, 1.0, 1)
    assert drawn != trainer.generate(prompt, 5, 1.0, 2)
    assert trainer.generate(prompt, 0, 0.0, 1) == []


def test_the_window_log_holds_every_step(engine: str, settings: TrainerSettings, bench: Bench, tmp_path: Path) -> None:
    trainer = build(engine, dataclasses.replace(settings, window_log=tmp_path / "windows"))
    trainer.load(bench.initial, Generation(3))
    trainer.run(plan((4, 3), (9, 2), per_step=4, first_step=5, generation=3), never)
    trainer.close()
    log = window_log_path(tmp_path / "windows", 0)
    assert log.read_text() == "load 3\nrun 0\n0 3 5 0 4 5 6 9\n0 3 6 0 10\n"


def test_the_window_log_tells_where_restored_weights_come_from(
    engine: str, settings: TrainerSettings, bench: Bench, tmp_path: Path
) -> None:
    trainer = build(engine, dataclasses.replace(settings, window_log=tmp_path / "windows"))
    trainer.load(bench.initial, Generation(3))
    trainer.run(plan((4, 4), per_step=4, first_step=5, generation=3), never)
    trainer.save(tmp_path / "saved")
    trainer.run(plan((8, 4), per_step=4, first_step=6, generation=3), never)
    trainer.restore(tmp_path / "saved")
    trainer.run(plan((12, 4), per_step=4, first_step=6, generation=3), never)
    trainer.close()
    lines = window_log_path(tmp_path / "windows", 0).read_text().splitlines()
    assert lines[5:7] == ["restore 3 6", "run 0"]
    assert trained_windows(lines, "log") == {NO_LEASE: (4, 5, 6, 7, 12, 13, 14, 15)}


def test_a_phase_that_is_moved_keeps_its_progress_and_its_record(
    engine: str, settings: TrainerSettings, bench: Bench, tmp_path: Path
) -> None:
    trainer = build(engine, dataclasses.replace(settings, window_log=tmp_path / "windows"))
    trainer.load(bench.initial, Generation(0))
    trainer.run(plan((0, 8)), never)
    delta, start, other = tmp_path / "delta", tmp_path / "start", tmp_path / "other"
    export = {"op": "export", "path": str(delta), "base": str(bench.initial), "codec": "fp32", "start": str(start)}
    perform(trainer, export, never, True)
    began = weights_of(trainer)
    trainer.run(dataclasses.replace(plan((8, 8), first_step=2), ahead=True), never)
    progress = {name: held - began[name] for name, held in weights_of(trainer).items()}
    write_initial(trainer, other, seed=5)
    move = {"op": "move", "start": str(start), "target": str(other), "work": str(tmp_path / "work"), "generation": 1}
    answer = perform(trainer, {**move, "windows": 4}, never, True)
    assert not (tmp_path / "work").exists() and trainer.position.generation == 1
    with WeightsFile(other) as file:
        for name, held in weights_of(trainer).items():
            assert np.allclose(held - file.array(name), progress[name], atol=1e-5)
        assert same(weights_of(trainer), {name: file.array(name) + moved for name, moved in progress.items()})
    trainer.run(plan((16, 4), first_step=4, generation=1), never)
    moved = weights_of(trainer)
    trainer.load(other, Generation(1))
    nll, tokens = trainer.evaluate(4)
    assert (answer["nll"], answer["tokens"]) == (pytest.approx(nll), tokens)
    assert not same(weights_of(trainer), moved)
    trainer.close()
    lines = window_log_path(tmp_path / "windows", 0).read_text().splitlines()
    assert trained_windows(lines, "log") == {NO_LEASE: (*range(8, 20),)}


def test_a_move_from_damaged_files_is_an_error(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "start").write_bytes(b"no weights")
    move = {
        "op": "move",
        "start": str(tmp_path / "start"),
        "target": str(bench.initial),
        "work": str(tmp_path / "work"),
    }
    with pytest.raises(IntegrityError):
        perform(bench.trainer, {**move, "generation": 1, "windows": 0}, never, True)
    assert not (tmp_path / "work").exists()
