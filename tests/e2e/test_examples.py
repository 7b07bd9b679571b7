from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.programs import ROOT, run_program

EXAMPLES = sorted(path for path in (ROOT / "examples").glob("*.py") if path.stem != "__init__")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_prints_an_answer_and_no_warning(path: Path) -> None:
    result = run_program([str(path)])

    assert (result.returncode, result.stderr) == (0, "")
    assert len(result.stdout.split()) > 2
