"""Tables as command lines print them: delimited, in columns under a header, or bare. Pure.

Rows come out as canonical column name to text. A row that does not fit its table is a problem with its line number, never
an exception: one odd row must not hide the others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from crosstrain.batch.printed import LONGEST_LINE, numbered_lines
from crosstrain.batch.readings import Problem
from crosstrain.domain.plural import counted

SEPARATOR = "\x1f"
"""What our own commands ask for between columns: ASCII unit separator, which no name holds."""

DELIMITERS = (SEPARATOR, "^^^", "|", ";", "\t")

MOST_COLUMNS = 100
"""Of rows without a header; all of sacct's fields are about as many."""

_MADE_UP = re.compile(r"([~@#!$&^])\1*|([:=+/%])\2+")
"""Separators that people choose for the format of a command."""
_HOLDS_ANYTHING = ("name", "comment", "where", "reason")
"""Columns whose text can hold the delimiter, the likeliest first."""

_CLUSTER = re.compile(r"CLUSTER: *(\S+)")
_DATE = re.compile(r"[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d (?:[A-Z]{2,5} )?\d{4}")
_RULE = re.compile(r"[-=]{2,}(?: +[-=]+)*")
_TIME = r"(?:N/A|Unknown|None|\(null\)|(?:(?:Tomorr|Ystday|[A-Z][a-z]{2}|\d{1,2} [A-Z][a-z]{2}) )?[\d:.TZ+-]+)"


