"""The outer step on numbers known beforehand, against torch, and against gradient descent's direction."""

from __future__ import annotations

import numpy as np
import pytest

from crosstrain.outer.outer_optimizer import OuterHyperparameters, outer_step_chunk

PAPER = OuterHyperparameters(0.7, 0.9)
SOLO = OuterHyperparameters(1.0, 0.9)
DELTAS = (1.0, 0.5, -0.25, 0.125)


def step(weights: np.ndarray, momentum: np.ndarray, delta: np.ndarray, hyper: OuterHyperparameters) -> None:
    outer_step_chunk(weights, momentum, delta.copy(), hyper, np.empty_like(weights))


@pytest.mark.parametrize(
    ("hypers", "expected"),
    [
        ((PAPER, PAPER, PAPER, PAPER), (1.33, 2.562, 3.0233, 3.76222)),
        ((PAPER, SOLO, PAPER, PAPER), (1.33, 2.847, 3.4298, 4.27807)),
    ],
    ids=["constant eta", "solo second round"],
)
def test_golden_vectors(hypers: tuple[OuterHyperparameters, ...], expected: tuple[float, ...]) -> None:
    weights, momentum = np.zeros(1, np.float32), np.zeros(1, np.float32)
    for hyper, delta, value in zip(hypers, DELTAS, expected, strict=True):
        step(weights, momentum, np.array([delta], np.float32), hyper)
        assert weights[0] == pytest.approx(value, abs=2e-6)


def test_the_anchor_form_of_the_paper_gives_the_same() -> None:
    weights, momentum, anchor, w = np.zeros(1, np.float32), np.zeros(1, np.float32), 0.0, 0.0
    for delta, hyper in zip(np.linspace(-1, 1.3, 30), [PAPER, PAPER, SOLO] * 10, strict=True):
        step(weights, momentum, np.array([delta], np.float32), hyper)
        moved = w + hyper.eta * float(np.float32(delta))
        w, anchor = moved + hyper.beta * (moved - anchor), moved
        assert weights[0] == pytest.approx(w, abs=1e-4)  # float32 at a magnitude of 38 over 30 steps


def test_first_step_moves_19_tenths_of_eta() -> None:
    for eta, moved in ((0.7, 1.33), (1.0, 1.9), (0.4, 0.76)):
        weights = np.zeros(1, np.float32)
        step(weights, np.zeros(1, np.float32), np.ones(1, np.float32), OuterHyperparameters(eta, 0.9))
        assert weights[0] == pytest.approx(moved, abs=1e-6)


@pytest.mark.torch
@pytest.mark.parametrize("hyper", [PAPER, OuterHyperparameters(1.0, 0.0), OuterHyperparameters(0.4, 0.5)])
def test_parity_with_torch_at_constant_eta(hyper: OuterHyperparameters) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(7)
    weights, momentum = rng.standard_normal(1000).astype(np.float32), np.zeros(1000, np.float32)
    parameter = torch.nn.Parameter(torch.from_numpy(weights.copy()))
    reference = torch.optim.SGD([parameter], lr=hyper.eta, momentum=hyper.beta, nesterov=hyper.beta > 0)
    for _ in range(25):
        delta = (rng.standard_normal(1000) * 0.01).astype(np.float32)
        step(weights, momentum, delta, hyper)
        parameter.grad = torch.from_numpy(-delta)  # the pseudo-gradient is the negative of the delta
        reference.step()
        np.testing.assert_allclose(weights, parameter.detach().numpy(), rtol=0, atol=2e-6)


def test_loss_falls_on_a_quadratic() -> None:
    target = np.linspace(-1, 1, 11).astype(np.float32)
    weights, momentum, losses = np.zeros(11, np.float32), np.zeros(11, np.float32), []
    for _ in range(60):
        site = weights - np.float32(0.1) * (weights - target)  # one gradient step at a site
        step(weights, momentum, site - weights, PAPER)
        losses.append(float(np.square(weights - target).sum()))
    assert losses[0] < float(np.square(target).sum())
    assert losses[-1] < 1e-3 * losses[0]


def test_one_site_without_momentum_is_plain_training() -> None:
    rng = np.random.default_rng(1)
    weights = rng.standard_normal(5000).astype(np.float32)
    site = (weights * (1 + 0.01 * rng.standard_normal(5000))).astype(np.float32)  # near enough that site - w is exact
    step(weights, rng.standard_normal(5000).astype(np.float32), site - weights, OuterHyperparameters(1.0, 0.0))
    np.testing.assert_array_equal(weights, site)


def test_outputs_apart_leave_the_inputs() -> None:
    rng = np.random.default_rng(2)
    weights, momentum, delta = (rng.standard_normal(64).astype(np.float32) for _ in range(3))
    before = weights.copy(), momentum.copy()
    new = np.empty_like(weights), np.empty_like(weights)
    outer_step_chunk(weights, momentum, delta.copy(), PAPER, np.empty_like(weights), *new)
    np.testing.assert_array_equal((weights, momentum), before)
    step(weights, momentum, delta, PAPER)
    np.testing.assert_array_equal((weights, momentum), new)


@pytest.mark.parametrize(("eta", "beta"), [(0.0, 0.9), (-1.0, 0.9), (0.7, 1.0), (0.7, -0.1), (float("nan"), 0.0)])
def test_impossible_hyperparameters(eta: float, beta: float) -> None:
    with pytest.raises(ValueError, match="expected eta > 0"):
        OuterHyperparameters(eta, beta)
