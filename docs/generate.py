"""Writes docs/reference from the code: `python docs/generate.py`, or with `--check` fails if a page is out of date.

Names, types, defaults and states come from the code; what the code does not say in words is in `meanings.py`. A name that
is missing there, or is there and not in the code, is an error, so that no page can fall behind.
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from itertools import groupby
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import typer.main
from meanings import EVENTS, JUDGEMENTS, OTHER_EXITS, PROBLEMS, ROUTES
from pydantic import BaseModel

import crosstrain
from crosstrain import batch_section, config, errors
from crosstrain.assembly import with_placement
from crosstrain.cli.main import app as cli
from crosstrain.clock import SystemClock
from crosstrain.config import RunConfig
from crosstrain.coordinator.routes import build_app
from crosstrain.coordinator.sessions import FIELD_HELP
from crosstrain.domain.block import TRANSITIONS
from crosstrain.domain.events import EventKind
from crosstrain.domain.timeouts import Circumstances, Timeout, derive
from crosstrain.storage import schema
from crosstrain.wire import messages

REFERENCE = Path(__file__).parent / "reference"
SOURCE = Path(crosstrain.__file__).parent
NOTICE = "<!-- Written by docs/generate.py; change the code, then run `make docs`. -->\n"


def main(arguments: list[str]) -> int:
    made = dict(pages())
    stale = [name for name, text in made.items() if not _is(REFERENCE / name, text)]
    if "--check" in arguments:
        for name in stale:
            sys.stderr.write(f"docs/reference/{name} is out of date; run `make docs`\n")
        return 1 if stale else 0
    REFERENCE.mkdir(exist_ok=True)
    for name in stale:
        (REFERENCE / name).write_text(made[name], encoding="utf-8")
    return 0


def pages() -> Iterator[tuple[str, str]]:
    """Name and text of every page."""
    for name, page in (
        ("cli.md", cli_page),
        ("run-file.md", run_file_page),
        ("http.md", http_page),
        ("exit-codes.md", exit_codes_page),
        ("events.md", events_page),
        ("database.md", database_page),
        ("timeouts.md", timeouts_page),
    ):
        yield name, NOTICE + "\n".join(page()) + "\n"


# -- pages ----------------------------------------------------------------------------------------------------------------


def cli_page() -> Iterator[str]:
    yield from ("# Commands", "", "Data goes to standard output, logs and progress to standard error.")
    yield from ("Exit codes: [exit-codes.md](exit-codes.md).",)
    yield from _command(typer.main.get_command(cli), "crosstrain")


def _command(command: Any, path: str) -> Iterator[str]:
    parameters = [parameter for parameter in command.params if not parameter.hidden]
    arguments = [parameter for parameter in parameters if parameter.param_type_name == "argument"]
    shape = [f"`{path}`", *(f"`{parameter.metavar}`" for parameter in arguments)]
    yield from ("", f"## {' '.join(shape)}", "", command.help, "")
    rows = [
        (
            ", ".join(f"`{name}`" for name in parameter.opts)
            if parameter not in arguments
            else f"`{parameter.metavar}`",
            _value(parameter),
            _default(parameter),
            parameter.help or "",
        )
        for parameter in parameters
    ]
    if rows:
        yield from _table(("option", "value", "default", "meaning"), rows)
    for name, child in getattr(command, "commands", {}).items():
        yield from _command(child, f"{path} {name}")


def _value(parameter: Any) -> str:
    if parameter.param_type_name == "argument" or parameter.is_flag:
        return ""
    kind = parameter.type_descriptor.annotation
    choices = [member.value for member in kind] if issubclass(kind, Enum) else []
    shown = parameter.metavar or " or ".join(choices) or kind.__name__
    return f"`{shown}`"


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    value = getattr(parameter.default, "value", parameter.default)
    return "" if value is None or value is False or value == "" else f"`{value}`"


def run_file_page() -> Iterator[str]:
    yield from ("# RUN.toml", "", inspect.cleandoc(config.__doc__ or "").partition("\n\n")[2], "")
    yield from ("An unknown key is an error. A key without a default must be set.",)
    told = _told(config)
    for name, field in RunConfig.model_fields.items():
        section = field.annotation
        if name == "sites":
            yield from ("", "## `[sites.NAME]`", "", "The keys of `[site]` that differ at the site NAME.")
            yield from _batch_sections()
            continue
        assert isinstance(section, type) and issubclass(section, BaseModel)
        yield from ("", f"## `[{name}]`", "", inspect.cleandoc(section.__doc__ or ""), "")
        yield from _fields(section, told, "key")


def _batch_sections() -> Iterator[str]:
    told = _told(batch_section)
    for name, section in (
        ("[sites.NAME.batch]", batch_section.BatchSection),
        ("[[sites.NAME.batch.shapes]]", batch_section.ShapeSection),
    ):
        yield from ("", f"## `{name}`", "", inspect.cleandoc(section.__doc__ or ""), "")
        yield from _fields(section, told, "key")


def http_page() -> Iterator[str]:
    document = build_app(_idle_service()).openapi()
    operations = {
        f"{method.upper()} {path}": op for path, ops in document["paths"].items() for method, op in ops.items()
    }
    _require_same("route", operations, ROUTES)
    yield from ("# HTTP", "", f"Protocol {messages.PROTOCOL}. The OpenAPI document is at `/openapi.json`.")
    yield from ("Every request may be sent twice; the second answer is the same or says what became of the first.", "")
    rows = [
        (f"`{route}`", _model(operations[route].get("requestBody")), _answer(operations[route]), meaning)
        for route, meaning in ROUTES.items()
    ]
    yield from _table(("route", "request", "reply", "what for"), rows)
    yield from ("", "## Problems", "", "Errors are problem documents (RFC 9457) with these values of `kind`:", "")
    _require_same("kind of problem", _kinds("coordinator", "storage"), PROBLEMS)
    yield from _table(("kind", "meaning"), [(f"`{kind}`", meaning) for kind, meaning in sorted(PROBLEMS.items())])
    yield from (
        "",
        "## Judgements",
        "",
        "`kind` of a `ContributionReply` that is not `accepted`. Those that begin with",
    )
    yield from ("`wrong-` contradict the lease: they are problems of status 409 and change nothing.", "")
    _require_same("judgement", _judgements(), JUDGEMENTS)
    yield from _table(("kind", "meaning"), [(f"`{kind}`", meaning) for kind, meaning in JUDGEMENTS.items()])
    yield from (
        "",
        "## Models",
    )
    told = _told(messages)
    for model in vars(messages).values():
        if isinstance(model, type) and issubclass(model, BaseModel) and model not in (BaseModel, messages.Message):
            yield from ("", f"### {model.__name__}", "")
            if model.__doc__:
                yield from (inspect.cleandoc(model.__doc__), "")
            yield from _fields(model, told, "field")


def exit_codes_page() -> Iterator[str]:
    yield from (
        "# Exit codes",
        "",
        "An error is two lines on standard error: `error:` what is wrong, `hint:` what to do.",
        "",
    )
    codes = dict(OTHER_EXITS)
    for error in vars(errors).values():
        if isinstance(error, type) and issubclass(error, errors.CrosstrainError):
            summary = (error.__doc__ or "").splitlines()[0]
            codes[error.exit_code] = f"`{error.__name__}`: {summary}"
    yield from _table(("code", "meaning"), [(f"{code}", meaning) for code, meaning in sorted(codes.items())])


def events_page() -> Iterator[str]:
    _require_same("event", EventKind, EVENTS)
    yield from ("# Events", "", "Rows of the table `events`, the audit log. None is ever changed or deleted.", "")
    yield from (
        "Events of blocks carry a lease token and a span of positions; each is one arrow of a block's state:",
        "",
    )
    arrows = [(f"`{kind}`", f"{source} → {target}", EVENTS[kind]) for kind, (source, target) in TRANSITIONS.items()]
    yield from _table(("kind", "arrow", "meaning"), arrows)
    yield from ("", "Events of the run and its sites:", "")
    others = [(f"`{kind}`", meaning) for kind, meaning in EVENTS.items() if kind not in TRANSITIONS]
    yield from _table(("kind", "meaning"), others)


def database_page() -> Iterator[str]:
    yield from ("# Database", "", f"SQLite or PostgreSQL, schema version {schema.SCHEMA_VERSION}.", "")
    yield inspect.cleandoc(schema.__doc__ or "").partition("\n\n")[0].removeprefix("Tables. ")
    yield from (inspect.cleandoc(schema.__doc__ or "").partition("\n\n")[2],)
    for table in schema.metadata.tables.values():
        yield from ("", f"## `{table.name}`", "")
        rows = [
            (
                f"`{column.name}`",
                str(column.type).lower(),
                "key" if column.primary_key else "" if column.nullable else "not null",
                column.doc or "",
            )
            for column in table.columns
        ]
        yield from _table(("column", "type", "", "meaning"), rows)


EXAMPLES = {
    "60 M model, 3 ms, 100 MB/s": Circumstances(600.0, 30.0, 120_000_000, 120_000_000, 100e6, 0.003, 4.0),
    "0.6 B model, 347 ms, 20 MB/s": Circumstances(1800.0, 60.0, 1_192_000_000, 1_192_000_000, 20e6, 0.347, 36.0),
    "the same by way of a mailbox": Circumstances(1800.0, 60.0, 1_192_000_000, 1_192_000_000, 20e6, 3.0, 36.0),
}
"""What the page shows; a run's own table is printed by `crosstrain doctor`."""


