"""The JSON functions: order of calls, threads, callbacks and shutdown."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from aiomlc import BadRequestError, EngineClosedError, EngineError, ModelLoadError
from aiomlc.api.json_ffi.functions import CREATE, JSONFunctions
from aiomlc.api.session.loader import Loader
from aiomlc.testing import FakeCore, fake_loader
from tests.json_answers import JSONAnswers

pytestmark = pytest.mark.timeout(20)
HELLO = json.dumps({"messages": [{"role": "user", "content": "Hello"}]})
MLC_LLM_NAMES = [
    "init_background_engine",
    "reload",
    "unload",
    "reset",
    "chat_completion",
    "abort",
    "get_last_error",
    "run_background_loop",
    "run_background_stream_back_loop",
    "exit_background_loop",
]


@pytest.fixture(autouse=True)
def check_no_thread_left() -> Iterator[None]:
    yield
    assert "aiomlc engine" not in [thread.name for thread in threading.enumerate()]


@contextmanager
def serve(
    loader: Loader, *, loops_first: bool = False
) -> Iterator[tuple[JSONFunctions, JSONAnswers]]:
    """Yield functions with a loaded model and both loops running."""
    functions, answers = JSONFunctions(loader), JSONAnswers()
    if not loops_first:
        functions.init_background_engine(1, 0, answers)
    with ThreadPoolExecutor(2) as threads:
        loops = [
            threads.submit(functions.run_background_loop),
            threads.submit(functions.run_background_stream_back_loop),
        ]
        try:
            if loops_first:
                functions.init_background_engine(1, 0, answers)
            functions.reload("{}")
            yield functions, answers
        finally:
            functions.exit_background_loop()

        for loop in loops:
            loop.result()


def test_the_function_names_are_those_of_mlc_llm() -> None:
    assert list(JSONFunctions().table()) == MLC_LLM_NAMES


def test_the_table_is_registered_as_a_global_function() -> None:
    import tvm_ffi

    table: Any = tvm_ffi.get_global_func(CREATE)()
    assert list(table) == MLC_LLM_NAMES
    assert all(isinstance(function, tvm_ffi.Function) for function in table.values())
    with pytest.raises(EngineClosedError, match="init_background_engine"):
        table["get_last_error"]()


def test_the_loops_may_be_started_before_the_engine() -> None:
    with serve(fake_loader(replies=["Hi!"]), loops_first=True) as (functions, answers):
        functions.chat_completion(HELLO, "mine")

        assert answers.text("mine") == "Hi!"


def test_an_exit_ends_loops_of_an_engine_that_was_never_started() -> None:
    functions = JSONFunctions(fake_loader())
    with ThreadPoolExecutor(2) as threads:
        loops = [
            threads.submit(functions.run_background_loop),
            threads.submit(functions.run_background_stream_back_loop),
        ]
        functions.exit_background_loop()

    assert [loop.result() for loop in loops] == [None, None]
    with pytest.raises(EngineClosedError):
        functions.init_background_engine(1, 0, print)


@pytest.mark.parametrize("request_json", [HELLO, "{", '{"messages": []}'])
def test_every_chunk_has_the_fields_that_strict_clients_require(request_json: str) -> None:
    with serve(fake_loader(replies=["Hi!"])) as (functions, answers):
        functions.chat_completion(request_json, "mine")
        chunks = answers.wait("mine")

    assert {chunk["system_fingerprint"] for chunk in chunks} == {""}
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    assert {delta["role"] for delta in deltas} == {"assistant"}


def test_the_callback_receives_the_chunks_of_concurrent_requests() -> None:
    core = FakeCore(["Hi!", "Ho!"])
    with serve(fake_loader(core)) as (functions, answers):
        assert functions.chat_completion(HELLO, "first") is True
        assert functions.chat_completion(HELLO, "second") is True
        texts = answers.text("first"), answers.text("second")

    assert texts == ("Hi!", "Ho!")
    assert functions.get_last_error() == ""


@pytest.mark.parametrize(
    ("request_json", "text"),
    [
        ("{", "not JSON"),
        ("{}", "messages"),
        (HELLO[:-1] + ', "temperature": -1}', "temperature"),
        (HELLO.replace("Hello", r"\ud800"), "messages[0].content"),
        (HELLO[:-1] + r', "\ud800": 1}', r"\ud800"),
    ],
)
def test_a_rejected_request_yields_an_error_chunk_and_the_usage(
    request_json: str, text: str
) -> None:
    with serve(fake_loader()) as (functions, answers):
        assert functions.chat_completion(request_json, "mine") is False
        error, usage = answers.wait("mine")

    assert error["choices"][0]["finish_reason"] == "error"
    assert text in error["choices"][0]["delta"]["content"]
    assert functions.get_last_error() == error["choices"][0]["delta"]["content"]
    assert usage["usage"]["total_tokens"] == 0


@pytest.mark.parametrize("function_name", ["abort", "reset", "unload", "exit_background_loop"])
def test_every_way_to_end_a_request_yields_an_error_chunk_and_the_usage(function_name: str) -> None:
    core = FakeCore(["x" * 100], hand_stepped=True)
    with serve(fake_loader(core)) as (functions, answers):
        core.allow(1)
        functions.chat_completion(HELLO, "mine")
        answers.wait("mine", chunks=1)
        functions.table()[function_name](*(("mine",) if function_name == "abort" else ()))

        assert answers.reason("mine") == "error"


def test_a_duplicate_request_is_rejected_and_the_first_continues() -> None:
    core = FakeCore(["Hi!"], hand_stepped=True)
    with serve(fake_loader(core)) as (functions, answers):
        functions.chat_completion(HELLO, "mine")
        assert functions.chat_completion(HELLO, "mine") is False
        answers.wait("mine")
        answers.chunks.clear()
        core.allow(1000)

        assert answers.text("mine") == "Hi!"


def test_requests_are_rejected_until_a_model_is_loaded() -> None:
    with serve(fake_loader(replies=["Hi!"])) as (functions, answers):
        functions.unload()
        functions.unload()
        assert functions.chat_completion(HELLO, "early") is False
        assert "no model is loaded" in answers.text("early")
        with pytest.raises(EngineClosedError, match="no model is loaded"):
            functions.reset()

        functions.reload('{"mode": "server"}')
        functions.chat_completion(HELLO, "late")
        assert answers.text("late") == "Hi!"


def test_an_invalid_configuration_keeps_the_loaded_model() -> None:
    with serve(fake_loader(replies=["Hi!"])) as (functions, answers):
        for config in ("{", '{"mod": 1}', '{"max_num_sequence": 0}'):
            with pytest.raises(BadRequestError):
                functions.reload(config)

        functions.chat_completion(HELLO, "mine")
        assert answers.text("mine") == "Hi!"


def test_after_a_failed_load_another_model_can_be_loaded() -> None:
    async def load(model: Any, **options: Any) -> Any:  # noqa: ANN401
        if model == "missing":
            raise ModelLoadError("no such file")

        return await fake_loader(replies=["Hi!"])(model, **options)

    with serve(load) as (functions, answers):
        with pytest.raises(ModelLoadError):
            functions.reload('{"model": "missing"}')

        assert functions.chat_completion(HELLO, "early") is False
        functions.reload("{}")
        functions.chat_completion(HELLO, "late")
        assert answers.text("late") == "Hi!"


def test_a_dead_engine_ends_requests_with_an_error() -> None:
    with serve(fake_loader(replies=["x" * 10], dies_at_step=3)) as (functions, answers):
        functions.chat_completion(HELLO, "mine")

        assert "scripted failure" in answers.text("mine")


def test_the_callback_may_submit_requests_and_exit() -> None:
    functions, answers = JSONFunctions(fake_loader(replies=["Hi!"])), JSONAnswers()
    waiting = ["second"]

    def callback(text: str) -> None:
        answers(text)
        if answers.has_ended("second"):
            functions.exit_background_loop()
        elif answers.has_ended("first") and waiting:
            functions.chat_completion(HELLO, waiting.pop())

    functions.init_background_engine(1, 0, callback)
    functions.reload("{}")
    functions.chat_completion(HELLO, "first")
    with ThreadPoolExecutor(1) as threads:
        loop = threads.submit(functions.run_background_stream_back_loop)
        functions.run_background_loop()
        loop.result()

    assert (answers.text("first"), answers.text("second")) == ("Hi!", "Hi!")


def test_a_callback_error_is_raised_and_another_loop_continues() -> None:
    answers = JSONAnswers()
    is_broken = [True]

    def callback(text: str) -> None:
        if is_broken.pop() if is_broken else False:
            raise OverflowError("too much")

        answers(text)

    functions = JSONFunctions(fake_loader(replies=["Hi!"]))
    functions.init_background_engine(1, 0, callback)
    functions.reload("{}")
    functions.chat_completion("{", "not delivered")
    with pytest.raises(OverflowError):
        functions.run_background_stream_back_loop()

    with ThreadPoolExecutor(1) as threads:
        loop: Future[None] = threads.submit(functions.run_background_stream_back_loop)
        functions.chat_completion(HELLO, "mine")
        assert answers.text("mine") == "Hi!"
        functions.exit_background_loop()
        functions.run_background_loop()
        loop.result()


def test_a_loop_started_after_the_exit_delivers_the_remaining_chunks() -> None:
    answers = JSONAnswers()
    functions = JSONFunctions(fake_loader(FakeCore(hand_stepped=True)))
    functions.init_background_engine(1, 0, answers)
    functions.reload("{}")
    functions.chat_completion(HELLO, "mine")
    functions.exit_background_loop()
    functions.exit_background_loop()
    functions.run_background_loop()
    functions.run_background_loop()
    functions.run_background_stream_back_loop()

    assert answers.reason("mine") == "error"
    functions.exit_background_loop()
    with pytest.raises(EngineClosedError):
        functions.reload("{}")
    with pytest.raises(EngineClosedError):
        functions.chat_completion(HELLO, "late")


def test_garbage_collection_closes_the_engine() -> None:
    core = FakeCore(hand_stepped=True)
    functions = JSONFunctions(fake_loader(core))
    functions.init_background_engine(1, 0, JSONAnswers())
    functions.reload("{}")
    functions.chat_completion(HELLO, "mine")

    del functions

    assert core.is_closed


@pytest.mark.parametrize("device", [(8, 0), (1, 1)])
def test_other_devices_are_refused(device: tuple[int, int]) -> None:
    with pytest.raises(BadRequestError) as caught:
        JSONFunctions().init_background_engine(*device, print)

    assert caught.value.param == "device"


def test_an_engine_can_be_started_only_once() -> None:
    functions = JSONFunctions(fake_loader())
    functions.init_background_engine(1, 0, print)
    with pytest.raises(EngineError, match="already started"):
        functions.init_background_engine(1, 0, print)

    functions.exit_background_loop()
    functions.run_background_loop()
