"""The fenced blocks of the README and the documentation.

- A `python` block is a program, or a fragment with `await` at its top level, whose names the test
  of its page gives. One that begins with `# Needs ` is compiled only: the tests lack what it names.
- A `text` block after a `python` block is what that prints; `...` stands for any text.
- A `console` block is run: lines after `$ ` are commands, the others are what they print.
- The commands of a `sh` block are compared with the program's options.
- A block with a `title` is a file of the folder in which the page's programs run.
"""

from __future__ import annotations

__all__ = ("PAGES", "ROOT", "Block", "blocks", "equal_output", "name_of")

import doctest
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
_FENCE = re.compile(
    r'^( *)```(?P<language>\w*)(?: title="(?P<title>[^"]+)")?\n(?P<text>.*?)^\1```$', re.M | re.S
)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: Path
    line: int  #: Of its first line, counted from 1.
    language: str
    title: str | None
    text: str

    @property
    def place(self) -> str:
        """The page and the line, as compilers write them."""
        return f"{name_of(self.page)}:{self.line}"


def name_of(page: Path) -> str:
    """Return the path of a page within the repository."""
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page, in their order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            page,
            text.count("\n", 0, found.start("text")) + 1,
            found["language"],
            found["title"],
            re.sub(f"^{found[1]}", "", found["text"], flags=re.M),
        )
        for found in _FENCE.finditer(text)
    ]


def equal_output(expected: str, output: str) -> bool:
    """Return whether a program has printed what a page shows."""
    return doctest.OutputChecker().check_output(
        expected.rstrip() + "\n", output.rstrip() + "\n", doctest.ELLIPSIS
    )
