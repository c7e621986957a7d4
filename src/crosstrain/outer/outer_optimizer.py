"""The outer step: Nesterov momentum on the mean delta, in the form of the paper (arXiv 2610.03457).

The paper writes, with the anchor v, the mean delta D = sum p_i Delta_i and the sign Delta_i = theta_i - w:

    v' = w + eta D;   w' = v' + beta (v' - v)

With m = v - w_before, the same without the anchor:

    m' = beta m + eta D;   w' = w + beta m' + eta D

Trap 1: eta is inside the momentum. torch.optim.SGD(nesterov=True) keeps it outside and gives the same weights only
while eta is constant; with eta = 1 in a solo second round the paper's form gives 1.33, 2.847 and torch's 1.33, 3.09 on
the golden vector of tests/outer. Inside, a round with another eta never rescales what earlier rounds contributed.

A round without contributions has no outer step: weights and momentum stay as they are, undecayed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Float32 = npt.NDArray[np.float32]


@dataclass(frozen=True)
class OuterHyperparameters:
    """The two numbers of one outer step, 0 < eta and 0 <= beta < 1."""

    eta: float
    beta: float

    def __post_init__(self) -> None:
        if not (self.eta > 0.0 and 0.0 <= self.beta < 1.0):
            raise ValueError(f"expected eta > 0 and 0 <= beta < 1, found {self.eta} and {self.beta}")


def outer_step_chunk(
    weights: Float32,
    momentum: Float32,
    mean_delta: Float32,
    hyper: OuterHyperparameters,
    scratch: Float32,
    out_weights: Float32 | None = None,
    out_momentum: Float32 | None = None,
) -> None:
    """One outer step on n elements; each operation is a correctly rounded float32 one, so all machines agree.

    Args:
        weights: [n] w, replaced by w' unless `out_weights` is given.
        momentum: [n] m, replaced by m' unless `out_momentum` is given.
        mean_delta: [n] D; its contents are lost.
        scratch: [n] overlaps none of the others.
        out_weights: [n] receives w'.
        out_momentum: [n] receives m'.
    """
    eta, beta = np.float32(hyper.eta), np.float32(hyper.beta)
    new_weights = weights if out_weights is None else out_weights
    new_momentum = momentum if out_momentum is None else out_momentum
    np.multiply(mean_delta, eta, out=mean_delta)
    np.multiply(momentum, beta, out=new_momentum)
    np.add(new_momentum, mean_delta, out=new_momentum)
    # The two small terms are summed first: one rounding at the magnitude of the weights instead of two.
    np.multiply(new_momentum, beta, out=scratch)
    np.add(scratch, mean_delta, out=scratch)
    np.add(weights, scratch, out=new_weights)
