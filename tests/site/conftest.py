"""Trainers are built once per session: torch's import and the build cost more than all else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.site.bench import Bench, build, make_settings, write_initial

from crosstrain.domain.ids import Generation
from crosstrain.site.settings import TrainerSettings
from crosstrain.site.trainer import Trainer


@pytest.fixture(scope="session")
def settings(tmp_path_factory: pytest.TempPathFactory) -> TrainerSettings:
    return make_settings(tmp_path_factory.mktemp("trainer"))


@pytest.fixture(scope="session")
def benches(settings: TrainerSettings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Bench]]:
    """Benches by the name of the engine; each is made once, when first asked for."""
    made: dict[str, Bench] = {}

    def bench(engine: str) -> Bench:
        if engine not in made:
            directory = tmp_path_factory.mktemp(engine)
            trainer = build(engine, settings)
            initial = write_initial(trainer, directory / "initial.safetensors")
            trainer.load(initial, Generation(0))
            trainer.save(directory / "fresh")
            made[engine] = Bench(trainer, initial, lambda: _restore(trainer, directory / "fresh"))
        return made[engine]

    yield bench
    for each in made.values():
        each.trainer.close()


def _restore(trainer: Trainer, directory: Path) -> None:
    trainer.restore(directory)
