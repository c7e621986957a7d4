"""The tree keeps to its own rules: layers, sizes, names, and reference pages that say what the code does."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import typer.main
from pydantic import BaseModel
from tests.fakes import build_world

from crosstrain.batch.command import run
from crosstrain.batch_section import BatchSection, ShapeSection
from crosstrain.cli.main import app as cli
from crosstrain.config import RunConfig

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
LARGEST_FILE = 400
"""Lines; the target is 300."""

SOURCES = sorted((ROOT / "src").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
TEXTS = [
    path
    for part in ("src", "tests", "docs", "benchmarks")
    for path in sorted((ROOT / part).rglob("*"))
    if path.suffix in (".py", ".md", ".toml", ".svg")
] + [ROOT / "README.md", ROOT / "pyproject.toml"]


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_imports_keep_to_the_layers() -> None:
    # A process of its own: import-linter switches off all loggers that there are.
    program = str(Path(sys.executable).with_name("lint-imports"))
    done = run([program, "--no-cache", "--config", str(ROOT / "pyproject.toml")], timeout=120.0)
    assert done.code == 0, done.stdout


def test_source_files_are_short() -> None:
    lengths = {relative(path): len(path.read_text().splitlines()) for path in SOURCES}
    assert {name: lines for name, lines in lengths.items() if lines > LARGEST_FILE} == {}


def test_modules_are_named_for_what_they_hold() -> None:
    vague = re.compile(r"(^|_)(helpers?|utils?|misc|common|stuff)($|_)")
    assert [relative(path) for path in (*SOURCES, *TESTS) if vague.search(path.stem)] == []


def forbidden(tree: ast.AST) -> Iterator[str]:
    """Mocks and sleeps of a test; what a program that it starts does is that program's business."""
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
        if isinstance(node, ast.ImportFrom):
            names.append(f"{node.module}.")
        yield from (name for name in names if re.search(r"\bmock\b|\bMagicMock\b|pytest_mock", name))
        if isinstance(node, ast.arg) and node.arg == "mocker":
            yield "mocker"
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("time.sleep", "sleep", "asyncio.sleep"):
            yield ast.unparse(node)


def test_tests_neither_mock_nor_sleep() -> None:
    found = {relative(path): list(forbidden(ast.parse(path.read_text()))) for path in TESTS}
    assert {name: names for name, names in found.items() if names} == {}


def test_no_path_of_one_machine_is_in_the_tree() -> None:
    machine = re.compile(r"/(?:work|root|Users|home/[a-z]+)/|\bC:\\\\")
    here = Path(__file__)
    assert [relative(path) for path in TEXTS if path != here and machine.search(path.read_text())] == []


def test_tests_of_two_packages_never_share_a_module_name() -> None:
    # Without packages in tests/, pytest imports test modules by their bare name.
    names = [path.name for path in TESTS if path.name.startswith("test_")]
    assert sorted(names) == sorted(set(names))


def commands(command: object, path: str) -> Iterator[str]:
    yield path
    for name, child in getattr(command, "commands", {}).items():
        yield from commands(child, f"{path} {name}")


def test_every_command_is_in_the_reference_and_no_other() -> None:
    page = (REFERENCE / "cli.md").read_text()
    written = {heading.split("`")[1] for heading in page.splitlines() if heading.startswith("## ")}
    assert written == set(commands(typer.main.get_command(cli), "crosstrain"))


def test_every_route_is_in_the_reference_and_no_other(tmp_path: Path) -> None:
    world = build_world(tmp_path)
    paths = world.http.get("http://coordinator/openapi.json").json()["paths"]
    routes = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    page = (REFERENCE / "http.md").read_text()
    assert set(re.findall(r"^\| `([A-Z]+ /v1/[^`]*)` ", page, re.MULTILINE)) == routes
    world.database.close()


def test_every_key_of_the_run_file_is_in_the_reference_and_no_other() -> None:
    keys = set()
    for name, field in RunConfig.model_fields.items():
        section = field.annotation
        if isinstance(section, type) and issubclass(section, BaseModel):
            keys |= {f"{name}.{key}" for key in section.model_fields}
    batch = {"sites.NAME.batch": BatchSection, "sites.NAME.batch.shapes": ShapeSection}
    keys |= {f"{name}.{key}" for name, section in batch.items() for key in section.model_fields}
    written, section_name = set(), ""
    for line in (REFERENCE / "run-file.md").read_text().splitlines():
        if heading := re.match(r"## `\[+([A-Za-z.]+)\]+`", line):
            section_name = heading[1]
        elif row := re.match(r"\| `([a-z_]+)` ", line):
            written.add(f"{section_name}.{row[1]}")
    assert written == keys


@pytest.fixture
def generator(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "docs_generate", module)
    spec.loader.exec_module(module)
    return module


def test_reference_pages_are_what_the_code_says(generator: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert generator.main(["--check"]) == 0, capsys.readouterr().err
