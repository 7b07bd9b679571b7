"""The lint of sentences, in each kind of file."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def lint() -> Iterator[ModuleType]:
    """Import .ci/sentences.py, which is in no package."""
    spec = importlib.util.spec_from_file_location("ci_sentences", ROOT / ".ci" / "sentences.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, spec.name, module)
        spec.loader.exec_module(module)
        yield module


def _found(lint: ModuleType, path: Path, text: str) -> list[tuple[int, str]]:
    path.write_text(text, encoding="utf-8")
    return [(part.line, why) for part in lint.texts(path) for why in lint.problems(part)]


CLAUSE, THAT_OF = "name the thing; it begins with 'What'", "name the subject instead of 'That of'"
WAY, CHAIN = "say both ways, or 'conversely'", "three 'of' in one phrase"


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.py", '"""What it does."""', [(1, CLAUSE)]),
        ("a.py", 'def f() -> None:\n    """What it does."""', [(2, CLAUSE)]),
        ("a.py", "x = 1  #: What it is.", [(1, CLAUSE)]),
        ("a.py", '"""Reads.\n\nThe size. That of the\nother file is 1.\n"""', [(3, THAT_OF)]),
        ("a.py", "# One does this\n# the other way\n# round.", [(1, WAY)]),
        ("a.h", "/*! \\brief What it is. */", [(1, CLAUSE)]),
        ("a.h", "/*!\n * \\brief Reads.\n * \\return What it reads.\n */", [(3, CLAUSE)]),
        ("a.h", "int x;  //!< What it is.", [(1, CLAUSE)]),
        ("a.cc", "// The end of the rows\n// of the parts of it.", [(1, CHAIN)]),
        ("a.md", "# Rows\n\n- one\n- the end of the rows of the parts of it\n", [(4, CHAIN)]),
        ("a.py", "# Those whose rows end.", [(1, THAT_OF)]),
        ("a.md", "A file. Those of\nothers differ.\n", [(1, THAT_OF)]),
        ("a.md", "```text\nend\n```\n\nThose of others.\n", [(5, THAT_OF)]),
    ],
)
def test_a_sentence_is_found_at_its_line(
    lint: ModuleType, tmp_path: Path, name: str, text: str, expected: list[tuple[int, str]]
) -> None:
    assert _found(lint, tmp_path / name, text) == expected


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.py", '"""Whether it is open."""'),
        ("a.py", '"""The size, like that of the other file."""'),
        ("a.py", "# What the system lacks for a while.\nx = 1"),
        ("a.py", 'x = "What of the rows of the parts of it"'),
        ("a.h", "// How this works: it reads the end of a file, then the rows of a part."),
        ("a.md", "## What to expect\n\nWhat `a of b of c of d` means.\n"),
        ("a.md", "```text\nThat of the rows.\n```\n"),
        ("a.md", "| of one | of two | of three |\n"),
    ],
)
def test_a_sentence_that_is_clear_is_not_found(
    lint: ModuleType, tmp_path: Path, name: str, text: str
) -> None:
    assert _found(lint, tmp_path / name, text) == []
