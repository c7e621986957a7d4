"""A decision with its reason. The rule that decides writes the sentence; status, logs and replies repeat it (G6)."""

from __future__ import annotations

from dataclasses import dataclass

from crosstrain.domain.ids import Instant


@dataclass(frozen=True, slots=True)
class Verdict:
    """Yes or no, and why.

    Attributes:
        yes: the decision.
        reason: one sentence for people.
        until: when the decision changes by itself, if time alone can change it.
    """

    yes: bool
    reason: str
    until: Instant | None = None

    def __bool__(self) -> bool:
        return self.yes
