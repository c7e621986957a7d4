"""Contributions: what a site claims, and the judgement before it counts."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from crosstrain.domain.ids import Digest, Generation, Token
from crosstrain.domain.lease import Lease, LeaseState
from crosstrain.domain.plural import counted
from crosstrain.domain.verdict import Verdict

MIN_NORM_HISTORY = 5
"""Accepted contributions before their median norm is evidence; below it no norm is refused."""
OF_CONTENT = frozenset({"not-finite", "norm"})
"""Kinds of refusal for what a site trained, whenever and on whatever lease it did."""
MOST_REFUSALS = 3
"""Refusals for their content that contributions of one session may get in a row."""


@dataclass(frozen=True, slots=True)
class Contribution:
    """The message of a site after an inner phase.

    Attributes:
        blocks: whole blocks trained, a prefix of the lease.
        tokens: labels that counted in the loss: the weight in the merge.
        steps: optimiser steps taken.
        delta: digest of the blob with the delta, theta - w.
        windows_digest: multiset digest of the windows that the ranks fed to the model.
    """

    token: Token
    generation: Generation
    blocks: int
    windows: int
    tokens: int
    steps: int
    delta: Digest
    windows_digest: str
    loss: float | None


@dataclass(frozen=True, slots=True)
class Judgement:
    """Accepted, or refused with a machine-readable kind and a sentence."""

    accepted: bool
    kind: str
    reason: str

    @property
    def malformed(self) -> bool:
        """The message contradicts its lease: an error of the sender, which changes nothing."""
        return self.kind.startswith("wrong-")

    @property
    def of_content(self) -> bool:
        """Refused for what was trained: the site's next phase must not go on from it."""
        return self.kind in OF_CONTENT


def judge_claim(
    claim: Contribution, lease: Lease, current: Generation, seq_len: int, window_counts: Collection[int]
) -> Judgement:
    """The part of the judgement that needs no look at the delta.

    Args:
        lease: the lease of the claim's token, as stored.
        current: the newest published generation.
        seq_len: labels of one window.
        window_counts: how many windows `claim.blocks` blocks can have; two values where the corpus's short last block
            may be among them.
    """
    if lease.state is not LeaseState.LIVE:
        return _no("lease-over", f"lease {lease.token} is {lease.state}, only a live lease can contribute")
    if claim.generation != lease.generation:
        return _no("wrong-base", f"the lease starts from generation {lease.generation}, found {claim.generation}")
    if claim.generation != current:
        return _no("stale-base", f"generation {current} is current, the delta is against {claim.generation}")
    if not 1 <= claim.blocks <= lease.blocks:
        return _no("wrong-blocks", f"expected 1 to {counted(lease.blocks, 'block')}, found {claim.blocks}")
    if claim.windows not in window_counts:
        expected = " or ".join(str(count) for count in sorted(window_counts))
        return _no(
            "wrong-windows", f"{counted(claim.blocks, 'block')} should have {expected} windows, found {claim.windows}"
        )
    if claim.windows_digest.partition(":")[0] != str(claim.windows):
        return _no(
            "wrong-windows", f"the windows' digest {claim.windows_digest} is not of {counted(claim.windows, 'window')}"
        )
    if not 1 <= claim.tokens <= claim.windows * seq_len:
        return _no("wrong-tokens", f"expected 1 to {counted(claim.windows * seq_len, 'token')}, found {claim.tokens}")
    if not 1 <= claim.steps <= claim.windows:
        return _no("wrong-steps", f"expected 1 to {counted(claim.windows, 'step')}, found {claim.steps}")
    if claim.loss is not None and not math.isfinite(claim.loss):
        return _no("not-finite", f"the training loss is {claim.loss}")
    return Judgement(True, "accepted", "the claim fits its lease")


def judge_delta(norm: float, finite: bool, history: Sequence[float], limit: float) -> Judgement:
    """The part that needs the delta's content.

    Args:
        norm: L2 norm of the delta.
        history: norms of the contributions accepted before, newest last.
        limit: how many times their median is still let in.
    """
    if not finite or not math.isfinite(norm):
        return _no("not-finite", "the delta holds NaN or infinity")
    if len(history) >= MIN_NORM_HISTORY:
        median = statistics.median(history)
        if median > 0 and norm > limit * median:
            return _no("norm", f"the delta's norm {norm:.4g} is more than {limit:g} x the running median {median:.4g}")
    return Judgement(True, "accepted", f"all finite, norm {norm:.4g}")


def may_go_on(refused: int) -> Verdict:
    """Whether a session gets more work. Each phase after such a refusal began with the global model and a fresh inner state, so what
    is wrong is neither and will be as wrong the next time.

    Args:
        refused: how many of its contributions were refused for their content since one was accepted.
    """
    if refused < MOST_REFUSALS:
        return Verdict(True, f"{refused} of {MOST_REFUSALS} refusals in a row")
    return Verdict(False, f"{refused} contributions of it in a row were refused for what they held")


def _no(kind: str, reason: str) -> Judgement:
    return Judgement(False, kind, reason)
