"""Wrong types of arguments of the step, JSON and embedding engines are rejected by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from aiomlc import AsyncEmbeddingEngine, JSONFFIEngine, SyncMLCEngine, TextData, TokenData
from aiomlc.api.json_ffi.functions import create_functions
from aiomlc.testing import FakeEncoder, fake_loader
from tests.unit.api.protocol.wrong_values import (
    NOT_FUNCTIONS,
    NOT_LISTS,
    NOT_STRINGS,
    ODD,
    rejected,
)

pytestmark = pytest.mark.timeout(60)


STEP_ENGINE_CALLS: list[tuple[str, Callable[[SyncMLCEngine, Any], object], list[Any]]] = [
    ("prompts", lambda engine, value: engine.generate(value), [None, 5, {"a": 1}, ODD]),
    (
        "inputs",
        lambda engine, value: engine.generate([value]),
        [None, 5.5, {"a": 1}, [1, "a"], b"ab", ODD],
    ),
    (
        "prompt",
        lambda engine, value: engine.generate([value]),
        [[True], [-1], [2**31], [2**70], [256]],
    ),
    (
        "generation_config",
        lambda engine, value: engine.generate("a", value),
        [5, "a", {"n": 1}, [5], ["a"], ODD],
    ),
    (
        "request_id",
        lambda engine, value: engine.create_request(value, TextData("a")),
        [None, *NOT_STRINGS],
    ),
    (
        "inputs",
        lambda engine, value: engine.create_request("a", value),
        [None, 5, {"a": 1}, [5, "a"], ODD],
    ),
    (
        "generation_config",
        lambda engine, value: engine.create_request("a", TextData("a"), value),
        [5, 0, "a", {}, ODD],
    ),
    (
        "request",
        lambda engine, value: engine.add_request(value),
        [None, 5, "a", ("a", (), None), ODD],
    ),
    ("request_id", lambda engine, value: engine.abort_request(value), [None, *NOT_STRINGS]),
]


@pytest.mark.parametrize(("name", "call", "values"), STEP_ENGINE_CALLS)
def test_the_step_engine_names_the_wrong_argument(
    name: str, call: Callable[[SyncMLCEngine, Any], object], values: list[Any]
) -> None:
    with SyncMLCEngine(loader=fake_loader()) as engine:
        for value in values:
            assert rejected(partial(call, engine, value)).param == name

        assert engine.generate("a")[0] == [["Hello!"]]


def test_add_request_checks_the_fields_of_a_request() -> None:
    with SyncMLCEngine(loader=fake_loader()) as engine:
        request = engine.create_request("a", TextData("a"))
        odd: Any = ODD
        for name in ("request_id", "inputs", "generation_config"):
            wrong = request._replace(**{name: odd})
            assert rejected(partial(engine.add_request, wrong)).param == name


def test_the_stream_callback_is_checked_in_the_constructor_and_in_step() -> None:
    for value in NOT_FUNCTIONS:
        odd: Any = value
        name = "request_stream_callback"
        make = SyncMLCEngine
        assert (
            rejected(partial(make, loader=fake_loader(), request_stream_callback=odd)).param == name
        )
        with SyncMLCEngine(loader=fake_loader()) as engine:
            engine.request_stream_callback = odd
            assert rejected(engine.step).param == name


@pytest.mark.parametrize("value", [None, 5, b"a", ["a"], ODD])
def test_prompt_data_must_be_text_or_token_ids(value: Any) -> None:  # noqa: ANN401
    assert rejected(lambda: TextData(value)).param == "prompt"
    assert rejected(lambda: TokenData(value)).param == "prompt"


def test_the_json_engine_yields_wrong_types_as_error_chunks() -> None:
    odd: Any
    with JSONFFIEngine(loader=fake_loader()) as engine:
        for odd in (None, 5, ["a"], ODD, "5", "[]"):
            output = "".join(engine.chat_completion(odd))
            assert '"finish_reason":"error"' in output

        for odd in (5, ["a"], ODD):
            output = "".join(engine.chat_completion('{"messages": []}', odd))
            assert "request_id" in output

        for odd in (None, *NOT_STRINGS):
            assert rejected(partial(engine.abort, odd)).param == "request_id"


def test_the_json_functions_name_the_wrong_argument() -> None:
    table = create_functions()
    init, chat = table["init_background_engine"], table["chat_completion"]
    for value in (None, *NOT_FUNCTIONS):
        assert rejected(partial(init, 1, 0, value)).param == "callback"

    for value in ("cpu", None, ODD):
        assert rejected(partial(init, value, 0, print)).param == "device"

    init(1, 0, print)
    try:
        for value in (None, 5, ["a"], ODD):
            assert "engine_config" in str(rejected(partial(table["reload"], value)))
            assert rejected(partial(table["abort"], value)).param == "request_id"
            assert rejected(partial(chat, "{}", value)).param == "request_id"
            assert chat(value, "a") is False
            assert "not JSON" in table["get_last_error"]()
    finally:
        table["exit_background_loop"]()
        table["run_background_loop"]()


def test_the_embedding_engine_names_the_wrong_argument() -> None:
    odd: Any
    loader = fake_loader(FakeEncoder())
    for odd in (5, ["mean"], ODD, "sum"):
        error = rejected(partial(AsyncEmbeddingEngine, loader=loader, pooling_strategy=odd))
        assert error.param == "pooling_strategy"

    engine = AsyncEmbeddingEngine(loader=loader)
    for odd in (None, *NOT_LISTS):
        assert rejected(partial(engine.embed, odd)).param == "inputs"

    for odd in (5, None, b"a", ["a"], ODD, "\ud800"):
        assert rejected(partial(engine.embed, ["a", odd])).param == "inputs[1]"

    engine.terminate()
