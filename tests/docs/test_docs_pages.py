"""What the pages say exists: links, files, make targets, commands and their options."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from crosstrain.cli.main import app
from crosstrain.config import RunConfig

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "crosstrain"
SUFFIXES = ("bin", "safetensors", "sqlite")
"""Endings of files whose names look like keys of the run file."""
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def fences(page: Path, language: str) -> Iterator[str]:
    """The contents of the code blocks of a language."""
    blocks = re.findall(r"^ *```(\w*)\n(.*?)^ *```$", page.read_text(encoding="utf-8"), re.M | re.S)
    yield from (content for tag, content in blocks if tag == language)


def typed(page: Path) -> list[str]:
    """The command lines that a page tells people to type."""
    lines = [line.strip() for text in fences(page, "console") for line in text.splitlines()]
    return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]


def crosstrain_calls(page: Path) -> list[list[str]]:
    """The words after `crosstrain` in all commands of a page, inline code included."""
    text = page.read_text(encoding="utf-8")
    scripts = [line.strip() for block in fences(page, "bash") for line in block.splitlines()]
    inline = re.findall(r"`(crosstrain [^`\n]+)`", text)
    found = [re.search(r"(?:^|[\s/])crosstrain (.*)", line) for line in (*typed(page), *scripts, *inline)]
    words = [shlex.split(match[1], comments=True) for match in found if match and not match[0].startswith("#")]
    return [call for call in words if call and re.fullmatch(r"[a-z-]+", call[0])]


def find_command(words: list[str]) -> tuple[Any, list[str]]:
    """The command that the words name, and the words after its name."""
    command, rest = typer.main.get_command(app), [word for word in words if word not in ("-q", "--quiet")]
    while rest and rest[0] in getattr(command, "commands", {}):
        command, rest = command.commands[rest[0]], rest[1:]
    return command, rest


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_relative_links_lead_somewhere(page: Path) -> None:
    prose = re.sub(r"^ *```.*?^ *```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", prose):
        if not re.match(r"[a-z]+:", target):
            assert (page.parent / target).exists(), f"{name(page)} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_crosstrain_commands_and_options_exist(page: Path) -> None:
    for call in crosstrain_calls(page):
        command, rest = find_command(call)
        assert not hasattr(command, "commands") or not rest, f"{name(page)}: crosstrain {' '.join(call)}"
        known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        options = {word.partition("=")[0] for word in rest if word.startswith("-")}
        assert options <= known, f"{name(page)}: crosstrain {' '.join(call)}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_make_targets_exist(page: Path) -> None:
    targets = set(re.findall(r"^([\w.-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    told = re.findall(r"(?:`|^\s*\$ (?:\w+=\S+ )?)make ([\w.-]+)", page.read_text(encoding="utf-8"), re.M)
    assert {target for target in told if "=" not in target} <= targets


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_paths_of_modules_and_tests_exist(page: Path) -> None:
    for path in re.findall(r"`([\w./-]+\.(?:py|md|toml|txt|svg))`", page.read_text(encoding="utf-8")):
        if path not in ("RUN.toml", "SCENARIO.toml", "notes.md", "settings.py", "worker.py"):
            places = (ROOT, SOURCE, page.parent, SOURCE / "coordinator")
            assert any((place / path).exists() for place in places), f"{name(page)} speaks of {path}"


def test_keys_of_the_run_file_that_pages_speak_of_exist() -> None:
    sections = "|".join(RunConfig.model_fields.keys() - {"sites"})
    for page in PAGES:
        for section, key in re.findall(rf"`({sections})\.([a-z_]+)\b", page.read_text(encoding="utf-8")):
            fields = RunConfig.model_fields[section].annotation.model_fields  # type: ignore[union-attr]
            assert key in fields or key in SUFFIXES, f"{name(page)} speaks of {section}.{key}"


def layers() -> list[str]:
    """The lines of the import contract; that they are all there is, import-linter checks."""
    contract = re.search(r"^layers = \[\n(.*?)^\]", (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.M | re.S)
    assert contract
    return re.findall(r'"([^"]+)"', contract[1])


def test_layers_of_the_architecture_page_are_the_contract() -> None:
    blocks = [block.splitlines() for block in fences(ROOT / "docs" / "architecture.md", "")]
    told = next(block for block in blocks if block[0] == "__main__")
    assert [re.split(r"\s{2,}", line.strip())[0] for line in told] == layers()


def test_tree_of_the_readme_is_the_package() -> None:
    tree = next(block for block in fences(ROOT / "README.md", "") if block.startswith("src/crosstrain/"))
    told = {line.split()[0].rstrip("/").removesuffix(".py") for line in tree.splitlines()[1:]}
    assert told == {part for line in layers() for part in line.split(" | ")} - {"__main__"}


def test_sentences_of_the_operating_guide_are_those_of_the_rules() -> None:
    text = (ROOT / "docs" / "guides" / "operating.md").read_text(encoding="utf-8")
    table = text.partition("## What the run waits for")[2].partition("\n## ")[0]
    told = [row.split("|")[1].strip() for row in table.splitlines() if row.startswith("| ")][1:]
    code = "\n".join(
        path.read_text(encoding="utf-8") for part in ("domain", "coordinator") for path in (SOURCE / part).glob("*.py")
    )
    for sentence in told:
        for fragment in re.split(r"\b[NMA]\b|\.\.\.", sentence):
            assert fragment.strip() in code, f"no rule says: {sentence}"
    assert len(told) > 5
