"""Find sentences that must be read twice: in docstrings, comments of C++ and Python, and pages.

`python .ci/sentences.py [FILE ...]`, by default on `aiomlc/`, `native/`, `docs/` and the pages of
the root. Prints `path:line: reason: text` for each, and fails if there is any.
"""

from __future__ import annotations

__all__ = ("Text", "problems", "texts")

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("aiomlc", "native", "docs", "*.md")
SUFFIXES = {".py", ".pyi", ".cc", ".h", ".md"}

_CLAUSE = re.compile(r"(What|How|Where|Which|(?:That|Those) (?:of|whose))\b")
_ANYWHERE = {
    "name the subject instead of 'That of'": re.compile(
        r"(?:^|[.:;!?] )(?:That|Those) (?:of|whose)\b"
    ),
    "say both ways, or 'conversely'": re.compile(r"\bother way (?:round|around)\b"),
    "three 'of' in one phrase": re.compile(
        r"\bof(?: [^\s.,;:()\[\]|]+){1,3} of(?: [^\s.,;:()\[\]|]+){1,3} of\b"
    ),
}
_CPP_COMMENT = re.compile(r"/\*(?P<block>.*?)\*/|(?P<lines>//[^\n]*(?:\n[ \t]*//[^\n]*)*)", re.S)
_CPP_MARKER = re.compile(r"^[ \t]*(?:\*|//[/!]?<?)?[ \t]?", re.M)
_FENCE = re.compile(r"^( *)```.*?^\1```$", re.M | re.S)


@dataclass(frozen=True)
class Text:
    """A docstring, comment or paragraph."""

    line: int  #: Its first line, counted from 1.
    text: str  #: In one line.
    described: bool  #: It documents a name, so its first words say what that is.


def texts(path: Path) -> Iterator[Text]:
    """Yield the texts of a file, by its suffix."""
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        yield from _paragraphs(source)
    elif path.suffix in {".py", ".pyi"}:
        yield from _docstrings(source)
        yield from _python_comments(source)
    else:
        yield from _cpp_comments(source)


def problems(text: Text) -> Iterator[str]:
    """Yield what is wrong with a text."""
    if text.described and (found := _CLAUSE.match(text.text)):
        yield f"name the thing; it begins with '{found[1]}'"
    for reason, pattern in _ANYWHERE.items():
        if pattern.search(text.text):
            yield reason


def _paragraphs(source: str) -> Iterator[Text]:
    source = _FENCE.sub(lambda match: "\n" * match[0].count("\n"), source)
    for found in re.finditer(r"(?:^(?![ \t]*$).+\n?)+", source, re.M):
        line = source.count("\n", 0, found.start()) + 1
        for entry in re.split(r"(?m)^(?=[ ]*(?:- |\d+\. |\|))", found[0]):
            yield Text(line, _one_line(entry.removeprefix("- ")), described=False)
            line += entry.count("\n")


def _docstrings(source: str) -> Iterator[Text]:
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue

        if text := ast.get_docstring(node):
            line = node.body[0].lineno
            for paragraph in re.split(r"\n\s*\n", text):
                yield Text(line, _one_line(paragraph), described=line == node.body[0].lineno)
                line += paragraph.count("\n") + 2


def _python_comments(source: str) -> Iterator[Text]:
    parts: list[tuple[int, str]] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            continues = token.line.lstrip().startswith("#") and not token.string.startswith("#:")
            if parts and not (continues and token.start[0] == parts[-1][0] + 1):
                yield _python_comment(parts)
                parts = []
            parts.append((token.start[0], token.string))
    if parts:
        yield _python_comment(parts)


def _python_comment(parts: list[tuple[int, str]]) -> Text:
    text = _one_line("\n".join(part.lstrip("#:") for _, part in parts))
    return Text(parts[0][0], text, described=parts[0][1].startswith("#:"))


def _cpp_comments(source: str) -> Iterator[Text]:
    for found in _CPP_COMMENT.finditer(source):
        line = source.count("\n", 0, found.start()) + 1
        body = found["block"] if found["block"] is not None else found["lines"]
        described = found[0].startswith(("/*!", "/**", "//!", "///"))
        for entry in re.split(r"(?=\\(?:param|return|brief|note)\b)|\n[ \t*/]*\n", body):
            text = _one_line(_CPP_MARKER.sub("", entry.lstrip("!*")))
            yield Text(line, re.sub(r"^\\(?:brief|return) ", "", text), described)
            line += entry.count("\n")


def _one_line(text: str) -> str:
    return " ".join(re.sub(r"`[^`]*`", "`code`", text).split())


def _sources() -> Iterator[Path]:
    command = ["git", "ls-files", *SOURCES]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    yield from (ROOT / name for name in names.splitlines())


def _main() -> int:
    given = [Path(name).resolve() for name in sys.argv[1:]]
    found = 0
    for path in given or _sources():
        name = path.relative_to(ROOT).as_posix()
        if path.suffix not in SUFFIXES or not path.is_file():
            continue

        for text in texts(path):
            for reason in problems(text):
                print(f"{name}:{text.line}: {reason}: {text.text[:100]}")
                found += 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(_main())
