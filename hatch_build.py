"""Compiles src/crosstrain/outer/fused.c where there is a C compiler; without one the package is complete all the same.

The library knows nothing of Python (ctypes loads it), so no headers are needed. -ffp-contract=off: a fused multiply-add rounds
once where numpy rounds twice, and a generation must be the same to the bit on every machine.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FLAGS = ("-std=c11", "-O3", "-ffp-contract=off", "-fno-fast-math", "-fPIC", "-shared", "-Wall", "-Wextra")


class FusedMerge(BuildHookInterface[Any]):
    """Build hook of wheels, editable ones among them."""

    PLUGIN_NAME = "custom"

    def initialize(self, _version: str, build_data: dict[str, Any]) -> None:
        """Adds the library to the wheel, which then is of this platform only."""
        source = Path(self.root, "src/crosstrain/outer/fused.c")
        library = source.with_name("libfused.so")
        library.unlink(missing_ok=True)
        compiler = shutil.which(os.environ.get("CC", "cc"))
        if compiler is None or sys.platform == "win32":
            self.app.display_warning("no C compiler: the merge will run in numpy, with the same result but slower")
            return
        part = library.with_suffix(".so.part")
        done = subprocess.run(
            [compiler, *FLAGS, "-o", str(part), str(source)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            self.app.display_warning(f"{compiler} failed, the merge will run in numpy: {done.stderr}")
            return
        part.replace(library)
        build_data["artifacts"].append("src/crosstrain/outer/libfused.so")
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