def timeouts_page() -> Iterator[str]:
    yield from (
        "# Timeouts",
        "",
        "Everything that something waits for, and no other number: it follows from the length of a round, the bytes that move and",
        "the measured link, or is the same for all runs (`src/crosstrain/domain/timeouts/`). `crosstrain doctor RUN.toml` prints",
        "this table for a run, and warns of keys that are set shorter than what they wait for.",
        "",
        f"Seconds, where they differ for three runs: {'; '.join(EXAMPLES)}. A row that is fixed is the same for all.",
    )
    columns = [derive(found) for found in EXAMPLES.values()]
    for topic, rows in groupby(zip(*columns, strict=True), lambda row: row[0].topic):
        yield from ("", f"## {topic[0].upper()}{topic[1:]}", "")
        yield from _table(("what is waited for", "seconds", "rule", "why", "key"), map(_timeout_cells, rows))


def _timeout_cells(row: tuple[Timeout, ...]) -> tuple[str, ...]:
    seconds = [f"{cell.seconds:.4g}" if cell.seconds < 10_000 else f"{cell.seconds:.0f}" for cell in row]
    first = row[0]
    key = f"`{first.key}`" if first.key else ""
    return first.name, ", ".join(seconds if len(set(seconds)) > 1 else seconds[:1]), first.rule, first.reason, key


