"""The recording of a terminal: its screen, and what it shows of the bundled model."""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
from types import ModuleType
from xml.etree import ElementTree

import pytest

from tests.docs.pages import ROOT

PICTURE = ROOT / "docs" / "images" / "terminal.svg"


def _load() -> ModuleType:
    path = ROOT / "docs" / "_pictures" / "terminal.py"
    spec = importlib.util.spec_from_file_location("terminal_picture", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


terminal = _load()


def _last_screen(picture: str) -> list[str]:
    texts = ElementTree.fromstring(picture).iterfind("{http://www.w3.org/2000/svg}text")
    lasting = (text for text in texts if "passing" not in text.get("class", ""))
    return [text.text or "" for text in sorted(lasting, key=lambda text: int(text.get("y", "")))]


@pytest.mark.parametrize("command", terminal.COMMANDS)
def test_the_picture_shows_what_the_command_prints_today(command: str) -> None:
    screen = " ".join(_last_screen(PICTURE.read_text(encoding="utf-8")))
    result = subprocess.run(
        [sys.executable, "-m", *shlex.split(command)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"$ {command} {' '.join(result.stdout.split())} [" in screen


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_a_progress_line_is_replaced_by_the_answer(size: int) -> None:
    screen = terminal.Screen()
    output = (
        "loading \x1b[35m━━\x1b[0m\r\n\x1b[?25h\r\x1b[1A\x1b[2KRome.\r\n\x1b[2m[2 tokens]\x1b[0m"
    )
    for start in range(0, len(output), size):
        screen.feed(output[start : start + size])
    assert screen.rows == ["Rome.", "[2 tokens]"]


def test_long_lines_go_on_in_the_next_row() -> None:
    screen = terminal.Screen()
    screen.feed("a" * terminal.COLUMNS + "b")
    assert screen.rows == ["a" * terminal.COLUMNS, "b"]


def test_a_control_sequence_that_is_not_known_is_an_error() -> None:
    with pytest.raises(ValueError, match="control sequence 2J"):
        terminal.Screen().feed("\x1b[2J")


def test_texts_appear_when_they_did_and_the_last_ones_stay() -> None:
    frames = [(0.5, ("a",)), (1.0, ("a b",)), (2.0, ("a b", "c"))]
    assert terminal.rows_over_time(frames) == [
        (0, "a", 0.5, 1.0),
        (0, "a b", 1.0, None),
        (1, "c", 2.0, None),
    ]
    picture = terminal.render(frames)
    assert _last_screen(picture) == ["a b", "c"]
    assert re.findall(r"passing 0.50s 0.50s", picture)
