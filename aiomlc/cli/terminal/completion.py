"""Completion with the Tab key in an interactive chat."""

from __future__ import annotations

__all__ = ("Complete", "bind_completion", "complete_path")

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

#: Returns what the last word of a line may be. Its arguments are the line and the word.
Complete = Callable[[str, str], list[str]]

_DELIMITERS = " \t\n;="


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


def bind_completion(readline: ModuleType, complete: Complete) -> None:
    """Let the Tab key complete commands, and insert a tab into a question.

    Args:
        readline: Python's module, of GNU readline.
        complete: Returns the words; none for a question.
    """
    words: list[str] = []

    def complete_word(word: str, state: int) -> str | None:
        if state == 0:
            line = readline.get_line_buffer()[: readline.get_endidx()]
            if not line.startswith("/"):
                readline.insert_text("\t")
                readline.redisplay()
            words[:] = complete(line, word)

        return words[state] if state < len(words) else None

    readline.set_completer_delims(_DELIMITERS)
    readline.set_completer(complete_word)
    readline.parse_and_bind("tab: complete")
