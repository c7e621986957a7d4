"""Opens what a build made, and finds the text that every machine with Python has."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crosstrain.corpus.manifest import Manifest, SplitName
from crosstrain.errors import EnvironmentFault, IntegrityError

_NOT_SOURCES = {
    "site-packages",
    "dist-packages",
    "test",
    "tests",
    "idlelib",
    "turtledemo",
    "__pycache__",
    # Tables, generated text, and a copy of the compiler's grammar, rather than programs.
    "encodings",
    "pydoc_data",
}


def stdlib_sources() -> list[Path]:
    """The Python standard library's own modules, about 9 MB, in the order of their paths: the demo's corpus.

    Raises:
        EnvironmentFault: this Python came without its sources.
    """
    root = Path(sysconfig.get_path("stdlib"))
    found = []
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name not in _NOT_SOURCES]
        found += [Path(folder, name) for name in files if name.endswith(".py")]
    sources = [path for path in found if path.stat().st_size]
    if not sources:
        raise EnvironmentFault(
            f"This Python has no sources of its standard library at {root}.", "name other text as the corpus's input"
        )
    return sorted(sources, key=lambda path: path.relative_to(root).as_posix())


def open_tokens(directory: Path, manifest: Manifest, split: SplitName) -> npt.NDArray[Any]:
    """All tokens of a split, memory-mapped and read-only; window i is tokens[i * seq_len : (i + 1) * seq_len + 1].

    Raises:
        IntegrityError: the file is missing or not as long as the manifest says.
    """
    path = directory / f"{split}.bin"
    dtype = np.dtype(manifest.dtype).newbyteorder("<")
    expected = manifest.split(split).tokens * dtype.itemsize
    found = path.stat().st_size if path.is_file() else None
    if found != expected:
        raise IntegrityError(
            f"{path} should have {expected} bytes and {'is missing' if found is None else f'has {found}'}.",
            "copy the corpus again from where it was built, or build it again with --force",
        )
    if not expected:
        # An empty file cannot be mapped.
        return np.empty(0, dtype)
    return np.memmap(path, dtype, mode="r")
