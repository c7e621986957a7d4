"""Windows of a token file as batches, and how the windows of a step are dealt to ranks and forward passes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torchtitan.components.loss import IGNORE_INDEX

from crosstrain.errors import IntegrityError


def deal(windows: Sequence[int], micro_batch: int, world: int, rank: int) -> list[Sequence[int]]:
    """The windows of each forward pass of one rank in one optimiser step.

    Forward pass a of all ranks together takes the a-th `world * micro_batch` windows, rank r the r-th `micro_batch` of
    them: the set of a step does not depend on the number of ranks. All ranks get the same number of passes; the last may
    be short or empty.
    """
    pass_size = world * micro_batch
    return [
        windows[begin + rank * micro_batch : min(begin + (rank + 1) * micro_batch, begin + pass_size)]
        for begin in range(0, len(windows), pass_size)
    ]


class TokenWindows:
    """The windows of a memory-mapped file of tokens.

    Attributes:
        count: whole windows in the file.

    Raises:
        IntegrityError: the file cannot be read or holds no tokens.
    """

    def __init__(self, path: Path, dtype: str, seq_len: int, *, positions: bool = False) -> None:
        try:
            self._tokens = np.memmap(path, dtype=np.dtype(dtype).newbyteorder("<"), mode="r")
        except (OSError, ValueError) as error:
            raise IntegrityError(
                f"Expected a file of {dtype} tokens at {path}: {error}.", "check the corpus"
            ) from error
        self._seq_len = seq_len
        self._positions = positions
        self.count = max(0, (len(self._tokens) - 1) // seq_len)

    def batch(self, windows: Sequence[int], size: int) -> tuple[dict[str, Any], Any]:
        """Inputs and shifted labels.

        Returns:
            ({"input": int64 [size, seq_len], ...}, labels int64 [size, seq_len]). Rows behind the given windows are
            padding: their labels are all IGNORE_INDEX, so they have no loss and no gradient.
        """
        length = self._seq_len
        inputs = torch.zeros((size, length), dtype=torch.int64)
        labels = torch.full((size, length), IGNORE_INDEX, dtype=torch.int64)
        for row, window in enumerate(windows):
            tokens = torch.from_numpy(self._tokens[window * length : (window + 1) * length + 1].astype(np.int64))
            inputs[row], labels[row] = tokens[:-1], tokens[1:]
        return model_inputs(inputs, self._positions), labels


def model_inputs(tokens: Any, positions: bool) -> dict[str, Any]:
    """What torchtitan's model takes for tokens int64 [rows, length]; flex attention makes its masks from positions."""
    if not positions:
        return {"input": tokens}
    return {"input": tokens, "positions": torch.arange(tokens.shape[1]).expand_as(tokens).contiguous()}
