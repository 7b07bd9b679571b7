"""The table of JSON functions: order of calls, threads, and the end."""

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
UPSTREAMS_NAMES = [
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
def no_thread_left() -> Iterator[None]:
    yield
    assert "aiomlc engine" not in [thread.name for thread in threading.enumerate()]


@contextmanager
def served(loader: Loader) -> Iterator[tuple[JSONFunctions, JSONAnswers]]:
    """Functions with both loops running and a model loaded."""
    functions, answers = JSONFunctions(loader), JSONAnswers()
    functions.init_background_engine(1, 0, answers)
    with ThreadPoolExecutor(2) as threads:
        loops = [
            threads.submit(functions.run_background_loop),
            threads.submit(functions.run_background_stream_back_loop),
        ]
        try:
            functions.reload("{}")
            yield functions, answers
        finally:
            functions.exit_background_loop()

        for loop in loops:
            loop.result()


def test_the_names_are_upstreams() -> None:
    assert list(JSONFunctions().table()) == UPSTREAMS_NAMES


def test_another_language_finds_the_table_by_its_name() -> None:
    import tvm_ffi

    table: Any = tvm_ffi.get_global_func(CREATE)()
    assert list(table) == UPSTREAMS_NAMES
    assert all(isinstance(function, tvm_ffi.Function) for function in table.values())
    with pytest.raises(EngineClosedError, match="init_background_engine"):
        table["get_last_error"]()


def test_requests_are_answered_together_and_the_callback_is_told_of_all() -> None:
    core = FakeCore(["Hi!", "Ho!"])
    with served(fake_loader(core)) as (functions, answers):
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
def test_a_refused_request_is_told_as_an_error_and_its_usage(request_json: str, text: str) -> None:
    with served(fake_loader()) as (functions, answers):
        assert functions.chat_completion(request_json, "mine") is False
        error, usage = answers.wait("mine")

    assert error["choices"][0]["finish_reason"] == "error"
    assert text in error["choices"][0]["delta"]["content"]
    assert functions.get_last_error() == error["choices"][0]["delta"]["content"]
    assert usage["usage"]["total_tokens"] == 0


@pytest.mark.parametrize("how", ["abort", "reset", "unload", "exit_background_loop"])
def test_whatever_ends_a_request_its_answer_ends_with_an_error_and_the_usage(how: str) -> None:
    core = FakeCore(["x" * 100], hand_stepped=True)
    with served(fake_loader(core)) as (functions, answers):
        core.allow(1)
        functions.chat_completion(HELLO, "mine")
        answers.wait("mine", chunks=1)
        functions.table()[how](*(("mine",) if how == "abort" else ()))

        assert answers.reason("mine") == "error"


def test_a_duplicate_is_refused_and_the_first_goes_on() -> None:
    core = FakeCore(["Hi!"], hand_stepped=True)
    with served(fake_loader(core)) as (functions, answers):
        functions.chat_completion(HELLO, "mine")
        assert functions.chat_completion(HELLO, "mine") is False
        answers.wait("mine")
        answers.chunks.clear()
        core.allow(1000)

        assert answers.text("mine") == "Hi!"


def test_without_a_model_requests_are_refused_until_one_is_loaded() -> None:
    with served(fake_loader(replies=["Hi!"])) as (functions, answers):
        functions.unload()
        functions.unload()
        assert functions.chat_completion(HELLO, "early") is False
        assert "no model is loaded" in answers.text("early")
        with pytest.raises(EngineClosedError, match="no model is loaded"):
            functions.reset()

        functions.reload('{"mode": "server"}')
        functions.chat_completion(HELLO, "late")
        assert answers.text("late") == "Hi!"


def test_a_configuration_that_is_refused_leaves_the_model_that_is_loaded() -> None:
    with served(fake_loader(replies=["Hi!"])) as (functions, answers):
        for config in ("{", '{"mod": 1}', '{"max_num_sequence": 0}'):
            with pytest.raises(BadRequestError):
                functions.reload(config)

        functions.chat_completion(HELLO, "mine")
        assert answers.text("mine") == "Hi!"


def test_a_model_that_does_not_load_leaves_none_and_another_can_be_loaded() -> None:
    async def load(model: Any, **options: Any) -> Any:  # noqa: ANN401
        if model == "missing":
            raise ModelLoadError("no such file")

        return await fake_loader(replies=["Hi!"])(model, **options)

    with served(load) as (functions, answers):
        with pytest.raises(ModelLoadError):
            functions.reload('{"model": "missing"}')

        assert functions.chat_completion(HELLO, "early") is False
        functions.reload("{}")
        functions.chat_completion(HELLO, "late")
        assert answers.text("late") == "Hi!"


def test_an_engine_that_dies_tells_every_reader() -> None:
    with served(fake_loader(replies=["x" * 10], dies_at_step=3)) as (functions, answers):
        functions.chat_completion(HELLO, "mine")

        assert "the script says so" in answers.text("mine")


def test_the_callback_may_ask_and_end() -> None:
    functions, answers = JSONFunctions(fake_loader(replies=["Hi!"])), JSONAnswers()

    def callback(text: str) -> None:
        answers(text)
        if answers.has_ended("second"):
            functions.exit_background_loop()
        elif answers.has_ended("first"):
            functions.chat_completion(HELLO, "second")

    functions.init_background_engine(1, 0, callback)
    functions.reload("{}")
    functions.chat_completion(HELLO, "first")
    with ThreadPoolExecutor(1) as threads:
        loop = threads.submit(functions.run_background_stream_back_loop)
        functions.run_background_loop()
        loop.result()

    assert (answers.text("first"), answers.text("second")) == ("Hi!", "Hi!")


def test_an_error_of_the_callback_is_raised_and_another_loop_goes_on() -> None:
    answers = JSONAnswers()
    is_broken = [True]

    def callback(text: str) -> None:
        if is_broken.pop() if is_broken else False:
            raise OverflowError("too much")

        answers(text)

    functions = JSONFunctions(fake_loader(replies=["Hi!"]))
    functions.init_background_engine(1, 0, callback)
    functions.reload("{}")
    functions.chat_completion("{", "told to nobody")
    with pytest.raises(OverflowError):
        functions.run_background_stream_back_loop()

    with ThreadPoolExecutor(1) as threads:
        loop: Future[None] = threads.submit(functions.run_background_stream_back_loop)
        functions.chat_completion(HELLO, "mine")
        assert answers.text("mine") == "Hi!"
        functions.exit_background_loop()
        functions.run_background_loop()
        loop.result()


def test_a_loop_that_comes_after_the_end_tells_what_is_left() -> None:
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


def test_a_table_that_is_dropped_ends_its_engine() -> None:
    core = FakeCore(hand_stepped=True)
    functions = JSONFunctions(fake_loader(core))
    functions.init_background_engine(1, 0, JSONAnswers())
    functions.reload("{}")
    functions.chat_completion(HELLO, "mine")

    del functions

    assert core.is_closed


@pytest.mark.parametrize("device", [(2, 0), (1, 1)])
def test_another_device_than_the_processor_is_refused(device: tuple[int, int]) -> None:
    with pytest.raises(BadRequestError) as caught:
        JSONFunctions().init_background_engine(*device, print)

    assert caught.value.param == "device"


def test_an_engine_is_started_once() -> None:
    functions = JSONFunctions(fake_loader())
    functions.init_background_engine(1, 0, print)
    with pytest.raises(EngineError, match="before"):
        functions.init_background_engine(1, 0, print)

    functions.exit_background_loop()
    functions.run_background_loop()
