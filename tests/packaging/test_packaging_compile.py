"""The compiled merge is made by whoever installs the package, several of them at the same time perhaps."""

from __future__ import annotations

import ctypes
import importlib.util
import shutil
import stat
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")


@pytest.fixture(scope="module")
def build() -> ModuleType:
    """The build hook, which lies beside the package and not in it."""
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "answer.c"
    path.write_text("int answer(void) { return 42; }\n")
    return path


def compiler_that(does: str, path: Path) -> str:
    """A compiler that does something more when it is through."""
    path.write_text(f'#!/bin/sh\ncc "$@" || exit\n{does}\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@needs_compiler
def test_two_installations_from_one_tree_at_the_same_time(
    build: ModuleType, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second begins and ends between the compiler of the first and what comes after it."""
    library = source.with_name("libanswer.so")
    second = (
        f"CC=cc {sys.executable} -c \"import sys; sys.path.insert(0, '{ROOT}'); from pathlib import Path; import hatch_build; "
        f"sys.exit(not hatch_build.compile_library(Path('{source}'), Path('{library}'), print))\""
    )
    monkeypatch.setenv("CC", compiler_that(second, source.with_name("slow-cc")))
    warnings: list[str] = []
    assert build.compile_library(source, library, warnings.append)
    assert warnings == []
    assert ctypes.CDLL(str(library)).answer() == 42
    assert sorted(path.name for path in source.parent.iterdir()) == ["answer.c", "libanswer.so", "slow-cc"]


@needs_compiler
def test_a_source_that_does_not_compile_leaves_no_library_of_an_older_one(build: ModuleType, source: Path) -> None:
    library = source.with_name("libanswer.so")
    assert build.compile_library(source, library, pytest.fail)
    source.write_text("int answer(void) { return 43 }\n")
    warnings: list[str] = []
    assert not build.compile_library(source, library, warnings.append)
    assert "expected" in warnings[0]
    assert [path.name for path in source.parent.iterdir()] == ["answer.c"]


def test_without_a_compiler_the_package_is_complete(
    build: ModuleType, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    warnings: list[str] = []
    assert not build.compile_library(source, source.with_name("libanswer.so"), warnings.append)
    assert "numpy" in warnings[0]
