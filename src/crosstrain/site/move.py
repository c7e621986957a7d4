"""Moving a phase that runs ahead onto the generation that has come meanwhile (`round.overlap`).

    theta <- w + (theta - theta_start)

with theta_start the weights at which the phase began. What it has trained stays in the weights; what they held before comes from
the generation now, the site's own last phase by way of the merge among it. Afterwards theta - w is the phase's progress, as if it
had begun at w.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from crosstrain.domain.ids import Generation
from crosstrain.site.trainer import Trainer
from crosstrain.storage.weights_file import Entry, WeightsFile, WeightsWriter

_CHUNK = 1 << 18  # elements; bounds what a move holds beside the tensor it was given


@dataclass(frozen=True, slots=True)
class Move:
    """Files of a move.

    Attributes:
        start: float32 weights at which the phase began.
        target: weights of the generation.
        work: where the moved weights are written, to be loaded from there.
    """

    start: Path
    target: Path
    work: Path
    generation: Generation

    def perform(self, trainer: Trainer, windows: int, writes: bool) -> tuple[float, int]:
        """Moves the trainer's weights; collective.

        Args:
            windows: held-out windows to measure the generation by on the way; 0 leaves it out.
            writes: whether this rank writes the files: rank 0 alone does.

        Returns:
            As `Trainer.evaluate`.

        Raises:
            IntegrityError: the files are damaged or of another model; the trainer's weights are not those of the phase any more.
        """
        failure = self._write(trainer) if writes else None
        if not writes:
            trainer.export(_ignore)
        measured = (0.0, 0)
        if windows:
            trainer.load(self.target, self.generation, moved=True)
            measured = trainer.evaluate(windows)
        # Every rank comes here, also if rank 0 could not write: then the file is not there, and all of them say so.
        try:
            trainer.load(self.work, self.generation, moved=True)
        except Exception as error:
            raise error from failure
        if writes:
            self.work.unlink(missing_ok=True)
        return measured

    def _write(self, trainer: Trainer) -> Exception | None:
        """What went wrong is returned: the other ranks go on to the next tensor, so this one has to as well."""
        self.work.unlink(missing_ok=True)
        failure: Exception | None = None
        with ExitStack() as stack:
            try:
                start, target = (stack.enter_context(WeightsFile(path)) for path in (self.start, self.target))
                entries = [Entry(spec.name, "F32", spec.shape) for spec in trainer.manifest]
                writer = stack.enter_context(WeightsWriter(self.work, entries))
            except Exception as error:  # noqa: BLE001 - raised by perform()
                failure = error

            def take(name: str, tensor: npt.NDArray[np.float32]) -> None:
                nonlocal failure
                if failure is not None:
                    return
                try:
                    _move(tensor.reshape(-1), start, target, writer, name)
                except Exception as error:  # noqa: BLE001 - raised by perform()
                    failure = error

            trainer.export(take)
            if failure is not None:
                stack.__exit__(type(failure), failure, failure.__traceback__)
        return failure


def _move(
    flat: npt.NDArray[np.float32], start: WeightsFile, target: WeightsFile, writer: WeightsWriter, name: str
) -> None:
    origin, aim = (file.array(name).reshape(-1) for file in (start, target))
    for begin in range(0, flat.size, _CHUNK):
        part = slice(begin, begin + _CHUNK)
        writer.append(name, aim[part].astype(np.float32) + (flat[part] - origin[part].astype(np.float32)))


def _ignore(name: str, tensor: npt.NDArray[np.float32]) -> None:
    """The sink of ranks that write nothing."""
