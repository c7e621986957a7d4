"""The reference pages are what docs/generate.py makes of the code as it is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from crosstrain.config import RunConfig
from crosstrain.errors import CrosstrainError

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"


def rows(page: str) -> list[list[str]]:
    """The cells of all table rows of a page."""
    lines = (REFERENCE / page).read_text(encoding="utf-8").splitlines()
    return [[cell.strip() for cell in line.strip("|").split(" |")] for line in lines if line.startswith("| ")]


def test_pages_are_up_to_date() -> None:
    command = [sys.executable, str(ROOT / "docs" / "generate.py"), "--check"]
    found = subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT)
    assert found.returncode == 0, f"{found.stderr}run `make docs` and commit docs/reference"


def test_every_key_of_the_run_file_has_a_meaning() -> None:
    keys = {row[0].strip("`"): row[-1] for row in rows("run-file.md")}
    for name, field in RunConfig.model_fields.items():
        if name != "sites":
            for key in field.annotation.model_fields:  # type: ignore[union-attr]
                assert keys[key], f"{name}.{key} has no docstring in config.py"


@pytest.mark.parametrize("error", CrosstrainError.__subclasses__(), ids=lambda error: error.__name__)
def test_every_error_has_its_exit_code_on_the_page(error: type[CrosstrainError]) -> None:
    meanings = {row[0]: row[1] for row in rows("exit-codes.md")}
    assert f"`{error.__name__}`" in meanings[str(error.exit_code)]
