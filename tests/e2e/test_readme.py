from __future__ import annotations

import re

import pytest

from tests.e2e.programs import ROOT, run_program, wrong_sums

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(
    r"^\*\*(.+?)\*\*[^`]*?(?:`[^`]+`[^`]*?)*\n```python\n(.*?)^```$", README, re.M | re.S
)


def test_every_example_is_listed() -> None:
    page = (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")
    files = [path.name for path in (ROOT / "examples").iterdir() if path.is_file()]
    assert [name for name in files if f"(../examples/{name})" not in page] == ["__init__.py"]


def test_every_python_block_has_a_title() -> None:
    assert len(BLOCKS) == README.count("```python") == 5


@pytest.mark.parametrize("program", [code for _, code in BLOCKS], ids=[name for name, _ in BLOCKS])
def test_readme_program_prints_an_answer_and_no_warning(program: str) -> None:
    result = run_program(["-c", program])

    assert (result.returncode, result.stderr) == (0, "")
    assert len(result.stdout.split()) >= 2
    assert wrong_sums(result.stdout) == []
