"""Arguments whose own methods raise or lie: every public method answers with a typed error."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import pytest

from aiomlc import (
    AiomlcError,
    BadRequestError,
    EngineConfig,
    GenerationConfig,
    MLCEngine,
)
from aiomlc.validation.json_values import MAX_ITEMS, InvalidValueError, to_plain

pytestmark = pytest.mark.timeout(30)
USER = {"role": "user", "content": "Hi"}
METHODS = (
    "__bool__", "__contains__", "__eq__", "__float__", "__getattr__", "__getitem__", "__hash__",
    "__index__", "__int__", "__iter__", "__len__", "__repr__", "__str__", "encode", "get", "items",
    "keys", "values",
)  # fmt: skip
FIELDS = (
    "chat_template_kwargs", "extra_body", "logit_bias", "logits_processors", "max_tokens",
    "messages", "metadata", "model", "n", "priority", "prompt_logprobs", "reasoning_effort",
    "request_id", "response_format", "seed", "stop", "stop_token_ids", "stream", "stream_options",
    "temperature", "timeout", "tool_choice", "tools", "top_p", "user",
)  # fmt: skip


class OwnError(Exception):
    """What a hostile method raises."""


def _raise(*_: object) -> Any:  # noqa: ANN401
    raise OwnError


class OwnMapping(Mapping[str, object]):
    """A mapping with one field."""

    def __getitem__(self, name: str) -> object:
        return {"role": "user", "content": "Hi"}[name]

    def __iter__(self) -> Iterator[str]:
        return iter(("role", "content"))

    def __len__(self) -> int:
        return 2


def hostile(base: type, method: str) -> object:
    """Return an instance of a subclass whose `method` raises."""
    value_of = {int: (7,), str: ("x",), float: (0.5,), list: ([1],), dict: ({"a": 1},)}
    return type(f"Hostile{base.__name__}", (base,), {method: _raise})(*value_of.get(base, ()))


HOSTILE = [
    (base, method)
    for base, method in itertools.product(
        (object, str, int, float, list, dict, OwnMapping), METHODS
    )
    if not (method == "__hash__" and base is object)
]


@pytest.fixture(scope="module")
def engine() -> Iterator[MLCEngine]:
    with MLCEngine("mock://echo") as engine:
        yield engine


def ends_typed(call: Callable[[], object]) -> None:
    """Call a method, which may succeed, or raise an error of the library."""
    with suppress(AiomlcError):
        call()


@pytest.mark.parametrize("field", FIELDS)
def test_fields_of_a_chat_request(engine: MLCEngine, field: str) -> None:
    for base, method in HOSTILE:
        value = hostile(base, method)
        for wrapped in (value, [value], {"a": value}):
            fields: dict[str, Any] = {"messages": [USER], "max_tokens": 1, field: wrapped}
            ends_typed(lambda fields=fields: engine.chat.completions.create(**fields))  # type: ignore[misc]


@pytest.mark.parametrize(
    "call",
    [
        lambda engine, value: engine.completions.create(prompt=value, max_tokens=1),
        lambda engine, value: engine.responses.create(input=value, max_output_tokens=1),
        lambda engine, value: engine.embeddings.create(input=value),
        lambda engine, value: engine.generate(value, max_tokens=1),
        lambda engine, value: engine.pin_prefix(messages=value),
        lambda engine, value: engine.abort(value),
        lambda engine, value: engine.tokenizer.encode(value),
        lambda engine, value: engine.tokenizer.decode(value),
        lambda engine, value: GenerationConfig(stop_strs=value),
        lambda engine, value: GenerationConfig(temperature=value),
        lambda engine, value: EngineConfig(max_num_sequence=value),
        lambda engine, value: EngineConfig(additional_models=value),
    ],
    ids=range(12),
)
def test_arguments_of_other_methods(engine: MLCEngine, call: Callable[..., object]) -> None:
    for base, method in HOSTILE:
        value = hostile(base, method)
        for wrapped in (value, [value]):
            ends_typed(lambda wrapped=wrapped: call(engine, wrapped))  # type: ignore[misc]


def test_an_error_says_which_value_raises(engine: MLCEngine) -> None:
    messages: Any = [USER, hostile(OwnMapping, "items")]

    with pytest.raises(BadRequestError) as caught:
        engine.chat.completions.create(messages=messages)

    assert str(caught.value) == "messages[1]: cannot be read: it raises OwnError"
    assert caught.value.param == "messages[1]"
    assert isinstance(caught.value.__cause__, OwnError)


def test_a_mapping_may_lie_about_its_length(engine: MLCEngine) -> None:
    class Lying(OwnMapping):
        def __len__(self) -> int:
            return 10**9

    engine.chat.completions.create(messages=[Lying()], max_tokens=1)


def test_subclasses_become_plain_values() -> None:
    class Text(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            return False

        __hash__ = str.__hash__

    plain = to_plain({"a": Text("x"), "b": (Text("y"),)})

    assert plain == {"a": "x", "b": ["y"]}
    assert type(plain["a"]) is str


def test_an_endless_iterator_is_refused() -> None:
    with pytest.raises(InvalidValueError, match=f"more than {MAX_ITEMS} items"):
        to_plain(itertools.repeat(None))


def test_a_list_that_contains_itself_is_too_deep() -> None:
    values: list[object] = []
    values += [values, values]

    with pytest.raises(InvalidValueError, match="nested deeper"):
        to_plain(values)
