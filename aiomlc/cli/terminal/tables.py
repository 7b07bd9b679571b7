"""Tables and sizes for people."""

from __future__ import annotations

__all__ = ("fit_table", "format_bytes", "format_table", "format_time")

import shutil
import sys
import time
from collections.abc import Sequence

_SHORTEST = 16  # Of a text that is shortened.


def fit_table(rows: Sequence[Sequence[str]], column: int) -> str:
    """Return a table for standard output: on a terminal, a column's texts are shortened to fit it.

    What is in the middle of a text, such as the folders of a path, is left out.
    """
    if not sys.stdout.isatty():
        return format_table(rows)

    width = max(map(len, format_table(rows).splitlines()))
    longest = max(len(row[column]) for row in rows)
    limit = max(_SHORTEST, longest - max(0, width - shutil.get_terminal_size().columns))
    return format_table(
        [[*row[:column], _shorten(row[column], limit), *row[column + 1 :]] for row in rows]
    )


def _shorten(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text

    end = (limit - 1) * 2 // 3  # More of the end, where paths differ.
    return f"{text[: limit - 1 - end]}…{text[-end:]}"


def format_table(rows: Sequence[Sequence[str]]) -> str:
    """Return rows of the same length as columns that are aligned at the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
    return "\n".join(lines)


def format_bytes(size: float) -> str:
    """Return a size with a decimal unit and two or three digits."""
    units = ["B", "kB", "MB", "GB"]
    while size >= 1000 and len(units) > 1:
        size /= 1000
        units.pop(0)
    digits = 0 if size >= 100 or units[0] == "B" else 1
    return f"{size:,.{digits}f} {units[0]}"


def format_time(seconds: float) -> str:
    """Return a time since the epoch as local date and minute."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
