"""Chat with the bundled model through the JSON functions, found by name in the FFI registry."""

from __future__ import annotations

import json
import os
import sys
import textwrap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import tvm_ffi
import tvm_ffi.cpp

import aiomlc.api.json_ffi.functions  # noqa: F401 - registers the functions.
from tests.e2e.programs import run_program
from tests.json_answers import JSONAnswers

SUM = {"messages": [{"role": "user", "content": "What is 12 plus 30?"}], "temperature": 0}
STORY = {"messages": [{"role": "user", "content": "Tell me a story about a fox called Rosa."}]}


@pytest.fixture
def answers() -> JSONAnswers:
    return JSONAnswers()


@pytest.fixture
def functions(answers: JSONAnswers) -> Iterator[Any]:
    table: Any = tvm_ffi.get_global_func("mlc.json_ffi.CreateJSONFFIEngine")()
    table["init_background_engine"](1, 0, answers)
    with ThreadPoolExecutor(2) as threads:
        loops = [
            threads.submit(table["run_background_loop"]),
            threads.submit(table["run_background_stream_back_loop"]),
        ]
        try:
            table["reload"](json.dumps({"mode": "local"}))
            yield table
        finally:
            table["exit_background_loop"]()

        for loop in loops:
            loop.result()


def test_nothing_is_printed_at_exit_after_the_loops_have_ended() -> None:
    program = """
        import threading
        import aiomlc.api.json_ffi.functions, tvm_ffi

        table = tvm_ffi.get_global_func("aiomlc.json_ffi.create")()
        table["init_background_engine"](1, 0, print)
        names = ("run_background_loop", "run_background_stream_back_loop")
        loops = [threading.Thread(target=table[name]) for name in names]
        for loop in loops:
            loop.start()
        table["exit_background_loop"]()
        for loop in loops:
            loop.join()
        kept = [table, names]
        threading.kept = kept  # Until after the modules are cleared.
    """
    result = run_program(["-c", textwrap.dedent(program)])

    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_chat_completion(functions: Any, answers: JSONAnswers) -> None:  # noqa: ANN401
    assert functions["chat_completion"](json.dumps(SUM), "sum") is True
    assert functions["chat_completion"]('{"messages": ', "malformed") is False
    answers.wait("sum", seconds=60)

    assert "42" in answers.text("sum")
    assert answers.reason("sum") == "stop"
    assert answers.wait("sum")[-1]["usage"]["completion_tokens"] > 0
    assert functions["get_last_error"]() == answers.text("malformed")
    assert answers.reason("malformed") == "error"


def test_abort_ends_one_request(
    functions: Any,  # noqa: ANN401
    answers: JSONAnswers,
) -> None:
    endless = json.dumps({**STORY, "ignore_eos": True, "max_tokens": 2000})
    assert functions["chat_completion"](endless, "aborted")
    assert functions["chat_completion"](json.dumps(SUM), "sum")
    answers.wait("aborted", chunks=3, seconds=60)
    functions["abort"]("aborted")

    assert answers.reason("aborted") == "error"
    assert "42" in answers.text("sum")


def test_reload_after_unload_serves_again(functions: Any, answers: JSONAnswers) -> None:  # noqa: ANN401
    functions["unload"]()
    assert functions["chat_completion"](json.dumps(SUM), "early") is False
    assert "no model is loaded" in answers.text("early")
    functions["reload"](json.dumps({"mode": "interactive"}))
    functions["chat_completion"](json.dumps(SUM), "late")
    answers.wait("late", seconds=60)

    assert "42" in answers.text("late")


def test_chat_from_cpp(
    answers: JSONAnswers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = str(Path(sys.executable).parent)  # The directory of ninja.
    monkeypatch.setenv("PATH", os.pathsep.join((tools, os.environ["PATH"])))
    module: Any = tvm_ffi.cpp.load_inline(
        "json_chat",
        cpp_sources=(Path(__file__).parent / "json_chat.cc").read_text(encoding="utf-8"),
        functions=["chat"],
        build_directory=str(tmp_path),
    )
    for line in module.chat(json.dumps(SUM)).splitlines():
        answers(line)

    assert "42" in answers.text("request")
