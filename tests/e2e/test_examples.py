from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.programs import ROOT, run_program, wrong_sums
from tests.model.tiny_encoder import write_encoder

NEED_ARGUMENTS = {"rag"}
NEED_RAY = {"ray_app"}  # Run by `tests/ray`.
EXAMPLES = sorted(
    path
    for path in (ROOT / "examples").glob("*.py")
    if path.stem not in {"__init__", *NEED_ARGUMENTS, *NEED_RAY}
)


# What the output of an example contains, and its number of sums.
ANSWERS = {
    "agent": (
        'get_weather {"city": "Rome"} -> {"weather": "sunny"}\n',
        'get_population {"city": "Paris"} -> {"population": 2103778}\n',
    ),
    "batch": ("4 of 12 answers were missing\n",),
    "completions": ("12 + 30 = 42.", "The capital of France is Paris."),
    "events": ("I make mistakes.\n74 tokens\n",),
    "fastapi_app": (
        "12 + 30 = 42.",
        'data: "The capital of France is Paris."\n\nevent: end\n',
        "7 + 8 = 15.",
    ),
    "structured": ("Mia is 31",),
    "tools": ('get_weather {"city": "Rome"}\nThe weather in Rome is sunny.',),
}
BETWEEN_EVENTS = '"\n\ndata: "'  # How many deltas an event joins depends on the time.
SUMS = {"batch": 12, "generate_many": 20, "threads": 8, "from_threads": 8, "task_group": 32}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
@pytest.mark.sampled(4)
def test_example_prints_right_answers_and_no_warning(path: Path) -> None:
    result = run_program([str(path)])

    assert (result.returncode, result.stderr) == (0, "")
    assert len(result.stdout.split()) > 2
    assert wrong_sums(result.stdout) == []
    output = result.stdout.replace(BETWEEN_EVENTS, "")
    assert [text for text in ANSWERS.get(path.stem, ()) if text not in output] == []
    assert result.stdout.count(" = ") == SUMS.get(path.stem, result.stdout.count(" = "))


def test_the_expected_answers_are_those_of_examples() -> None:
    assert {*ANSWERS, *SUMS} <= {path.stem for path in EXAMPLES}


def test_the_bot_answers_its_slow_channel_last() -> None:
    lines = run_program(["examples/bot.py"]).stdout.splitlines()

    assert {line.split()[0] for line in lines[:8]} == {f"#sums-{n}" for n in range(1, 9)}
    assert [line for line in lines if line.startswith("#names")][-1].endswith("Ada.")
    assert lines[-2:] == ["#slow 1 + 1 = 2.", "closed"]


def test_rag_finds_the_passage_that_is_asked_for(tmp_path: Path) -> None:
    """A random encoder knows equal texts only, so the question is a passage."""
    encoder = write_encoder(tmp_path / "encoder")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "sums.md").write_text("What is 12 plus 30?\n")
    (tmp_path / "notes" / "names.txt").write_text("My name is Ada.\n\nBread needs flour.\n")

    result = run_program(
        ["examples/rag.py", str(encoder), str(tmp_path / "notes"), "What is 12 plus 30?"]
    )

    assert (result.returncode, result.stderr) == (0, "")
    passage, answer = result.stdout.splitlines()
    assert passage == "1.00 sums.md: What is 12 plus 30?"
    assert answer
