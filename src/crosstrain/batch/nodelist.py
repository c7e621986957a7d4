"""Node lists such as ``nid[0001-0004,7],gcn1``. Pure."""

from __future__ import annotations

import re
from itertools import product

LARGEST = 65_536
"""Names of one list, far above any machine; more is taken for garbage."""

_PART = re.compile(r"\[([^\]]*)\]")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


def expand(expression: str) -> tuple[str, ...]:
    """The names of a node list in order; empty for an empty list, ``(null)`` or something that is no list."""
    expression = expression.strip()
    if not expression or expression.startswith("(") or expression.lower() in ("n/a", "none assigned", "none"):
        return ()
    names: dict[str, None] = {}
    for item in _items(expression):
        for name in _names(item):
            names[name] = None
            if len(names) > LARGEST:
                return ()
    return tuple(names)


def _items(expression: str) -> list[str]:
    items, depth, start = [], 0, 0
    for index, letter in enumerate(expression):
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth == 0:
            items.append(expression[start:index])
            start = index + 1
    return [item for item in (*items, expression[start:]) if item]


def _names(item: str) -> list[str]:
    fixed = _PART.split(item)
    choices = []
    for index, text in enumerate(fixed):
        if index % 2 == 0:
            choices.append([text])
            continue
        numbers = _numbers(text)
        if not numbers:
            return []
        choices.append(numbers)
    size = 1
    for choice in choices:
        size *= len(choice)
    return [] if size > LARGEST else ["".join(parts) for parts in product(*choices)]


def _numbers(text: str) -> list[str]:
    numbers: list[str] = []
    for part in text.split(","):
        found = _RANGE.fullmatch(part.strip())
        if not found:
            return []
        first, last = int(found[1]), int(found[2] or found[1])
        if not 0 <= last - first <= LARGEST:
            return []
        numbers += [str(number).zfill(len(found[1])) for number in range(first, last + 1)]
    return numbers
