"""One training of `codecs.Arm` with overlap: every phase but the first begins at the site's own weights and is moved later."""

from __future__ import annotations

from dataclasses import dataclass, replace

from training_arm import Arm, initial_state, never

from crosstrain.domain.generation import GenerationRecord
from crosstrain.domain.ids import Digest, Generation
from crosstrain.domain.phase import PhasePlan, step_count
from crosstrain.site.commands import perform


@dataclass
class OverlapArm(Arm):
    """Attributes:
    part: how much of a phase is trained before the generation is there.
    """

    part: float = 1.0

    def _phase(self, site: int, record: GenerationRecord) -> tuple[Digest, int]:
        saved = self.directory / f"site-{site}"
        newest, start = saved / str(record.number - 1), self.directory / f"start-{site}"
        base = self._objects.path(record.weights)
        whole = self._plan(record)
        self.trainer.restore(newest if newest.exists() else initial_state(self.trainer, self._fresh))
        tokens = 0
        if record.number == 0:
            self.trainer.load(base, record.number)
        else:
            ahead, whole = _cut(whole, round(self.part * len(whole.blocks)))
            if ahead.blocks:
                early = replace(ahead, generation=Generation(record.number - 1), ahead=True)
                tokens += self.trainer.run(early, never).tokens
            move = {"op": "move", "start": str(start), "target": str(base), "work": str(self.directory / "moved")}
            perform(self.trainer, {**move, "generation": record.number, "windows": 0}, never, True)
        if whole.blocks:
            tokens += self.trainer.run(whole, never).tokens
        self.trainer.save(saved / str(record.number))
        path = self.directory / f"delta-{site}"
        export = {"op": "export", "path": str(path), "base": str(base), "codec": self.codec, "start": str(start)}
        perform(self.trainer, export, never, True)
        self.sizes.append(path.stat().st_size)
        return self._objects.adopt(path), tokens


def _cut(plan: PhasePlan, blocks: int) -> tuple[PhasePlan, PhasePlan]:
    """The plan's first blocks and the others."""
    windows = sum(block.count for block in plan.blocks[:blocks])
    steps = step_count(windows, plan.windows_per_step)
    first = replace(plan, blocks=plan.blocks[:blocks], learning_rates=plan.learning_rates[:steps])
    others = replace(
        plan,
        blocks=plan.blocks[blocks:],
        learning_rates=plan.learning_rates[steps:],
        first_step=plan.first_step + steps,
    )
    return first, others
