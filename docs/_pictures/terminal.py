"""Record `docs/images/terminal.svg`: commands at a terminal, with what they really print, and when.

`python docs/_pictures/terminal.py`. Each command runs at a pseudo-terminal; the picture shows its
screen at the speed of the run. Only the typing of the commands is made here.
"""

from __future__ import annotations

__all__ = ("COLUMNS", "COMMANDS", "Frame", "Screen", "render", "rows_over_time")

import codecs
import os
import pty
import re
import shlex
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterable, Iterator, Sequence
from fcntl import ioctl
from html import escape
from pathlib import Path
from typing import TypeAlias

ROOT = Path(__file__).parents[2]
COLUMNS = 88
COMMANDS = (
    'aiomlc chat -p "What is the capital of Italy?" --temperature 0',
    'aiomlc chat -p "Tell me a story about a fox called Rosa." --seed 7',
)

_LINE, _CHARACTER, _MARGIN = 20, 8.4, 16  # Pixels.
_KEY = 0.03  # Seconds between two typed characters.
_FLASH = 0.005  # Seconds in which nobody sees a text.
_PAUSE, _END = 0.6, 6.0  # Seconds after a command is typed or has ended; after the last one.
_SEQUENCE = re.compile(r"\x1b\[(\??[\d;]*)([A-Za-z])|[\r\n]|[^\x1b\r\n]+")
_INCOMPLETE = re.compile(r"\x1b(\[\??[\d;]*)?$")
# Without animations, the last screen is seen.
_STYLE = """text { font: 14px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  white-space: pre; fill: #d8dee9 }
.dim { fill: #8b949e }
.passing { visibility: hidden }
@keyframes later { from, to { visibility: hidden } }
@keyframes passing { from, to { visibility: visible } }
@media (prefers-reduced-motion: reduce) { text { animation: none !important } }
"""

#: Seconds since the start, and the rows of the screen.
Frame: TypeAlias = tuple[float, tuple[str, ...]]


class Screen:
    """The rows of a terminal, from the text and the few control sequences that aiomlc writes."""

    def __init__(self) -> None:
        self.rows: list[str] = [""]
        self._row = self._column = 0
        self._incomplete = ""  # The start of a control sequence whose end has not arrived.

    def feed(self, data: str) -> None:
        """Show text.

        Raises:
            ValueError: A control sequence is not known.
        """
        data = self._incomplete + data
        tail = _INCOMPLETE.search(data)
        self._incomplete = tail[0] if tail is not None else ""
        for match in _SEQUENCE.finditer(data.removesuffix(self._incomplete)):
            if match[2] is not None:
                self._control(match[1], match[2])
            elif match[0] == "\r":
                self._column = 0
            elif match[0] == "\n":
                self._move_to(self._row + 1)
            else:
                self._write(match[0])

    def _control(self, parameters: str, letter: str) -> None:
        if letter == "A":
            self._move_to(max(0, self._row - int(parameters or 1)))
        elif letter == "K":
            kept = "" if parameters == "2" else self.rows[self._row][: self._column]
            self.rows[self._row] = kept
        elif letter not in "mhl":  # Colors and modes, such as the visible cursor.
            raise ValueError(f"control sequence {parameters}{letter}: not known to the recording")

    def _move_to(self, row: int) -> None:
        self._row = row
        self.rows += [""] * (row + 1 - len(self.rows))

    def _write(self, text: str) -> None:
        while text:
            if self._column == COLUMNS:
                self._move_to(self._row + 1)
                self._column = 0
            part, text = text[: COLUMNS - self._column], text[COLUMNS - self._column :]
            row = self.rows[self._row].ljust(self._column)
            end = self._column + len(part)
            self.rows[self._row] = row[: self._column] + part + row[end:]
            self._column = end


def _run(command: str) -> Iterator[tuple[float, str]]:
    """Yield what a command writes at a terminal, each part with its time in seconds."""
    reader, writer = pty.openpty()
    ioctl(writer, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    begin = time.monotonic()
    arguments = [sys.executable, "-m", *shlex.split(command)]
    process = subprocess.Popen(
        arguments, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=writer, stderr=writer
    )
    os.close(writer)
    decoder = codecs.getincrementaldecoder("utf-8")()
    with os.fdopen(reader, "rb", buffering=0) as output:
        while True:
            try:
                data = output.read(65536)
            except OSError:  # The process has closed the terminal.
                break
            yield time.monotonic() - begin, decoder.decode(data)
    if process.wait() != 0:
        raise RuntimeError(f"{command}: exit code {process.returncode}")


def record(commands: Sequence[str]) -> Iterator[Frame]:
    """Run commands one after the other, and yield the screen whenever it changes."""
    screen, now = Screen(), 0.0
    for command in commands:
        for character in f"$ {command}":
            screen.feed(character)
            yield now, tuple(screen.rows)
            now += _KEY
        now += _PAUSE
        screen.feed("\r\n")
        elapsed = 0.0
        for elapsed, text in _run(command):
            screen.feed(text)
            yield now + elapsed, tuple(screen.rows)
        now += elapsed + _PAUSE
    yield now + _END, tuple(screen.rows)


def rows_over_time(frames: Iterable[Frame]) -> list[tuple[int, str, float, float | None]]:
    """Return each text with its row, and when it appears and goes; None if it stays."""
    shown: dict[int, tuple[str, float]] = {}
    texts: list[tuple[int, str, float, float | None]] = []
    for now, rows in frames:
        for row, text in enumerate(rows):
            before, since = shown.get(row, ("", 0.0))
            if text.rstrip() != before:
                if before:
                    texts.append((row, before, since, now))
                shown[row] = (text.rstrip(), now)
    texts += [(row, text, since, None) for row, (text, since) in shown.items() if text]
    return sorted(texts, key=lambda entry: (entry[2], entry[0]))


def render(frames: Sequence[Frame]) -> str:
    """Return the picture: an SVG that plays once and ends with the last screen."""
    rows = max(len(rows) for _, rows in frames)
    while rows and not any(len(each) >= rows and each[rows - 1] for _, each in frames):
        rows -= 1
    width, height = round(COLUMNS * _CHARACTER + 2 * _MARGIN), rows * _LINE + 2 * _MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        "<title>aiomlc chat at a terminal</title>",
        f"<style>{_STYLE}</style>",
        f'<rect width="{width}" height="{height}" rx="8" fill="#1b1f27"/>',
    ]
    for row, text, since, until in rows_over_time(frames):
        if until is not None and until - since < _FLASH:
            continue
        names = ["dim"] if text.startswith("[") else []
        animation = f"later 1ms {since:.2f}s backwards"
        if until is not None:
            names.append("passing")
            animation = f"passing {until - since:.2f}s {since:.2f}s"
        attribute = f' class="{" ".join(names)}"' if names else ""
        y = _MARGIN + row * _LINE + 14
        parts.append(
            f'<text x="{_MARGIN}" y="{y}"{attribute} style="animation:{animation}">'
            f"{escape(text)}</text>"
        )
    return "\n".join([*parts, "</svg>", ""])


def _main() -> None:
    path = ROOT / "docs" / "images" / "terminal.svg"
    path.write_text(render(list(record(COMMANDS))), encoding="utf-8")


if __name__ == "__main__":
    _main()
