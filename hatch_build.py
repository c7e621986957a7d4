"""Compiles the package's C files where there is a C compiler; without one it is complete all the same.

The libraries know nothing of Python (ctypes loads them), so no headers are needed. -ffp-contract=off: a fused multiply-add rounds
once where numpy rounds twice, and a generation must be the same to the bit on every machine.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FLAGS = ("-std=c11", "-O3", "-ffp-contract=off", "-fno-fast-math", "-fPIC", "-shared", "-Wall", "-Wextra")


SOURCES = ("src/crosstrain/outer/fused.c", "src/crosstrain/pieces.c")
"""NAME.c becomes libNAME.so beside it."""


class CompiledLibraries(BuildHookInterface[Any]):
    """Build hook of wheels, editable ones among them."""

    PLUGIN_NAME = "custom"

    def initialize(self, _version: str, build_data: dict[str, Any]) -> None:
        """Adds the libraries to the wheel, which then is of this platform only."""
        for name in SOURCES:
            source = Path(self.root, name)
            library = source.with_name(f"lib{source.stem}.so")
            if compile_library(source, library, self.app.display_warning):
                build_data["artifacts"].append(str(library.relative_to(self.root)))
                build_data["pure_python"] = False
                build_data["infer_tag"] = True


def compile_library(source: Path, library: Path, warn: Callable[[str], None]) -> bool:
    """Compiles one C file; without success no library stays, since one of an older source would be loaded.

    Several environments may be installed from one tree at the same time: each compiles in a place of its own.
    """
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None or sys.platform == "win32":
        library.unlink(missing_ok=True)
        warn(
            f"no C compiler: what {source.name} does will be done in Python and numpy, with the same result but slower"
        )
        return False
    with tempfile.TemporaryDirectory(prefix=".compiling-", dir=library.parent) as place:
        made = Path(place, library.name)
        command = [compiler, *FLAGS, "-o", str(made), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            library.unlink(missing_ok=True)
            warn(f"{compiler} failed; what {source.name} does will be done in Python and numpy: {done.stderr}")
            return False
        made.replace(library)
    return True
