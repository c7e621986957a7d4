"""What only the torchtitan trainer promises."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.site.bench import MODEL, Bench, build, plan, same, weights_of, write_initial

from crosstrain.config import InnerSection
from crosstrain.domain.ids import Generation
from crosstrain.errors import IntegrityError
from crosstrain.site import saved
from crosstrain.site.settings import TrainerSettings

pytestmark = pytest.mark.torch


@pytest.fixture
def bench(benches: Callable[[str], Bench]) -> Bench:
    bench = benches("titan")
    bench.reset()
    return bench


def test_settings_survive_json(settings: TrainerSettings) -> None:
    with_log = dataclasses.replace(settings, window_log=Path("windows"))
    assert TrainerSettings.from_json(settings.to_json()) == settings
    assert TrainerSettings.from_json(with_log.to_json()) == with_log


def test_windows_behind_the_corpus_are_refused(bench: Bench) -> None:
    with pytest.raises(ValueError, match="below 600"):
        bench.trainer.run(plan((590, 11)), lambda _: pytest.fail("training began"))


def test_heldout_windows_are_all_that_there_are(bench: Bench, settings: TrainerSettings) -> None:
    count = (settings.heldout_tokens.stat().st_size // 2 - 1) // settings.seq_len
    assert bench.trainer.evaluate(10_000)[1] == count * settings.seq_len


def test_nothing_is_written_outside_the_working_directory(bench: Bench, settings: TrainerSettings) -> None:
    bench.trainer.run(plan((0, 4)), lambda _: False)
    assert {path.name for path in settings.work_dir.parent.iterdir()} <= {"train.bin", "heldout.bin", "work"}


def test_muon_trains_the_hidden_matrices(bench: Bench, settings: TrainerSettings, tmp_path: Path) -> None:
    inner = InnerSection(optimizer="muon", lr=2e-2, adam_lr=3e-3, weight_decay=0.0)
    trainer = build("titan", dataclasses.replace(settings, inner=inner))
    trainer.load(bench.initial, Generation(0))
    before = weights_of(trainer)
    trainer.run(plan((0, 4), lr=2e-2), lambda _: False)
    moved = {name: tensor - before[name] for name, tensor in weights_of(trainer).items()}
    # An orthogonal step has singular values near 1, whatever the gradient was; Adam's first step is the sign of it.
    rotation = moved["model.layers.0.self_attn.q_proj.weight"] / (2e-2 * np.sqrt(2))
    assert np.all(np.abs(np.linalg.svd(rotation, compute_uv=False) - 1) < 0.5)
    embedding = np.abs(moved["model.embed_tokens.weight"])
    assert np.median(embedding[embedding > 0]) == pytest.approx(3e-3, rel=1e-2)
    trainer.save(tmp_path / "state")
    with pytest.raises(IntegrityError, match="inner optimiser"):
        bench.trainer.restore(tmp_path / "state")
    assert bench.trainer.position.inner_state == "fresh"
    trainer.run(plan((4, 8)), lambda _: False)
    after = weights_of(trainer)
    trainer.restore(tmp_path / "state")
    trainer.run(plan((4, 8)), lambda _: False)
    assert same(weights_of(trainer), after)
    trainer.close()


def test_a_state_of_another_model_is_refused(bench: Bench, settings: TrainerSettings, tmp_path: Path) -> None:
    wider = dataclasses.replace(settings, model=MODEL.model_copy(update={"intermediate_size": 48}))
    other = build("titan", wider)
    other.load(write_initial(other, tmp_path / "weights"), Generation(0))
    other.save(tmp_path / "state")
    other.close()
    before = weights_of(bench.trainer)
    with pytest.raises(IntegrityError, match="feed_forward"):
        bench.trainer.restore(tmp_path / "state")
    assert same(weights_of(bench.trainer), before)


def test_a_state_whose_moments_are_gone_is_refused(bench: Bench, tmp_path: Path) -> None:
    bench.trainer.run(plan((0, 8)), lambda _: False)
    bench.trainer.save(tmp_path / "state")
    marker = tmp_path / "state" / saved.MARKER
    document = json.loads(marker.read_text())
    document["record"]["moments"] *= 2
    marker.write_text(json.dumps(document))
    with pytest.raises(IntegrityError, match="moments"):
        bench.trainer.restore(tmp_path / "state")


def test_untied_heads_are_trained_and_named(settings: TrainerSettings, tmp_path: Path) -> None:
    untied = MODEL.model_copy(update={"tie_word_embeddings": False})
    trainer = build("titan", dataclasses.replace(settings, model=untied))
    assert trainer.manifest[-1].name == "lm_head.weight"
    trainer.load(write_initial(trainer, tmp_path / "weights"), Generation(0))
    before = weights_of(trainer)
    trainer.run(plan((0, 8)), lambda _: False)
    after = weights_of(trainer)
    assert all(np.any(after[name] != before[name]) for name in after)
    trainer.close()


def test_bfloat16_arithmetic_keeps_float32_weights(settings: TrainerSettings, bench: Bench) -> None:
    inner = settings.inner.model_copy(update={"dtype": "bfloat16"})
    trainer = build("titan", dataclasses.replace(settings, inner=inner))
    trainer.load(bench.initial, Generation(0))
    rounded = trainer.run(plan((0, 8)), lambda _: False)
    exact = bench.trainer.run(plan((0, 8)), lambda _: False)
    assert rounded.losses != exact.losses
    assert rounded.losses == pytest.approx(exact.losses, rel=1e-2)
    trainer.close()
