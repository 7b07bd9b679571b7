"""The history of questions."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from aiomlc.cli.terminal.history import History


def loaded(path: Path) -> list[str]:
    """Return the questions of the file, the newest last."""
    return list(History(path).load_history_strings())[::-1]


def test_questions_are_loaded_as_they_were_appended(tmp_path: Path) -> None:
    questions = ["Who are you?", "two\nlines", r"a \n and a \\", "\\", "日本\u2028x\ry"]
    path = tmp_path / "home" / "history"
    for question in questions:
        History(path).append_string(question)

    assert loaded(path) == questions


def test_only_the_owner_can_read_the_file(tmp_path: Path) -> None:
    path = tmp_path / "history"
    History(path).append_string("secret")

    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_last_thousand_questions_are_loaded(tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.write_text("".join(f"{number}\n" for number in range(3000)))

    assert loaded(path) == [str(number) for number in range(2000, 3000)]


def test_a_long_file_is_shortened(tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.write_text(f"{'x' * 1000}\n" * 6000)

    assert len(loaded(path)) == 1000
    assert path.stat().st_size == 1001 * 1000


def test_a_file_that_cannot_be_used_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    history = History(tmp_path / "file" / "history")
    history.append_string("Hi")
    history.append_string("Hi")

    assert caplog.text.count("cannot write the history file") == 1
    assert list(history.load_history_strings()) == []
    assert "cannot read the history file" in caplog.text
