"""Every Python block runs, in a folder of its own and on the bundled model, and prints what the
page shows; so does every command of a console block.
"""

from __future__ import annotations

import ast
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.audio_files import wav_bytes
from tests.docs.pages import PAGES, ROOT, Block, blocks, equal_output, name_of
from tests.e2e.programs import wrong_sums
from tests.model import tiny_encoders
from tests.model.tiny_encoder import write_encoder
from tests.model.tiny_speech import speech_audio, write_speech

pytestmark = pytest.mark.timeout(300)
ADDRESS = "http://127.0.0.1:8000"
NEEDS = "# Needs "
#: Each has a test of its own, which runs its blocks.
RUN_ELSEWHERE = {"docs/clients.md": "tests/e2e/clients_page.py"}
#: What fragments of a page use, besides `engine`.
NAMES: dict[str, dict[str, Any]] = {
    "docs/api.md": {
        "MESSAGES": [{"role": "user", "content": "Who are you?"}],
        "INSTRUCTIONS": "Answer in upper case.",
    }
}
#: Pages whose `engine` is an encoder.
ENCODER_PAGES = ("docs/embeddings.md", "docs/models.md")
#: Pages whose `engine` is a speech model.
SPEECH_PAGES = ("docs/transcribe.md",)


def _programs(page: Path) -> list[Block]:
    return [block for block in blocks(page) if block.language == "python"]


def _parametrize(pages: Sequence[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("page", pages, ids=name_of)


def _run(
    arguments: Sequence[str], folder: Path, text: str | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        cwd=folder,
        input="" if text is None else text,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


def _write_files(page: Path, folder: Path) -> None:
    for block in blocks(page):
        if block.title is not None:
            (folder / block.title).write_text(block.text, encoding="utf-8")


def _shown_output(program: Block) -> str | None:
    """Return the text block that follows a program."""
    following = [block for block in blocks(program.page) if block.line > program.line]
    return following[0].text if following and following[0].language == "text" else None


@_parametrize([page for page in PAGES if _programs(page) and name_of(page) not in RUN_ELSEWHERE])
@pytest.mark.sampled(6)
def test_programs_run(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    programs = [block for block in _programs(page) if not block.text.startswith(NEEDS)]
    address = ADDRESS
    if any(ADDRESS in program.text for program in programs):
        address = request.getfixturevalue("server").url

    _write_files(page, tmp_path)
    model = reranker = None
    if name_of(page) in ENCODER_PAGES:
        model = str(write_encoder(tmp_path / "encoder"))
        tiny_encoders.write_token_heads(tmp_path / "encoder")
        reranker = str(tiny_encoders.write_encoder(tmp_path / "reranker", "bert_reranker"))

    elif name_of(page) in SPEECH_PAGES:
        model = str(write_speech(tmp_path / "speech"))
        # What a file contains counts, and not its name.
        (tmp_path / "meeting.mp3").write_bytes(wav_bytes(speech_audio(9.0)))

    work = {
        "model": model,
        "reranker": reranker,
        "blocks": [
            {
                "place": program.place,
                "line": program.line,
                "text": program.text.replace(ADDRESS, address),
                "names": NAMES.get(name_of(page), {}),
            }
            for program in programs
        ],
    }
    result = _run(["-m", "tests.docs.run_blocks"], tmp_path, json.dumps(work))

    assert (result.returncode, result.stderr) == (0, "")
    for program, outcome in zip(programs, json.loads(result.stdout), strict=True):
        shown, output = _shown_output(program), outcome["output"]
        assert not outcome["error"], f"{program.place}\n{outcome['error']}"
        assert wrong_sums(output) == [], program.place
        if shown is not None:
            assert equal_output(shown, output), f"{program.place} printed:\n{output}"
        elif re.search(r"^ *print\(", program.text, re.M):
            assert output.strip(), program.place


@_parametrize([page for page in PAGES if any(_.language == "console" for _ in blocks(page))])
def test_console_commands_print_what_is_shown(page: Path, tmp_path: Path) -> None:
    _write_files(page, tmp_path)
    for block in blocks(page):
        if block.language != "console":
            continue

        for entry in re.split(r"^\$ ", block.text, flags=re.M)[1:]:
            command, _, shown = entry.partition("\n")
            program, *arguments = shlex.split(command)
            if program == "aiomlc":
                arguments = ["-m", "aiomlc", *arguments]
            else:
                assert program == "python", f"{block.place}: {program} is not run in a test"

            result = _run(arguments, tmp_path)
            assert (result.returncode, result.stderr) == (0, ""), command
            assert equal_output(shown, result.stdout), f"{command} printed:\n{result.stdout}"


@_parametrize([page for page in PAGES if _programs(page)])
def test_programs_that_are_not_run_say_what_they_need(page: Path) -> None:
    for program in _programs(page):
        compile(program.text, program.place, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        first = program.text.partition("\n")[0]
        if first.startswith(NEEDS):
            assert re.fullmatch(r"# Needs .+\.", first), program.place


def test_pages_that_are_run_elsewhere_are_named_there() -> None:
    for page, test in RUN_ELSEWHERE.items():
        assert Path(page).name in (ROOT / test).read_text(encoding="utf-8")
