"""Whatever a request says, it is answered or refused with an error of ours."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aiomlc import AiomlcError, BadRequestError, JSONFFIEngine, MLCEngine
from aiomlc.api.embeddings import EmbeddingOptions
from aiomlc.api.generation.options import ChatOptions, CompletionOptions
from aiomlc.testing import FakeEncoder, fake_loader

pytestmark = pytest.mark.timeout(120)

_Strategy = st.SearchStrategy[Any]
_Options = dict[str, Any]


class _Deep(dict[str, object]):
    """An object within an object, and so on; a failure is told in few words."""

    def __init__(self, depth: int, name: str) -> None:
        inner: object = 1
        for _ in range(depth):
            inner = {name: inner} if depth % 2 else [inner]
        super().__init__({name: inner})

    def __repr__(self) -> str:
        return "_Deep(...)"


def _deep(*depths: int) -> _Strategy:
    return st.builds(_Deep, st.sampled_from(depths), st.sampled_from(["items", "a", "not"]))


_TEXT = st.text(max_size=8) | st.sampled_from(["\ud800", "a\udfff", "\ud83d\ude00", "é"])
_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.integers(-3, 3)
    | st.floats()
    | _TEXT
)
# What no JSON has, or has no end.
_ODD: _Strategy = st.sampled_from(
    [{1, 2}, frozenset({"a"}), b"a", 1j, object(), Decimal(1), range(3), deque(["a"])]
) | st.builds(pow, st.just(10), st.just(5000))
_WORDS = st.sampled_from(
    ["user", "assistant", "tool", "system", "function", "text", "auto", "required", "json_object"]
)
_JSON_TEXT = st.sampled_from(["{}", "[" * 100_000, '{"a": ' * 400, r'{"a": "\ud800"}', "1" * 5000])


def _tree(leaves: _Strategy) -> _Strategy:
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
        max_leaves=6,
    )


def _calls(value: _Strategy) -> _Strategy:
    function = st.fixed_dictionaries({"name": st.just("f"), "arguments": _JSON_TEXT | value})
    call = st.fixed_dictionaries({"id": _TEXT, "type": st.just("function"), "function": function})
    return st.fixed_dictionaries({"role": st.just("assistant"), "tool_calls": st.tuples(call)})


def _messages(value: _Strategy) -> _Strategy:
    message = st.dictionaries(
        st.sampled_from(["role", "content", "name", "tool_calls", "tool_call_id", "x"]),
        _WORDS | value,
        max_size=4,
    )
    said = st.fixed_dictionaries({"role": st.just("user"), "content": _TEXT})
    return st.lists(message | said | _calls(value), max_size=3) | value


def _tools(value: _Strategy) -> _Strategy:
    function = st.fixed_dictionaries(
        {"name": _WORDS},
        optional={"parameters": value, "strict": _WORDS | value, "description": _TEXT},
    )
    tool = st.fixed_dictionaries({"type": st.just("function"), "function": function})
    return st.lists(tool, max_size=2)


def _formats(value: _Strategy) -> _Strategy:
    schema = _JSON_TEXT | value
    return st.fixed_dictionaries({"type": st.just("json_object"), "schema": schema})


def _values(value: _Strategy) -> _Strategy:
    return _WORDS | value | _messages(value) | _tools(value) | _formats(value)


_JSON = _tree(_SCALARS | _deep(90, 401))
_PYTHON = _tree(_SCALARS | _ODD | _deep(90, 401, 3000))
_VALUES = _values(_PYTHON)


def _names(*names: str) -> _Strategy:
    return st.sampled_from([*names, "stream", "functions", "audio", "é", "\ud800"])


_CHAT_FIELDS = _names(*ChatOptions.__annotations__)
_COMPLETION_FIELDS = _names(*CompletionOptions.__annotations__, "tools")
_EMBEDDING_FIELDS = _names(*EmbeddingOptions.__annotations__)
_MANY = settings(  # More than three thousand between the seven.
    max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)


@pytest.fixture(scope="module")
def engine() -> Iterator[MLCEngine]:
    with MLCEngine(loader=fake_loader()) as engine:
        yield engine
        statistics = engine.statistics()
        assert (statistics.num_running, statistics.num_waiting) == (0, 0)


@pytest.fixture(scope="module")
def encoder() -> Iterator[MLCEngine]:
    with MLCEngine(loader=fake_loader(FakeEncoder())) as engine:
        yield engine


@pytest.fixture(scope="module")
def json_engine() -> Iterator[JSONFFIEngine]:
    with JSONFFIEngine(loader=fake_loader()) as engine:
        yield engine


def exhaust(answer: Any) -> None:  # noqa: ANN401
    if isinstance(answer, Iterator):
        for _ in answer:
            pass


@_MANY
@given(messages=_messages(_PYTHON), options=st.dictionaries(_CHAT_FIELDS, _VALUES, max_size=4))
def test_a_chat(engine: MLCEngine, messages: Any, options: _Options) -> None:  # noqa: ANN401
    options.pop("n", None)  # A hundred choices are sound, and slow.
    with suppress(AiomlcError):
        exhaust(engine.chat.completions.create(messages=messages, **options))


@_MANY
@given(prompt=_VALUES, options=st.dictionaries(_COMPLETION_FIELDS, _VALUES, max_size=4))
def test_a_plain_completion(engine: MLCEngine, prompt: Any, options: _Options) -> None:  # noqa: ANN401
    for name in ("n", "best_of"):
        options.pop(name, None)
    with suppress(AiomlcError):
        exhaust(engine.completions.create(prompt=prompt, **options))


@_MANY
@given(prompt=_VALUES, options=st.dictionaries(_COMPLETION_FIELDS, _VALUES, max_size=3))
def test_a_stream_of_tokens(engine: MLCEngine, prompt: Any, options: _Options) -> None:  # noqa: ANN401
    options.pop("n", None)
    with suppress(AiomlcError):
        exhaust(engine.generate(prompt, **options))


@_MANY
@given(
    input=_VALUES, options=st.dictionaries(st.text(max_size=12) | _CHAT_FIELDS, _VALUES, max_size=3)
)
def test_a_response(engine: MLCEngine, input: Any, options: _Options) -> None:  # noqa: A002, ANN401
    options.pop("self", None)
    options.pop("input", None)
    with suppress(AiomlcError):
        exhaust(engine.responses.create(input=input, **options))


@_MANY
@given(
    input=st.lists(_TEXT | st.lists(st.integers(-2, 30), max_size=3), max_size=3) | _VALUES,
    options=st.dictionaries(_EMBEDDING_FIELDS, _VALUES, max_size=2),
)
def test_an_embedding(encoder: MLCEngine, input: Any, options: _Options) -> None:  # noqa: A002, ANN401
    with suppress(AiomlcError):
        encoder.embeddings.create(input=input, **options)


@_MANY
@given(
    request=st.dictionaries(_CHAT_FIELDS | st.just("messages"), _values(_JSON), max_size=5) | _JSON
)
def test_a_request_as_json_text(json_engine: JSONFFIEngine, request: Any) -> None:  # noqa: ANN401
    if isinstance(request, dict):
        request = {**request, "n": 1}

    texts = list(json_engine.chat_completion(json.dumps(request)))

    chunks = [chunk for text in texts for chunk in json.loads(text)]
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert [chunk["usage"] is None for chunk in chunks] == [True] * (len(chunks) - 1) + [False]
    assert chunks[-1]["choices"] == []


@_MANY
@given(messages=_messages(_PYTHON), options=st.dictionaries(_CHAT_FIELDS, _VALUES, max_size=3))
def test_a_request_of_the_json_engine(
    json_engine: JSONFFIEngine,
    messages: Any,  # noqa: ANN401
    options: _Options,
) -> None:
    options = {**options, "n": 1, "stream_options": {"include_usage": True}, "extra_body": None}
    if options.get("stream") is False:
        with pytest.raises(BadRequestError):
            json_engine.chat.completions.create(messages=messages, **options)
        return

    chunks = list(json_engine.chat.completions.create(messages=messages, **options))

    assert [chunk.usage is None for chunk in chunks] == [True] * (len(chunks) - 1) + [False]
    assert all(chunk.model_dump_json() for chunk in chunks)
