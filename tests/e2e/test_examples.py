from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.programs import ROOT, run_program, wrong_sums

EXAMPLES = sorted(path for path in (ROOT / "examples").glob("*.py") if path.stem != "__init__")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_prints_an_answer_and_no_warning(path: Path) -> None:
    result = run_program([str(path)])

    assert (result.returncode, result.stderr) == (0, "")
    assert len(result.stdout.split()) > 2
    assert wrong_sums(result.stdout) == []


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("structured", "Mia is 31"),
        ("tools", 'get_weather {"city": "Rome"}\nThe weather in Rome is sunny.'),
        ("completions", "12 + 30 = 42."),
        ("completions", "The capital of France is Paris."),
        ("batch", "4 of 12 answers were missing\n"),
        ("events", "I make mistakes.\n53 tokens\n"),
    ],
)
def test_the_answer_of_an_example_is_right(name: str, answer: str) -> None:
    assert answer in run_program([f"examples/{name}.py"]).stdout


@pytest.mark.parametrize(
    ("name", "num_sums"),
    [("batch", 12), ("generate_many", 20), ("threads", 8), ("from_threads", 8), ("task_group", 32)],
)
def test_an_example_prints_all_of_its_sums(name: str, num_sums: int) -> None:
    result = run_program([f"examples/{name}.py"])

    assert result.stdout.count(" = ") == num_sums
    assert wrong_sums(result.stdout) == []