@dataclass(frozen=True, slots=True)
class Line:
    """A row: line number, cells by column, and the cluster whose section it stands in."""

    number: int
    text: str
    cells: Mapping[str, str]
    cluster: str | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of an output.

    Attributes:
        columns: canonical names, in order.
        source: where they come from: ``header``, ``given``, ``guessed``, or ``none`` for an output without rows.
    """

    rows: tuple[Line, ...]
    problems: tuple[Problem, ...]
    columns: tuple[str, ...]
    source: str


Guess = Callable[[Sequence[Sequence[str]]], Sequence[str]]
"""From the cells of all rows to their columns; a column of no interest is ``-``."""


def read_table(
    text: str,
    names: Mapping[str, str],
    guess: Guess,
    *,
    given: Sequence[str] = (),
    delimiter: str | None = None,
    error: Callable[[str], bool] = lambda _line: False,
    aligned: bool = False,
) -> Table:
    """Reads a table.

    Args:
        names: lower-case header word to canonical name; others keep their own.
        guess: names the columns where there is neither a header nor `given`.
        given: canonical columns of an output without a header.
        error: lines that are messages of the program.
        aligned: cells without a delimiter begin under their header, and may be empty.
    """
    lines = list(numbered_lines(text))
    problems = [Problem(number, line.strip(), "a message, not a row") for number, line in lines if error(line)]
    lines = [(number, line) for number, line in lines if not error(line) and not _DATE.fullmatch(line.strip())]
    reader = _Reader(names, delimiter or _delimiter([line for _, line in lines]), tuple(given), aligned)
    rows: list[Line] = []
    bare: list[tuple[int, str, list[str], str | None]] = []
    cluster = None
    for index, (number, line) in enumerate(lines):
        if found := _CLUSTER.fullmatch(line.strip()):
            cluster = found[1]
        elif _RULE.fullmatch(line.strip()):
            continue
        elif reader.is_header(line):
            reader.take_header(line, lines[index + 1][1] if index + 1 < len(lines) else "")
        elif not reader.columns:
            bare.append((number, line, reader.cells(line)[:MOST_COLUMNS], cluster))
        elif (cells := reader.row(line)) is None:
            problems.append(Problem(number, line.strip(), f"expected {counted(len(reader.columns), 'column')}"))
        else:
            rows.append(Line(number, line, cells, cluster))
    if not bare:
        return Table(tuple(rows), tuple(problems), reader.columns, reader.source)
    columns = tuple(guess([cells for _, _, cells, _ in bare]))
    rows += [Line(number, line, _named(columns, cells), home) for number, line, cells, home in bare]
    return Table(tuple(rows), tuple(problems), columns, "guessed")


def _named(columns: Sequence[str], cells: Sequence[str]) -> dict[str, str]:
    return {name: cell.strip() for name, cell in zip(columns, cells, strict=False) if name != "-"}


def _delimiter(lines: Sequence[str]) -> str | None:
    for delimiter in DELIMITERS:
        if lines and sum(delimiter in line for line in lines) * 2 > len(lines):
            # A tab between columns of blanks is a blank.
            if delimiter == "\t" and any("  " in line for line in lines):
                return None
            return delimiter
    made_up = {found[0] for found in _MADE_UP.finditer(lines[0])} if lines else set()
    for delimiter in sorted(made_up, key=len, reverse=True):
        if _as_often([line.count(delimiter) for line in lines]):
            return delimiter
    # A first column is an id or a name: what has a blank in it are columns of blanks, some with a list.
    listed = any(" " in line.strip().partition(",")[0] for line in lines)
    return "," if not listed and _as_often([len(_at_commas(line)) - 1 for line in lines]) else None


def _at_commas(line: str) -> list[str]:
    """Cells between commas that stand in no node list, no reason and no quotes."""
    cells, depth, quoted, start = [], 0, False, 0
    for place, letter in enumerate(line):
        if letter == '"':
            quoted = not quoted
        elif letter in "[(":
            depth += 1
        elif letter in "])":
            depth = max(0, depth - 1)
        elif letter == "," and depth == 0 and not quoted:
            cells.append(line[start:place])
            start = place + 1
    return [*cells, line[start:]]


def _as_often(counts: Sequence[int]) -> bool:
    """Whether something stands between the columns of every line: several times, and in each as often."""
    return bool(counts) and counts[0] > 1 and len(set(counts)) == 1


class _Reader:
    """Splits lines into cells, knowing the header once it was seen."""

    def __init__(self, names: Mapping[str, str], delimiter: str | None, given: tuple[str, ...], aligned: bool) -> None:
        self._names = names
        self._delimiter = delimiter
        self._aligned = aligned
        self._pattern: re.Pattern[str] | None = None
        self._spans: list[tuple[int, int]] = []
        self.columns = given
        self.source = "given" if given else "none"

    def cells(self, line: str) -> list[str]:
        if self._delimiter == ",":
            return [cell.strip("\"'") for cell in _at_commas(line)]
        return line.split() if self._delimiter is None else line.split(self._delimiter)

    def is_header(self, line: str) -> bool:
        words = [cell.strip().lower() for cell in self.cells(line) if cell.strip()]
        known = sum(word in self._names for word in words)
        return bool(words) and words[0] in self._names and 2 * known > len(words)

    def take_header(self, line: str, following: str) -> None:
        words = [cell.strip() for cell in self.cells(line)]
        self.columns = tuple(self._names.get(word.lower(), word.lower()) for word in words)
        self.source = "header"
        if self._delimiter is None and _RULE.fullmatch(following.strip()):
            self._spans = [found.span() for found in re.finditer(r"\S+", following)]
            self.columns = tuple(
                self._names.get(word.lower(), word.lower())
                for word in (line[first:last].strip() for first, last in self._spans)
            )
        elif self._delimiter is None and self._aligned:
            starts = [found.start() for found in re.finditer(r"\S+", line)]
            self._spans = list(zip(starts, [*starts[1:], LONGEST_LINE], strict=True))
        elif self._delimiter is None:
            self._pattern = _row_pattern(self.columns)

    def row(self, line: str) -> dict[str, str] | None:
        if self._spans:
            return _named(self.columns, [line[first:last] for first, last in self._spans])
        if self._pattern is not None:
            found = self._pattern.fullmatch(line)
            return None if found is None else _named(self.columns, found.groups(default=""))
        cells = self.cells(line)
        if self._delimiter is None and len(cells) > len(self.columns):
            cells[len(self.columns) - 1 :] = [" ".join(cells[len(self.columns) - 1 :])]
        # --parsable ends every row with a delimiter.
        while len(cells) > len(self.columns) and not cells[-1].strip():
            cells.pop()
        if self._delimiter is not None and len(cells) > len(self.columns):
            cells = self._joined(cells)
        return _named(self.columns, cells) if len(cells) == len(self.columns) else None

    def _joined(self, cells: list[str]) -> list[str]:
        """The cells of a row in which a name holds the delimiter, put together again."""
        place = next((self.columns.index(name) for name in _HOLDS_ANYTHING if name in self.columns), None)
        if place is None:
            return cells
        after = len(self.columns) - place - 1
        end = len(cells) - after
        return [*cells[:place], str(self._delimiter).join(cells[place:end]), *cells[end:]]


def _row_pattern(columns: Sequence[str]) -> re.Pattern[str]:
    """Columns separated by blanks; names and reasons may hold some, and the last column may be empty."""
    special = {
        "name": r"(.*?)",
        "reason": r"(.*?)",
        "state": r"([A-Za-z][\w*~#%$@!+^-]*|n/a)",
        "start": f"({_TIME})",
        "end": f"({_TIME})",
        "submit": f"({_TIME})",
        "nodes": r"(\d+)",
    }
    parts = [special.get(column, r"(\S+)") for column in columns[:-1]]
    return re.compile(
        r"\s*" + "".join(rf"{part}\s+" for part in parts[:-1]) + (parts[-1] if parts else "") + r"(?:\s+|$)(.*)"
    )
