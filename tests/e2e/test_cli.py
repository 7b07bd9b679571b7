"""The command line, run in a subprocess without a terminal."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.programs import ROOT, run_program

CHAT = ("-m", "aiomlc", "chat")
EMPTY = "the prompt is empty: give one with -p, or on standard input"


def run_shell(command: str) -> subprocess.CompletedProcess[str]:
    """Run a command of bash, in which `aiomlc` is the program; the exit code is that of a pipe."""
    program = f'aiomlc() {{ "{sys.executable}" -m aiomlc "$@"; }}; set -o pipefail; {command}'
    return subprocess.run(
        ["bash", "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def test_the_answer_alone_is_written_to_a_pipe() -> None:
    result = run_program([*CHAT, "-p", "What is 12 plus 30?", "--temperature", "0"])

    assert (result.returncode, result.stdout, result.stderr) == (0, "12 + 30 = 42.\n", "")


@pytest.mark.parametrize(
    ("command", "prompt"),
    [
        ("printf 'one\\ntwo\\n' | aiomlc chat mock://echo -p Summarize", "Summarize\n\none\ntwo"),
        ("printf 'one\\ntwo\\n' | aiomlc chat mock://echo -p -", "one\ntwo"),
        ("printf 'one\\ntwo\\n' | aiomlc chat mock://echo", "one\ntwo"),
        ("printf 'a\\377b' | aiomlc chat mock://echo", "a\ufffdb"),
        ("aiomlc chat mock://echo -p Hi <&-", "Hi"),
    ],
)
def test_standard_input_is_a_part_of_the_prompt(command: str, prompt: str) -> None:
    result = run_shell(command)

    assert (result.returncode, result.stderr) == (0, "")
    assert f"<|im_start|>user\n{prompt}<|im_end|>" in result.stdout


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        ("aiomlc chat -p Hi >/dev/full", 1, "aiomlc: No space left on device\n"),
        ("aiomlc --help >/dev/full", 1, "aiomlc: No space left on device\n"),
        ("aiomlc plan >/dev/full", 1, "aiomlc: No space left on device\n"),
        ("aiomlc chat -p Hi >&-", 1, "aiomlc: standard output is closed\n"),
        ("aiomlc chat mock://echo -p Hi | true", 141, ""),
        ("aiomlc --help | true", 141, ""),
        ("aiomlc cache --help | true", 141, ""),
        ("aiomlc version | true", 141, ""),
        ("aiomlc plan | true", 141, ""),
        ("aiomlc chat", 2, f"aiomlc: {EMPTY}\n"),
        ("aiomlc chat -p Hi 2>&-", 0, ""),
    ],
)
def test_a_broken_output_or_input_is_one_line_at_most(
    command: str, code: int, message: str
) -> None:
    result = run_shell(command)

    assert (result.returncode, result.stderr) == (code, message)


def test_an_ascii_output_replaces_other_characters() -> None:
    result = run_shell("PYTHONIOENCODING=ascii aiomlc chat mock://echo -p 'h\u00e9llo'")

    assert (result.returncode, result.stderr) == (0, "")
    assert "h?llo" in result.stdout


def test_missing_model_prints_one_line_without_traceback(tmp_path: Path) -> None:
    result = run_program([*CHAT, str(tmp_path / "missing"), "-p", "hi"])

    assert result.returncode == 1
    assert result.stderr.startswith("aiomlc: ")
    assert len(result.stderr.splitlines()) == 1


def test_invalid_option_exits_with_status_2() -> None:
    result = run_program([*CHAT, "-p", "hi", "--temperature", "-3"])

    assert result.returncode == 2
    assert "temperature" in result.stderr
    assert "Traceback" not in result.stderr


def test_the_program_alone_shows_its_help() -> None:
    result = run_program(["-m", "aiomlc"])

    assert (result.returncode, result.stderr) == (0, "")
    assert "chat" in result.stdout
