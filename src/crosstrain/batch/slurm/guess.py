"""Columns of squeue and sacct rows that came without a header, from their content. Pure.

Our own commands never need this; bug reports do. A column is named only where its content allows one reading; the rest
stays unnamed, and the output says that columns were guessed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from crosstrain.batch.readings import JobState
from crosstrain.batch.slurm.job_rows import CODES, MEANING, is_job_id, is_step, state_of
from crosstrain.batch.times import UNSET, Timestamp, duration_s, is_unlimited, timestamp

_CAMEL = re.compile(r"\(?[A-Z][a-z]+(?:[A-Z]\w*)?[\w, :]*\)?")
_WHERE = re.compile(r"\([A-Z]\w+.*\)|[A-Za-z][\w.-]*\d(?:,.*)?|[A-Za-z][\w.-]*\[[\d,-]+\].*")
"""NODELIST(REASON)."""
_NO_LIMIT = ("not_set", "invalid", "partition_limit")
Cells = Sequence[Sequence[str]]


def guess_columns(rows: Cells, own: Sequence[str] = ()) -> list[str]:
    """Canonical columns of rows about jobs; ``-`` for what could not be told. Empty where no column holds job ids.

    Args:
        own: the columns of our own command, taken if the rows have that shape.
    """
    width = max((len(row) for row in rows), default=0)
    if own and width == len(own) and all(_is_own(row, own) for row in rows if len(row) == width):
        return list(own)
    table = [[cell.strip() for cell in row] + [""] * (width - len(row)) for row in rows]
    names = ["-"] * width
    _name_ids(table, names)
    if "id" not in names:
        return []
    _name_state(table, names)
    allocations = [row for row in table if not is_step(row[names.index("id")])]
    _name_times(allocations, names)
    _name_durations(allocations, table, names)
    _name_raw_durations(allocations, names)
    _name_reason(allocations, names)
    _name_nodes(allocations, names)
    return names


def _is_own(row: Sequence[str], own: Sequence[str]) -> bool:
    return is_job_id(row[0]) and _is_state(row[own.index("state")])


def _column(rows: Cells, index: int) -> list[str]:
    return [row[index] for row in rows]


def _free(rows: Cells, names: Sequence[str], fits: Callable[[list[str]], bool]) -> list[int]:
    return [index for index, name in enumerate(names) if name == "-" and fits(_column(rows, index))]


def _name_ids(table: Cells, names: list[str]) -> None:
    found = _free(table, names, lambda cells: all(is_job_id(cell) for cell in cells))
    # A column with arrays, components or steps is an id for certain; otherwise the first, largest numbers.
    marked = [index for index in found if any(not cell.isdecimal() for cell in _column(table, index))]
    wide = [index for index in found if all(len(cell) > 3 for cell in _column(table, index))]
    distinct = [index for index in found if len(set(_column(table, index))) == len(table)]
    for index in (marked or wide or distinct or found)[:1]:
        names[index] = "id"


def _name_state(table: Cells, names: list[str]) -> None:
    def share(cells: list[str]) -> float:
        return sum(_is_state(cell) for cell in cells) / (len(cells) or 1)

    best = max(
        (index for index, name in enumerate(names) if name == "-"), key=lambda i: share(_column(table, i)), default=None
    )
    if best is not None and share(_column(table, best)) >= 0.5:
        names[best] = "state"


def _is_state(cell: str) -> bool:
    return cell in CODES or state_of(cell)[1].upper() in MEANING


def _is_time(cell: str) -> bool:
    return timestamp(cell) is not None


def _name_times(rows: Cells, names: list[str]) -> None:
    def fits(cells: list[str]) -> bool:
        return any(_is_time(cell) for cell in cells) and all(_is_time(cell) or cell.lower() in UNSET for cell in cells)

    found = _free(rows, names, fits)
    # Rows in which nothing started yet may have no time at all in the columns between.
    holes = _free(rows, names, lambda cells: all(cell.lower() in ("unknown", "none") for cell in cells))
    places = sorted({*found, *(hole for hole in holes if found and found[0] < hole <= found[-1] + 2)})
    for index, name in zip(places, _time_names(rows, places), strict=False):
        names[index] = name


def _time_names(rows: Cells, places: Sequence[int]) -> tuple[str, ...]:
    if len(places) >= 4:
        return ("submit", "eligible", "start", "end")
    if len(places) == 3:
        return ("submit", "start", "end")
    if len(places) == 2:
        first, second = (_column(rows, place) for place in places)
        unset = [sum(not _is_time(cell) for cell in cells) for cells in (first, second)]
        pairs = [(timestamp(a), timestamp(b)) for a, b in zip(first, second, strict=True)]
        backwards = any(a and b and a.after(b) > 0 for a, b in pairs)
        # squeue prints the start before the submission, and a start can be missing where a submission cannot.
        return ("start", "submit") if backwards or unset[0] > unset[1] else ("start", "end")
    return ("start",) if places else ()


def _name_durations(rows: Cells, table: Cells, names: list[str]) -> None:
    def fits(cells: list[str]) -> bool:
        return any(_duration(cell) is not None for cell in cells) and all(
            _duration(cell) is not None or is_unlimited(cell) or cell.lower() in _NO_LIMIT for cell in cells
        )

    found = _free(rows, names, fits)
    if not found:
        return
    elapsed = _elapsed(rows, names, found)
    # Steps have no limit of their own.
    steps = [row for row in table if is_step(row[names.index("id")])]
    limits = [index for index in found if index != elapsed and _is_limit(rows, steps, index)]
    if elapsed is None and len(found) > 1:
        elapsed = next((index for index in found if index not in limits[:1]), None)
    if elapsed is not None:
        names[elapsed] = "elapsed"
    if limits:
        names[limits[0]] = "limit"


def _duration(cell: str) -> int | None:
    return duration_s(cell) if ":" in cell or "-" in cell else None


def _elapsed(rows: Cells, names: Sequence[str], found: Sequence[int]) -> int | None:
    """The column that equals end minus start; else one of zeros while nothing ran."""
    if "start" in names and "end" in names:
        spans: list[tuple[Sequence[str], float]] = []
        for row in rows:
            start, end = timestamp(row[names.index("start")]), timestamp(row[names.index("end")])
            if isinstance(start, Timestamp) and isinstance(end, Timestamp):
                spans.append((row, end.after(start)))
        for index in found:
            if any(span > 0 and _duration(row[index]) == span for row, span in spans):
                return index
    pending = "state" in names and all(state_of(row[names.index("state")])[0] is JobState.PENDING for row in rows)
    if pending or len(found) > 1:
        zeros = [index for index in found if any(_duration(cell) == 0 for cell in _column(rows, index))]
        return zeros[0] if zeros else (found[0] if len(found) > 2 else None)
    return found[0] if not _is_limit(rows, (), found[0]) else None


def _name_raw_durations(rows: Cells, names: list[str]) -> None:
    """ElapsedRaw is the column that equals end minus start, TimelimitRaw the number behind it."""
    if "elapsed" in names or "start" not in names or "end" not in names:
        return
    spans = [
        end.after(start)
        if (start := timestamp(row[names.index("start")])) and (end := timestamp(row[names.index("end")]))
        else None
        for row in rows
    ]
    for index in _free(rows, names, lambda cells: all(cell.isdecimal() for cell in cells)):
        pairs = list(zip(_column(rows, index), spans, strict=True))
        if any(span is not None for span in spans) and all(span is None or int(cell) == span for cell, span in pairs):
            names[index] = "elapsed_s"
            if index + 1 < len(names) and names[index + 1] == "-":
                names[index + 1] = "limit_min"
            return


def _is_limit(rows: Cells, steps: Cells, index: int) -> bool:
    cells = _column(rows, index)
    lengths = [_duration(cell) for cell in cells]
    whole = all(length is None or (length > 0 and length % 60 == 0) for length in lengths)
    return whole and all(not row[index] for row in steps)


def _name_reason(rows: Cells, names: list[str]) -> None:
    found = _free(rows, names, lambda cells: all(_CAMEL.fullmatch(cell) for cell in cells))
    bare = [index for index in found if not any(cell.startswith("(") for cell in _column(rows, index))]
    for index in (bare or found)[:1]:
        names[index] = "reason"
    if not found:
        places = _free(
            rows, names, lambda cells: all(_WHERE.fullmatch(cell) for cell in cells) and "(" in "".join(cells)
        )
        for index in places[:1]:
            names[index] = "where"


def _name_nodes(rows: Cells, names: list[str]) -> None:
    found = _free(rows, names, lambda cells: all(cell.isdecimal() and 0 < int(cell) < 100_000 for cell in cells))
    after = [index for index in found if index > names.index("id")]
    for index, name in zip(after, ("nodes", "processors"), strict=False):
        names[index] = name
