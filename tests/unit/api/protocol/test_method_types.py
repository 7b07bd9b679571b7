"""Wrong types of method arguments are rejected by name."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

import pytest
from anyio import fail_after

from aiomlc import (
    AsyncMLCEngine,
    BadRequestError,
    MLCEngine,
    TextStreamer,
    plan_memory,
    prometheus_text,
    register_conversation_template,
)
from aiomlc.testing import fake_loader
from tests.unit.api.protocol.wrong_values import (
    NOT_BOOLEANS,
    NOT_NUMBERS,
    NOT_STRINGS,
    ODD,
    USER,
    rejected,
)

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(scope="module")
def engine() -> Iterator[MLCEngine]:
    with MLCEngine(loader=fake_loader()) as engine:
        yield engine


@pytest.fixture
async def async_engine() -> AsyncIterator[AsyncMLCEngine]:
    async with AsyncMLCEngine(loader=fake_loader()) as engine:
        yield engine


# The path of the method, its other arguments, the name of the wrong argument, and its values.
METHODS: list[tuple[str, dict[str, Any], str, list[Any]]] = [
    ("generate", {}, "prompt", [None, 5, b"a", {"a": 1}, [1.5], ["a"], [-1], [2**31], [[1]], ODD]),
    ("generate", {"prompt": "a"}, "max_tokens", NOT_NUMBERS),
    ("pin_prefix", {}, "prompt", [5, b"a", {"a": 1}, [1.5], ["a"], [-1], [2**70], [], "", ODD]),
    ("pin_prefix", {}, "messages", [5, "a", b"a", {"a": 1}, ["a"], [5], [{"role": 5}], ODD]),
    ("pin_prefix", {"messages": [USER]}, "tools", [5, "a", ["a"], {"a": 1}, ODD]),
    ("pin_prefix", {"messages": [USER]}, "chat_template_kwargs", [5, "a", ["a"], {"a": ODD}]),
    ("abort", {}, "request_id", [None, *NOT_STRINGS]),
    ("drain", {}, "timeout", [-1, float("nan"), True, *NOT_NUMBERS]),
    ("reload", {}, "model", [5, b"a", ["a"], ODD]),
    ("chat.completions.create", {}, "messages", [None, 5, "a", {"a": 1}, [5], [[USER]], ODD]),
    ("chat.completions.create", {"messages": [USER]}, "stream", ["a", 1, [True], ODD]),
    ("chat.completions.create", {"messages": [USER]}, "tools", [5, "a", [5], ODD]),
    ("chat.completions.create", {"messages": [USER]}, "extra_body", [5, "a", [1], ODD]),
    ("chat.completions.parse", {"messages": [USER]}, "response_format", [5, "a", [1], ODD]),
    ("completions.create", {}, "prompt", [None, 5, b"a", {"a": 1}, [1.5], [[]], ODD]),
    ("completions.create", {"prompt": "a"}, "echo", NOT_BOOLEANS),
    ("responses.create", {}, "input", [None, 5, b"a", {"a": 1}, [5], ODD]),
    ("responses.create", {"input": "a"}, "instructions", [5, ["a"], ODD]),
]


def resolve_method(engine: object, path: str) -> Callable[..., Any]:
    for name in path.split("."):
        engine = getattr(engine, name)

    assert callable(engine)
    return engine


def names_argument(error: BadRequestError, name: str) -> bool:
    return (error.param or "").split("[")[0].split(".")[0] == name


@pytest.mark.parametrize(("path", "other_arguments", "name", "values"), METHODS)
async def test_async_methods_name_the_wrong_argument(
    async_engine: AsyncMLCEngine,
    path: str,
    other_arguments: dict[str, Any],
    name: str,
    values: list[Any],
) -> None:
    method = resolve_method(async_engine, path)
    for value in values:
        with pytest.raises(BadRequestError) as caught, fail_after(10):
            await method(**other_arguments, **{name: value})

        assert names_argument(caught.value, name)

    completion = await async_engine.chat.completions.create(messages=[USER])
    assert completion.choices


@pytest.mark.parametrize(("path", "other_arguments", "name", "values"), METHODS)
def test_blocking_methods_name_the_wrong_argument(
    engine: MLCEngine, path: str, other_arguments: dict[str, Any], name: str, values: list[Any]
) -> None:
    method = resolve_method(engine, path)
    for value in values:
        assert names_argument(rejected(partial(method, **other_arguments, **{name: value})), name)

    assert engine.chat.completions.create(messages=[USER]).choices


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        *(({"prompts": value}, "prompts") for value in (5, "a text", b"a", {"a": 1}, ODD)),
        *(({"prompts": [], "limit": value}, "limit") for value in (0, True, 1.5, *NOT_NUMBERS)),
        ({"prompts": ["a"], "stream": True}, "stream"),
        ({"prompts": ["a"], "extra_body": {"stream": True}}, "stream"),
        ({"prompts": ["a"], "request_id": "r"}, "request_id"),
    ],
)
async def test_generate_many_names_the_wrong_argument(
    async_engine: AsyncMLCEngine, arguments: dict[str, Any], name: str
) -> None:
    with pytest.raises(BadRequestError) as caught:
        async with async_engine.generate_many(**arguments):
            pass

    assert caught.value.param == name


async def test_generate_many_reports_each_wrong_prompt_separately(
    async_engine: AsyncMLCEngine,
) -> None:
    odd: list[Any] = [5, None, ODD, "fine"]
    async with async_engine.generate_many(odd) as outcomes:
        errors = {position: error async for position, _, error in outcomes}

    assert [isinstance(errors[n], BadRequestError) for n in range(4)] == [True, True, True, False]


def test_functions_name_the_wrong_argument() -> None:
    odd: Any
    for odd in (5, b"a", ["a"], ODD):
        assert rejected(partial(plan_memory, odd)).param == "model"
        assert rejected(partial(plan_memory, engine_config=odd)).param == "engine_config"
        assert rejected(partial(prometheus_text, odd)).param == "statistics"
        conversation = rejected(partial(register_conversation_template, odd))
        assert conversation.param == "conversation"
        assert rejected(partial(TextStreamer, odd)).param == "tokenizer"


def test_prometheus_text_and_tokenizers_name_the_wrong_argument(engine: MLCEngine) -> None:
    odd: Any
    statistics, tokenizer = engine.statistics(), engine.tokenizer
    for odd in (5, "a", ["a"], {"a": 1}, ODD):
        assert rejected(partial(prometheus_text, statistics, odd)).param == "labels"

    for odd in (5, None, ["a"], ODD):
        assert rejected(partial(prometheus_text, statistics, prefix=odd)).param == "prefix"
        assert rejected(partial(tokenizer.encode, odd)).param == "prompt"

    for odd in (5, None, "ab", ["a"], [1.5], [-1], [2**70], [10**5000], ODD):
        assert rejected(partial(tokenizer.decode, odd)).param == "token_ids"
        put = TextStreamer(tokenizer).put
        assert rejected(partial(put, odd)).param == "delta_tokens"