# -- parts ----------------------------------------------------------------------------------------------------------------


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    for row in (head, ("---",) * len(head), *rows):
        yield f"| {' | '.join(row)} |".replace("  ", " ")


def _told(module: ModuleType) -> dict[tuple[str, str], str]:
    """The docstrings under the attributes of a module's classes: (class, attribute) -> text."""
    found = {}
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.ClassDef):
            for item, after in zip(node.body, node.body[1:], strict=False):
                if isinstance(item, ast.AnnAssign) and isinstance(after, ast.Expr):
                    assert isinstance(item.target, ast.Name)
                    found[node.name, item.target.id] = inspect.cleandoc(ast.literal_eval(after.value))
    return found


def _fields(model: type[BaseModel], told: Mapping[tuple[str, str], str], head: str) -> Iterator[str]:
    definition = model.model_json_schema()
    needed = definition.get("required", [])
    rows = [
        (
            f"`{name}`",
            _type(shape),
            ""
            if name in needed
            else f"`{json.dumps(shape['default'])}`"
            if shape["default"] is not None
            else "not set",
            told.get((model.__name__, name), "").replace("\n", " "),
        )
        for name, shape in definition["properties"].items()
    ]
    yield from _table((head, "type", "default", "meaning"), rows)


def _type(shape: Mapping[str, Any]) -> str:
    if "$ref" in shape:
        return str(shape["$ref"]).rpartition("/")[2]
    if "anyOf" in shape:
        return " or ".join(_type(part) for part in shape["anyOf"])
    if "enum" in shape:
        return " or ".join(f"`{json.dumps(value)}`" for value in shape["enum"])
    if shape.get("type") == "array":
        if "prefixItems" in shape:
            return f"[{', '.join(_type(part) for part in shape['prefixItems'])}]"
        return f"list of {_type(shape['items'])}"
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    bounds = [f"{sign} {shape[key]:g}" for key, sign in signs.items() if key in shape and abs(shape[key]) < 2**20]
    pattern = [f"matching `{shape['pattern']}`"] if "pattern" in shape else []
    return " ".join([str(shape.get("type", "any")), ", ".join(bounds), *pattern]).strip()


def _model(body: Mapping[str, Any] | None) -> str:
    content = (body or {}).get("content", {}).get("application/json", {}).get("schema", {})
    return str(content["$ref"]).rpartition("/")[2] if "$ref" in content else ""


def _answer(operation: Mapping[str, Any]) -> str:
    named = _model(operation["responses"]["200"])
    content = operation["responses"]["200"].get("content", {}).get("application/json", {}).get("schema", {})
    return named or ('`{"received": N}`' if content.get("type") == "object" else "")


def _kinds(*packages: str) -> set[str]:
    """Every constant `kind` with which these packages raise Refused or make a problem, mismatches of fields included."""
    kinds = {f"{name.replace('_', '-')}-mismatch" for name in FIELD_HELP}
    for node in (node for package in packages for node in _nodes(SOURCE / package)):
        given: list[ast.expr] = []
        match node:
            case ast.Call(func=ast.Name(id="Refused")):
                given = [item.value for item in node.keywords if item.arg == "kind"]
            case ast.Call(func=ast.Name(id="problem" | "_problem")):
                given = node.args[1:2]
            case ast.Assign(targets=[ast.Tuple(elts=[*_, ast.Name(id="kind")])], value=ast.Tuple(elts=[*_, kind])):
                given = [kind]
        kinds |= {str(item.value) for item in given if isinstance(item, ast.Constant)}
    return kinds


def _judgements() -> set[str]:
    named = [node for node in _nodes(SOURCE / "domain") if isinstance(node, ast.Call)]
    return {str(ast.literal_eval(call.args[0])) for call in named if getattr(call.func, "id", "") == "_no"}


def _nodes(package: Path) -> Iterator[ast.AST]:
    for path in sorted(package.rglob("*.py")):
        yield from ast.walk(ast.parse(path.read_text(encoding="utf-8")))


def _require_same(what: str, found: Iterable[str], told: Iterable[str]) -> None:
    missing, extra = sorted({*found} - {*told}), sorted({*told} - {*found})
    if missing or extra:
        raise SystemExit(f"docs/generate.py: every {what} needs a sentence; missing: {missing}, superfluous: {extra}")


def _idle_service() -> Any:
    """What `build_app` looks at before the first request."""
    return SimpleNamespace(clock=SystemClock(), extensions=(with_placement,))


def _is(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
