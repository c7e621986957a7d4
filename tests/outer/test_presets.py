"""Which eta and beta a round gets."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from crosstrain.config import OuterSection
from crosstrain.outer.outer_optimizer import OuterHyperparameters
from crosstrain.outer.presets import OuterRule, hyperparameters, outer_rule

UNSET = OuterSection()


@pytest.mark.parametrize(
    ("preset", "optimizer", "expected"),
    [
        ("paper", "adamw", OuterRule(0.7, 0.9, 1.0, 0.9, 0.0)),
        ("paper", "muon", OuterRule(0.7, 0.9, 1.0, 0.9, 0.0)),
        ("tuned", "adamw", OuterRule(0.7, 0.9, 1.0, 0.0, 0.78)),
        ("tuned", "muon", OuterRule(0.7, 0.5, 1.0, 0.0, 0.0)),
        ("fedavg", "adamw", OuterRule(1.0, 0.0, 1.0, 0.0, 0.0)),
        ("fedavg", "muon", OuterRule(1.0, 0.0, 1.0, 0.0, 0.0)),
    ],
)
def test_presets(preset: Any, optimizer: Any, expected: OuterRule) -> None:
    assert outer_rule(UNSET, preset, optimizer) == expected


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("eta", 0.25),
        ("solo_eta", 0.25),
        *((name, value) for name in ("beta", "solo_beta", "ramp") for value in (0.0, 0.25)),
    ],
)
def test_explicit_values_win_one_by_one(field: str, value: float) -> None:
    base = outer_rule(UNSET, "tuned", "adamw")
    found = outer_rule(OuterSection.model_validate({field: value}), "tuned", "adamw")
    assert found == dataclasses.replace(base, **{field: value})


def test_the_ramp_of_beta() -> None:
    rule = outer_rule(UNSET, "tuned", "adamw")
    betas = [hyperparameters(rule, step, 1000, 3).beta for step in (0, 390, 780, 1000, 5000)]
    assert betas == pytest.approx([0.0, 0.45, 0.9, 0.9, 0.9])
    assert hyperparameters(rule, 390, 1000, 2).eta == 0.7


@pytest.mark.parametrize(("preset", "beta"), [("paper", 0.9), ("fedavg", 0.0)])
def test_without_a_ramp_beta_is_constant(preset: Any, beta: float) -> None:
    rule = outer_rule(UNSET, preset, "adamw")
    assert [hyperparameters(rule, step, 100, 2).beta for step in (0, 1, 99, 1000)] == [beta] * 4


@pytest.mark.parametrize(("preset", "beta"), [("paper", 0.9), ("tuned", 0.0), ("fedavg", 0.0)])
def test_a_solo_round_has_its_own_values_unramped(preset: Any, beta: float) -> None:
    rule = outer_rule(UNSET, preset, "adamw")
    for step in (0, 50, 100):
        assert hyperparameters(rule, step, 100, 1) == OuterHyperparameters(1.0, beta)


@pytest.mark.parametrize("contributions", [0, -1])
def test_an_empty_round_has_no_outer_step(contributions: int) -> None:
    with pytest.raises(ValueError, match="at least one contribution"):
        hyperparameters(outer_rule(UNSET, "paper", "adamw"), 0, 100, contributions)
