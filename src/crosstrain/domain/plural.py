"""Amounts in sentences: one node, two nodes."""

from __future__ import annotations


def counted(number: float, noun: str, plural: str = "", spec: str = "") -> str:
    """The number with its noun, the noun in the plural unless the number is exactly 1.

    Args:
        noun: in the singular.
        plural: where it is not the noun with an s.
        spec: format of the number, such as `,`.
    """
    return f"{number:{spec}} {noun if number == 1 else plural or noun + 's'}"
