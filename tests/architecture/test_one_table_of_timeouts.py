"""Whatever waits takes its number from `domain/timeouts`, and every number there is in the table that people see."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "crosstrain"
TABLE = SOURCE / "domain" / "timeouts"

DURATION = re.compile(r"(^|_)(s|ms|timeout|patience|deadline)$", re.IGNORECASE)
"""Names of durations."""
WAITING = re.compile(r"(^|_)(pause|wait|sleep|join|settimeout|select)$")
"""Functions that wait for as long as their last argument says."""

AGE = "an age of what a scheduler, a site or a job said"
SHOWN = "how often progress is printed"
UNIT = "a unit"
NO_WAIT = {
    "batch/readings.py HORIZON_S": "what a scheduler says of a later start is no forecast",
    "cli/amounts.py LONGEST_S": "the largest number that an option takes",
    "cli/corpus.py _LINE_EVERY_S": SHOWN,
    "collector/budget.py LONGEST_MS": AGE,
    "collector/collect.py FRESH_MS": AGE,
    "collector/collect.py HISTORY_EVERY_MS": AGE,
    "collector/difference.py MISSED_MS": AGE,
    "collector/facts.py FRESH_MS": AGE,
    "collector/look.py HISTORY_S": AGE,
    "collector/tracking.py CLOCKS_MS": "how far two clocks are apart",
    "collector/tracking.py FORGOTTEN_MS": AGE,
    "collector/tracking.py SETTLE_MS": AGE,
    "collector/tracking.py WATCHED_MS": AGE,
    "corpus/meter.py _INTERVAL_S": SHOWN,
    "dashboard/timeline.py HOUR_S": UNIT,
    "doctor/judge_network.py DAY_S": UNIT,
    "doctor/judge_network.py MINUTE_MS": UNIT,
    "domain/lease.py PACE_MS": "assumed of a window that was not measured",
    "planner/offers.py SILENT_MS": AGE,
    "site/transfer_rate.py SHORTEST_S": "a time that is divided by",
    "storage/placement_store.py REMEMBERED_MS": AGE,
    "wire/messages.py poll_ms": "of a coordinator that says nothing of it",
    "wire/transfer.py UNCLEAR_S": "a bound between short and long lines",
}
"""Durations for which nothing waits, and what they are."""
NO_WAIT_IN = {
    "demo": "plays of a run on one machine, with faults at set times",
    "placement": "spans of forecasts and plans, for which nobody waits here",
    "simulation": "virtual time",
}
"""Packages likewise."""


def number(node: ast.expr) -> bool:
    """Whether an expression is a number that somebody wrote down, or a product of such, and not zero."""
    text = ast.unparse(node)
    return re.fullmatch(r"[\d_.e+*/() -]+", text) is not None and re.search(r"[1-9]", text) is not None


def named(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def given(call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    """The arguments of a call that are durations by their name, or by that of the function."""
    yield from ((word.arg, word.value) for word in call.keywords if word.arg)
    function = named(call.func)
    if WAITING.search(function) and call.args:
        yield f"{function}_s", call.args[-1]


def defaults(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[str, ast.expr]]:
    asked = function.args
    plain = [*asked.posonlyargs, *asked.args]
    yield from zip((each.arg for each in reversed(plain)), reversed(asked.defaults), strict=False)
    for each, value in zip(asked.kwonlyargs, asked.kw_defaults, strict=True):
        if value is not None:
            yield each.arg, value


def bound(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Names with the expressions that they are given."""
    if isinstance(node, ast.Assign):
        yield from ((named(target), node.value) for target in node.targets)
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        yield named(node.target), node.value
    elif isinstance(node, ast.Call):
        yield from given(node)
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        yield from defaults(node)


def written_down(text: str) -> list[tuple[str, str]]:
    """The durations in a module that are numbers of its own: name and number."""
    found = [item for node in ast.walk(ast.parse(text)) for item in bound(node)]
    return [(name, ast.unparse(value)) for name, value in found if DURATION.search(name) and number(value)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("LOOK_S = 0.2", [("LOOK_S", "0.2")]),
        ("class Settings:\n    drain_s: int = 5 * 60", [("drain_s", "5 * 60")]),
        ("connect(address, timeout=30)", [("timeout", "30")]),
        ("pause(0.02)", [("pause_s", "0.02")]),
        ("def f(a, deadline_s=60.0, *, wait_s=3): ...", [("deadline_s", "60.0"), ("wait_s", "3")]),
        ("self._limit_s = 0.0\npause(LOOK_S)\nconnect(timeout=LOOK_S)\nround_s = round_ms / 1000", []),
    ],
)
def test_a_number_that_is_written_down_is_seen(text: str, found: list[tuple[str, str]]) -> None:
    assert written_down(text) == found


def test_nothing_waits_for_a_number_of_its_own() -> None:
    found = {}
    for path in SOURCE.rglob("*.py"):
        module = path.relative_to(SOURCE)
        if not path.is_relative_to(TABLE) and module.parts[0] not in NO_WAIT_IN:
            found |= {f"{module} {name}": value for name, value in written_down(path.read_text())}
    assert {name: value for name, value in found.items() if name not in NO_WAIT} == {}
    assert NO_WAIT.keys() - found.keys() == set(), "these are gone"


def test_every_number_is_in_a_row_of_the_table() -> None:
    trees = [ast.parse(path.read_text()) for path in TABLE.glob("*.py")]
    numbers = {
        name
        for tree in trees
        for node in tree.body
        for name, _ in bound(node)
        if name.isupper() and DURATION.search(name)
    }
    calls = [
        node
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and named(node.func) in ("Timeout", "fixed", "min", "max")
    ]
    shown = {named(part) for call in calls for part in ast.walk(call) if isinstance(part, ast.expr)}
    assumed = {name for name in numbers if name.startswith("USUAL_")}
    assert len(numbers) > 80
    assert numbers - assumed - shown == set()
