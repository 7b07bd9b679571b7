"""Tables and sizes for people."""

from __future__ import annotations

__all__ = ("format_bytes", "format_table", "format_time")

import time
from collections.abc import Sequence


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
