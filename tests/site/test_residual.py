"""Error feedback at a site: all that was learnt is sent in the end, and the residual follows the fate of its delta."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.site.bench import plan

from crosstrain.domain.ids import Token
from crosstrain.domain.phase import PhaseProgress
from crosstrain.outer.encoding import BF16, widen
from crosstrain.site.commands import perform
from crosstrain.site.counting import CountingTrainer
from crosstrain.site.spool import Fate, Spool
from crosstrain.storage.delta_file import Codec, DeltaFile
from crosstrain.storage.weights_file import WeightsFile
from crosstrain.wire.messages import ContributionRequest


class Site:
    """A trainer, a spool, and the sum of what its accepted deltas said."""

    def __init__(self, directory: Path, codec: Codec) -> None:
        self.spool, self.codec = Spool(directory, "spec"), codec
        self.trainer = CountingTrainer(16)
        self.base = directory / "weights"
        perform(self.trainer, {"op": "initialise", "seed": 1, "path": str(self.base)}, never, True)
        perform(self.trainer, {"op": "load", "path": str(self.base), "generation": 0}, never, True)
        self.sent = np.zeros(17)
        self.learnt = np.zeros(17)
        self.largest_step = 0.0

    def train_and_export(self, first: int) -> np.ndarray:
        """The true delta of one phase from the base weights, whose file is left in the spool as the agent leaves it."""
        perform(self.trainer, {"op": "load", "path": str(self.base), "generation": 0}, never, True)
        self.trainer.run(plan((first, 8), first_step=first, lr=1e-3), never)
        before = self.spool.residual
        residual = {"before": before and str(before), "after": str(self.spool.next_residual)}
        command: dict[str, Any] = {"op": "export", "path": str(self.spool.delta), "base": str(self.base)}
        perform(self.trainer, {**command, "codec": self.codec, "residual": residual}, never, True)
        self.spool.remember(Token(first), contribution(), self.spool.next_residual)
        held: list[np.ndarray] = []
        self.trainer.export(lambda _name, tensor: held.append(tensor.reshape(-1).copy()))
        with WeightsFile(self.base) as file:
            flat = np.concatenate([file.array(entry.name).reshape(-1) for entry in file.entries])
        return np.concatenate(held) - flat

    def decoded(self) -> np.ndarray:
        with DeltaFile(self.spool.delta, self.codec) as file:
            found = []
            for spec in self.trainer.manifest:
                out = np.empty(int(np.prod(spec.shape)), np.float32)
                widen(file.tensor(spec.name), out)
                found.append(out)
                self.largest_step = max(self.largest_step, float(file.tensor(spec.name).scales.max()))
        return np.concatenate(found)

    def phase(self, first: int, fate: Fate) -> None:
        true, said = self.train_and_export(first), self.decoded()
        if fate == "accepted":
            self.learnt, self.sent = self.learnt + true, self.sent + said
        self.spool.forget(fate)

    def is_even(self) -> bool:
        """Sent and residual make what was learnt, up to the bfloat16 rounding of the residuals."""
        apart = np.abs(self.sent + self.residual() - self.learnt).max()
        return bool(apart <= 0.05 * self.largest_step / 2)

    def residual(self) -> np.ndarray:
        if self.spool.residual is None:
            return np.zeros(17)
        with WeightsFile(self.spool.residual) as file:
            return np.concatenate([file.array(entry.name).astype(np.float32).reshape(-1) for entry in file.entries])


def never(_: PhaseProgress) -> bool:
    return False


def contribution() -> ContributionRequest:
    return ContributionRequest(
        session=1, generation=0, blocks=1, windows=8, tokens=128, steps=2, delta="0" * 64,
        windows_digest="8:" + "0" * 32, loss=1.0, seconds=1.0,
    )  # fmt: skip


@pytest.fixture(params=["int8", "int4"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Site:
    return Site(tmp_path / "site", request.param)


def test_what_was_sent_differs_from_what_was_learnt_by_the_last_residual_alone(site: Site) -> None:
    for number in range(12):
        site.phase(8 * number, "accepted")
    assert site.is_even()
    assert np.abs(site.residual()).max() > 0


def test_a_refused_delta_leaves_the_residual_as_it_was(site: Site) -> None:
    for number, fate in enumerate(("accepted", "refused", "refused", "accepted", "refused")):
        before = site.residual()
        site.phase(8 * number, fate)  # type: ignore[arg-type]
        assert (fate == "refused") == np.array_equal(site.residual(), before)
    assert site.is_even()


def test_an_unknown_fate_drops_both_residuals(site: Site) -> None:
    site.phase(0, "accepted")
    site.phase(8, "unknown")
    assert site.spool.residual is None
    assert list(site.spool.directory.glob("residual-*")) == []


@pytest.mark.parametrize("crash", ["before the note", "after the note", "after the answer"])
def test_a_crash_loses_and_doubles_nothing(site: Site, crash: str) -> None:
    """The spool is opened again from the disk, and the phase, or only its answer, is repeated."""
    site.phase(0, "accepted")
    note = (site.spool.directory / "note.json").read_bytes()
    before = site.residual()
    site.train_and_export(8)
    if crash == "before the note":
        (site.spool.directory / "note.json").write_bytes(note)
    site.spool = Spool(site.spool.directory, "spec")
    np.testing.assert_array_equal(site.residual(), before)
    if crash == "before the note":
        site.phase(8, "accepted")
    else:
        said = site.decoded()
        site.learnt, site.sent = site.learnt + true_delta(site, 8), site.sent + said
        site.spool.forget("accepted")
        if crash == "after the answer":
            site.spool = Spool(site.spool.directory, "spec")
            site.spool.forget("unknown") if site.spool.note.pending else None
    assert site.is_even()


def true_delta(site: Site, first: int) -> np.ndarray:
    """Of the phase that was just trained: the trainer still holds it."""
    held: list[np.ndarray] = []
    site.trainer.export(lambda _name, tensor: held.append(tensor.reshape(-1).copy()))
    with WeightsFile(site.base) as file:
        return np.concatenate(held) - np.concatenate([file.array(e.name).reshape(-1) for e in file.entries])


def damage_nothing(_: Path) -> None:
    """Leaves the file as it is."""


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


@pytest.mark.parametrize("damage", [damage_nothing, cut, Path.unlink])
def test_a_damaged_residual_is_zero_and_says_so(
    site: Site, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    site.phase(0, "accepted")
    assert site.spool.residual is not None
    damage(site.spool.residual)
    with caplog.at_level(logging.WARNING):
        site.phase(8, "accepted")
    assert ("what the last delta left out is lost" in caplog.text) == (damage is not damage_nothing)
    assert site.residual().astype(BF16).shape == (17,)
