"""The output of a batch: what is found again, and what is never cut off."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from aiomlc import BadRequestError
from aiomlc.batch.lines import DUPLICATE, error_line, response_line
from aiomlc.batch.output_file import OutputFile, digest

LINES = [
    response_line("a", 200, b'{"text": "one"}'),
    response_line("b", 400, b'{"error": {}}'),
    error_line("c", "invalid_url", "no"),
    error_line("a", DUPLICATE, "again"),
    response_line("d", 200, b'{"text": "two"}'),
]


def never() -> bool:
    return False


def test_what_was_appended_is_found_again(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    with OutputFile(path) as output:
        for line in LINES:
            output.append(line)

        output.sync()

    with OutputFile(path) as output:
        answers = output.recover(never)

    assert answers.ids == set(map(digest, "abcd"))
    assert answers.duplicates == {digest("a"): 1}
    assert (len(answers), answers.num_failed) == (5, 3)


def test_a_file_that_ends_anywhere_keeps_its_complete_lines(tmp_path: Path) -> None:
    path, whole = tmp_path / "out.jsonl", b"".join(LINES)
    for end in range(len(whole) + 1):
        path.write_bytes(whole[:end])
        with OutputFile(path) as output:
            number = len(output.recover(never))

        kept = path.read_bytes()
        assert kept == whole[: whole.rfind(b"\n", 0, end) + 1]
        assert number == kept.count(b"\n")


@pytest.mark.parametrize(
    "text",
    [
        b"Dear diary\n",
        b"Dear diary",
        b'{"custom_id": "a", "method": "POST", "url": "", "body": {}}\n',
        LINES[0] + b"Dear diary",
        LINES[0] + b"\0\0\n" + LINES[1],
        b'{"custom_id": 3, "response": null, "error": null}\n',
    ],
)
def test_a_file_with_something_else_is_refused_and_left_as_it_is(
    tmp_path: Path, text: bytes
) -> None:
    path = tmp_path / "diary.txt"
    path.write_bytes(text)

    with OutputFile(path) as output, pytest.raises(BadRequestError, match=r"diary\.txt line \d"):
        output.recover(never)

    assert path.read_bytes() == text


def test_a_second_process_cannot_open_it(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    program = f"""
from pathlib import Path
from aiomlc import BadRequestError
from aiomlc.batch.output_file import OutputFile
try:
    OutputFile(Path({str(path)!r}))
except BadRequestError as error:
    print(error)
"""
    command = [sys.executable, "-c", program]
    with OutputFile(path):
        refused = subprocess.run(command, capture_output=True, text=True, check=True).stdout

    allowed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "another process is writing this file" in refused
    assert allowed == ""


def test_a_line_that_does_not_fit_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with OutputFile(path) as output:
        output.append(LINES[0])
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(LINES[0]) + 9, limits[1]))
        try:
            with pytest.raises(OSError, match="too large"):
                output.append(LINES[1])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            signal.signal(signal.SIGXFSZ, before)

        output.append(LINES[4])

    assert path.read_bytes() == LINES[0] + LINES[4]


def test_a_pipe_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadRequestError, match="regular file"):
        OutputFile(Path("/dev/null"))


def test_closing_waits_for_a_thread_that_reads(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    torn = LINES[0] + LINES[1][:10]
    path.write_bytes(torn)
    is_reading, is_closing = threading.Event(), threading.Event()

    def check() -> bool:
        is_reading.set()
        is_closing.wait(10)
        os.fstat(descriptor)  # Raises OSError if it is closed.
        return True

    with ThreadPoolExecutor() as threads:
        with OutputFile(path) as output:
            descriptor = output._descriptor
            reading = threads.submit(output.recover, check)
            is_reading.wait(10)
            is_closing.set()

        reading.result(10)

    # A thread that begins later reads nothing, and cuts nothing off.
    assert len(output.recover(never)) == 0
    assert path.read_bytes() == torn
