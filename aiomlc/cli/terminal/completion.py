"""Completion of paths in an interactive chat."""

from __future__ import annotations

__all__ = ("complete_path",)

from pathlib import Path


def complete_path(prefix: str) -> list[str]:
    """Return the files and directories that begin with a prefix; directories end with `/`.

    Hidden files are left out unless the prefix has their dot.
    """
    directory, slash, start = prefix.rpartition("/")
    try:
        paths = sorted(Path(directory + slash).expanduser().iterdir())
    except (OSError, RuntimeError):  # There is no such directory, or no such user.
        return []

    return [
        f"{directory}{slash}{path.name}{'/' if path.is_dir() else ''}"
        for path in paths
        if path.name.startswith(start) and path.name.startswith(".") <= start.startswith(".")
    ]
